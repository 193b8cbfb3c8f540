//! The pods bound to this node: a source of pods, which removes them from the API when they have terminated.
//!
//! [`PodController`] is the driver. Its decisions are pure functions: which difference matters
//! (`winddown_api_client::equality`), what a pod needs next (`plan`), what is left of a grace period (`deletion`).
//!
//! A pod is identified by its UID. Decisions depend on what the node reports, never on the status in the
//! API. A running pod is stopped only after the API has said that this very pod is gone or being deleted,
//! and an object is removed only when nothing of its pod runs and the API has its final status.

mod admitted;
mod config;
mod controller;
mod controller_status;
mod deletion;
mod judgement;
mod known;
mod next_step;
mod parts;
mod queue;
mod removal;
mod seams;
mod sync;
pub(crate) mod watch;

pub use admitted::AdmittedPods;
pub use config::{PodControllerConfig, PodFilter};
pub use controller::{
    EarlierPods, PodController, PodControllerHandle, PodQueues, RunError, RunState,
};
pub use judgement::{Judge, Judgement, NodeAdmission, RefusedPods, Resize, Supports};
pub use next_step::OrphanPolicy;
pub use queue::{QueueCounts, WorkerPanicked};
pub use seams::{AsItIs, KeepPods, MirrorSide, NodeSide, Prepare, PrepareError, StatusSide};
