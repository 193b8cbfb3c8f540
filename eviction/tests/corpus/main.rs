//! Compares with recorded answers of Kubernetes 1.36: every row of both files.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

#[cfg(test)]
mod ranking;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod thresholds;
