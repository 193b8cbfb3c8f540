//! Checks whether this node's pods would be stopped in order at a shutdown, and if not, why.
//!
//! [`collect`] observes the node, with a time limit for each observation; [`findings`] is a pure function that
//! judges the result. Nothing on the node is changed, apart from one file that is written to the state
//! directory and removed again.
//!
//! # Design
//!
//! `winddown doctor` separates the two. `doctor::collect` makes all observations at once, each with a time limit, and turns
//! "absent", "not allowed", "silent" and "failed" into facts; `doctor::findings` is a pure function of them, one finding
//! per check. The doctor asks logind and systemd through `systemd::inspect` instead of trusting the agent's own state: the
//! lock counts when logind lists it. The worst finding sets the exit code.

mod checks;
mod collect;
mod facts;
mod finding;
mod fix;
mod obstacles;
mod protection;
#[cfg(test)]
mod tests;
mod text;

pub use checks::{diagnose, findings};
pub use collect::{ObservedNode, collect};
pub use facts::{
    ApiFacts, BeyondAgent, BusFacts, Clock, ConfigFact, ConfigRead, ContainerRuntimeFacts, Fact,
    Facts, FileFacts, Installed, KubeletConfig, KubeletOnDisk, NotObserved, OutOfReach, Scopes,
    ShutdownCommand, SocketFile, StateDirectory,
};
pub use finding::{Area, Counts, Diagnosis, Finding, Severity};
pub use fix::Fix;
pub use obstacles::obstacles;
pub use protection::KubeletLook;
pub use text::render;
pub use winddown_companion::kubelet::processes::KubeletProcess;
