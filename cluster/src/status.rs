//! Reports pod statuses until the API server has confirmed them.
//!
//! * [`patch()`]: computes the one patch from the API's status to the node's.
//! * [`Outbox`]: sends statuses until the API has them. [`Follow`] fills it from the pod workers' statuses.
//! * [`Spool`]: keeps on disk what must survive the machine.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::PodRef;

mod follow;
mod outbox;
mod patch;
mod spool;

pub use follow::{Follow, submit_status};
pub use outbox::{Outbox, OutboxConfig, OutboxDriver, OutboxStats};
#[cfg(any(test, fuzzing))]
pub(crate) use patch::fuzzing;
pub(crate) use patch::{BY_NODE, DISRUPTION_TARGET, end_unseen};
pub use patch::{ReportedStatus, patch};
#[cfg(test)]
pub(crate) use spool::tests::faulty as spool_tests;
pub use spool::{Spool, SpoolError, SpoolStats, StoredRecord};

/// A status to report for a pod.
#[derive(Clone, Debug)]
pub struct StatusUpdate {
    /// The pod.
    pub pod: PodRef,
    /// The whole status, as the node sees it.
    pub status: Arc<api::PodStatus>,
    /// Whether this is the final status, because nothing of the pod runs or will run.
    pub last: bool,
    /// `metadata.generation` of the spec that the status is about, if known.
    pub generation: Option<i64>,
}
