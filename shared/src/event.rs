//! One typed event per decision.
//!
//! The same value gives the log line, the metric, the Kubernetes Event and the line in the report,
//! so they cannot tell different stories.

use std::sync::Arc;
use std::time::Duration;

use crate::{KillReason, PodUid};

/// Takes events. Must not block: it is called on the kill path.
pub trait Recorder: Send + Sync + 'static {
    /// Takes one event.
    fn record(&self, event: &Event);
}

/// Something was decided or happened that an operator may want to know.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A pod was let in and is handed to its worker.
    PodAdmitted {
        /// Which pod.
        pod: PodLabel,
    },
    /// A pod was refused.
    PodRejected {
        /// Which pod.
        pod: PodLabel,
        /// `status.reason`, for example `NodeShutdown`.
        reason: Arc<str>,
        /// For people, without the status prefix.
        message: Arc<str>,
    },
    /// A pod that came back under the UID of one that has ended was started again.
    PodRestarted {
        /// Which pod.
        pod: PodLabel,
        /// The agent itself brought it in, from a manifest.
        is_static: bool,
    },
    /// The runtime runs a pod that nobody wants and no worker knows; it is being ended.
    OrphanFound {
        /// Which pod, as the runtime names it.
        pod: PodLabel,
    },
    /// A pod was asked to end.
    KillRequested {
        /// Which pod.
        pod: PodLabel,
        /// Who asked.
        by: KillReason,
        /// The grace that applies, after all shortening.
        grace: Duration,
    },
    /// No container of the pod runs any more and none will start.
    PodStopped {
        /// Which pod.
        pod: PodLabel,
        /// From the first request to the last container's exit.
        took: Duration,
        /// Containers that needed SIGKILL.
        forced: Vec<Arc<str>>,
    },
    /// A call to the runtime failed; it will be tried again.
    SyncFailed {
        /// Which pod.
        pod: PodLabel,
        /// The error with its sources.
        error: String,
        /// When it will be tried again.
        again_in: Duration,
    },
    /// A kill outlived its deadline and goes on.
    ExceededGracePeriod {
        /// Which pod.
        pod: PodLabel,
    },
    /// A shutdown began: the signal is confirmed and admission is closed.
    ShutdownStarted {
        /// Pods that will be ended.
        pods: usize,
        /// The time the plan needs at most.
        budget: Duration,
    },
    /// A group of pods was asked to end.
    GroupStarted {
        /// The group's priority.
        priority: i32,
        /// Its pods.
        pods: usize,
        /// The group's time.
        allowed: Duration,
    },
    /// A group's containers are gone, or its time is over.
    GroupEnded {
        /// The group's priority.
        priority: i32,
        /// How long it took.
        took: Duration,
        /// Pods that still run.
        left: usize,
    },
    /// The shutdown was called off; groups not started stay alive.
    ShutdownCancelled {
        /// Groups that were not started.
        spared_groups: usize,
    },
    /// The pods are ended, or the time is over, and the lock is given back.
    ShutdownEnded {
        /// From the signal to the release of the lock.
        took: Duration,
        /// Pods that still run.
        left: usize,
    },
}

/// Names a pod in an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodLabel {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: PodUid,
}

impl std::fmt::Display for PodLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
