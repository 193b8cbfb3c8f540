//! The pods bound to this node: brought to a [`Provider`](crate::provider::Provider), and taken out of the
//! API again when they have ended.
//!
//! [`PodController`] is the driver. What it decides is in pure functions: which difference matters
//! (`equality`), what a pod needs next (`plan`), what is left of a grace (`deletion`).
//!
//! A pod is its UID, everywhere. Decisions come from what the provider says, never from the status in
//! the API. Nothing that runs is ended before the API has said that this very pod is gone or is to go, and
//! no object is removed before nothing of its pod runs and the API has its last word.

mod config;
mod controller;
mod controller_status;
mod dangling;
mod deletion;
pub mod equality;
mod known;
mod parts;
mod plan;
mod progress;
mod queue;
mod removal;
mod report;
mod seams;
mod sync;
pub(crate) mod watch;

pub use config::{PodControllerConfig, PodFilter};
pub use controller::{PodController, PodControllerHandle, PodQueues, RunError, RunState};
pub use plan::OrphanPolicy;
pub use queue::{QueueCounts, WorkerPanicked};
pub use seams::{
    AsItIs, MirrorSide, NoEvents, PodEvent, PodEvents, Prepare, PrepareError, StatusSide,
};
