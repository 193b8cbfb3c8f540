//! Why no pod is ended.

use std::fmt::Write;

use crate::Requirement;

/// No set of pods that may be ended frees enough. The text is the kubelet's.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("no set of running pods found to reclaim resources: [{}]", list(.lacking))]
pub struct NoVictims {
    /// What is still lacking when every pod that may be ended has ended, in the order of the
    /// requirements. Never empty, and every amount above 0.
    pub lacking: Vec<Requirement>,
}

fn list(lacking: &[Requirement]) -> String {
    lacking.iter().fold(String::new(), |mut text, (resource, amount)| {
        // Writing into a string does not fail.
        let _ = write!(text, "(res: {resource}, q: {amount}), ");
        text
    })
}
