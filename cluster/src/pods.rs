//! The pods bound to this node: a source of pods for it, and taken out of the API again when they have ended.
//!
//! [`PodController`] is the driver. What it decides is in pure functions: which difference matters
//! (`equality`), what a pod needs next (`plan`), what is left of a grace (`deletion`).
//!
//! A pod is its UID, everywhere. Decisions come from what the node says, never from the status in
//! the API. Nothing that runs is ended before the API has said that this very pod is gone or is to go, and
//! no object is removed before nothing of its pod runs and the API has its last word.

mod config;
mod controller;
mod controller_status;
mod deletion;
pub mod equality;
mod known;
mod parts;
mod plan;
mod queue;
mod removal;
mod seams;
mod sync;
pub(crate) mod watch;

pub use config::{HoldBack, PodControllerConfig, PodFilter};
pub use controller::{
    EarlierPods, PodController, PodControllerHandle, PodQueues, RunError, RunState,
};
pub use plan::OrphanPolicy;
pub use queue::{QueueCounts, WorkerPanicked};
pub use seams::{AsItIs, Keep, MirrorSide, NodeSide, Prepare, PrepareError, StatusSide};
