//! Pod facts, quantities and durations against answers recorded from Kubernetes 1.36.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod durations;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod quantities;
