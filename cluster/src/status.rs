//! What pods do, told to the API server until it has said that it knows.
//!
//! * [`patch()`]: what the API has and what the node says, to the one patch that is needed.
//! * [`Outbox`]: says it until the API has it. [`Follow`] fills it from the pod workers' statuses.
//! * [`change_metadata`]: labels and annotations, which are no part of a status.
//! * [`Spool`]: what must survive the machine, on disk.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::PodLabel;

mod follow;
mod metadata;
mod outbox;
mod patch;
mod spool;

pub use follow::{Follow, update_of};
pub use metadata::{MetadataChange, MetadataError, change_metadata};
pub use outbox::{Outbox, OutboxConfig, OutboxDriver, OutboxStats};
#[cfg(debug_assertions)]
pub(crate) use patch::fuzzing;
pub(crate) use patch::{BY_NODE, DISRUPTION_TARGET};
pub use patch::{Words, patch};
#[cfg(test)]
pub(crate) use spool::tests::faulty as spool_tests;
pub use spool::{Kept, Spool, SpoolError, SpoolLimits, SpoolStats};

/// What is to be said of a pod.
#[derive(Clone, Debug)]
pub struct StatusUpdate {
    /// Whose status.
    pub pod: PodLabel,
    /// All that the node has to say about it.
    pub status: Arc<api::PodStatus>,
    /// Nothing of the pod runs, and nothing will: this is its last word.
    pub last: bool,
    /// `metadata.generation` of the spec that the status is about, if it is known.
    pub generation: Option<i64>,
}
