//! Whether this node's pods would be ended in order at a shutdown, and what stands in the way.
//!
//! [`collect`] looks at the node, each look bounded in time; [`findings`] judges what was seen and
//! is pure. Nothing on the node is changed, apart from one file that is written to the state
//! directory and removed again.

mod checks;
mod collect;
mod facts;
mod finding;
#[cfg(test)]
mod tests;
mod text;

pub use checks::findings;
pub use collect::{Place, collect};
pub use facts::{
    Clock, Command, ConfigFact, ConfigRead, Fact, Facts, Installed, KubeletConfig, Scopes,
    Shortage, SocketFile, StateDirectory, Unseen,
};
pub use finding::{Area, Counts, Diagnosis, Finding, Severity};
pub use text::render;
pub use winddown_kubelet::processes::Process;
