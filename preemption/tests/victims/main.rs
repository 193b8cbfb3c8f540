//! The victims of every strategy, against answers recorded from Kubernetes 1.36 and against a search
//! that tries everything.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

#[cfg(test)]
mod awkward;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod counterexamples;
#[cfg(test)]
mod lines;
#[cfg(test)]
mod minimal;
#[cfg(test)]
mod node;
#[cfg(test)]
mod reasons;
