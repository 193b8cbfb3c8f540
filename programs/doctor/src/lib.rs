//! Checks whether this node's pods would be stopped in order at a shutdown, and if not, why.
//!
//! [`collect`] observes the node, with a time limit for each observation; [`findings`] is a pure function that
//! judges the result. Nothing on the node is changed, apart from one file that is written to the state
//! directory and removed again.

mod checks;
mod collect;
mod facts;
mod finding;
mod fix;
mod protection;
#[cfg(test)]
mod tests;
mod text;

pub use checks::{diagnose, findings};
pub use collect::{Place, collect};
pub use facts::{
    Clock, Command, ConfigFact, ConfigRead, Fact, Facts, Installed, KubeletConfig, NotObserved,
    OutOfReach, Scopes, Shortage, SocketFile, StateDirectory,
};
pub use finding::{Area, Counts, Diagnosis, Finding, Severity};
pub use fix::Fix;
pub use protection::KubeletLook;
pub use text::render;
pub use winddown_companion::kubelet::processes::Process;
