//! Pod facts, quantities and durations against answers recorded from Kubernetes 1.36.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod durations;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod quantities;
