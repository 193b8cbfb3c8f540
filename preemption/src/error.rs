//! The error for when no choice of victims is enough.

use std::fmt::Write;

use crate::Requirement;

/// No set of preemptable pods frees enough. The message is the kubelet's.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("no set of running pods found to reclaim resources: [{}]", list(.lacking))]
#[non_exhaustive]
pub struct NoVictims {
    /// What would still be lacking if every preemptable pod were stopped, in the order of the
    /// requirements. Never empty, and every amount is above 0.
    pub lacking: Vec<Requirement>,
}

fn list(lacking: &[Requirement]) -> String {
    lacking.iter().fold(String::new(), |mut text, (resource, amount)| {
        // Writing into a string does not fail.
        let _ = write!(text, "(res: {resource}, q: {amount}), ");
        text
    })
}
