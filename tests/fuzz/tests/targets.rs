//! The laws of what crates say to all: those of what a crate keeps to itself are in its `fuzzing` module.

pub(crate) mod documents;
pub(crate) mod kernel;
pub(crate) mod numbers;
pub(crate) mod reports;
