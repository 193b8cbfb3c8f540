//! A container, as the runtime sees it.

use std::sync::Arc;

use super::ContainerKind;
use crate::WallTime;

/// One container, as the runtime sees it.
///
/// ```
/// use winddown_shared::{ContainerKind, ContainerState, ContainerStatus, PodRuntimeStatus, WallTime};
///
/// let running = ContainerState::Running { started_at: WallTime::UNIX_EPOCH };
/// let mut main = ContainerStatus::new("main", ContainerKind::Regular, running);
/// main.id = "mine://web/main".to_owned();
/// main.ready = false; // its readiness probe has not passed yet
/// assert!(main.started && PodRuntimeStatus::new(vec![main]).any_running());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ContainerStatus {
    /// The name in the pod's spec.
    pub name: Arc<str>,
    /// Its role.
    pub kind: ContainerKind,
    /// The runtime's id with its scheme (`containerd://…`, `process://…`); empty if never created.
    pub id: String,
    /// The image as the spec names it.
    pub image: String,
    /// The image of its newest run, with the digest; empty if unknown.
    pub image_id: String,
    /// Its current state.
    pub state: ContainerState,
    /// How the previous run exited, if there was one.
    pub last_exit: Option<ContainerExit>,
    /// The number of restarts.
    pub restart_count: u32,
    /// Whether it has started (its startup probe passed, or there is none).
    pub started: bool,
    /// Whether it is ready (its readiness probe passed, or there is none).
    pub ready: bool,
}

impl ContainerStatus {
    /// A container in this state, without a restart. It has started and is ready if it runs. The other fields are to be
    /// set as far as they are known.
    pub fn new(name: impl Into<Arc<str>>, kind: ContainerKind, state: ContainerState) -> Self {
        let runs = matches!(state, ContainerState::Running { .. });
        Self {
            name: name.into(),
            kind,
            id: String::new(),
            image: String::new(),
            image_id: String::new(),
            state,
            last_exit: None,
            restart_count: 0,
            started: runs,
            ready: runs,
        }
    }
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq)]
pub enum ContainerState {
    /// It is not running yet, or waits to be restarted.
    Waiting {
        /// `ContainerCreating`, `PodInitializing`, `CrashLoopBackOff`, …
        reason: Arc<str>,
        /// For people; may be empty.
        message: String,
    },
    /// It runs.
    Running {
        /// When it started.
        started_at: WallTime,
    },
    /// It has exited and is not waiting for a restart.
    Exited(ContainerExit),
}

/// How one run of a container exited.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ContainerExit {
    /// Exit code as Kubernetes shows it: 128 + signal number for a container killed by a signal.
    pub exit_code: i32,
    /// The signal that killed it, if any.
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerStatusUnknown`, …
    pub reason: Arc<str>,
    /// The termination message; may be empty.
    pub message: String,
    /// When it started.
    pub started_at: Option<WallTime>,
    /// When it exited.
    pub finished_at: Option<WallTime>,
}

impl ContainerExit {
    /// The kubelet's reason for an exit that was not observed; its exit code is made up.
    pub const UNKNOWN: &str = "ContainerStatusUnknown";

    /// An exit with this code, `Completed` if it is 0 and `Error` otherwise. The times, above all
    /// [`finished_at`](Self::finished_at), are to be set as far as they are known.
    pub fn new(exit_code: i32) -> Self {
        Self {
            exit_code,
            signal: None,
            reason: if exit_code == 0 { "Completed" } else { "Error" }.into(),
            message: String::new(),
            started_at: None,
            finished_at: None,
        }
    }

    /// The code that decides what becomes of the container and its pod: an init container that ran out of memory has
    /// failed, also if only a child process was killed and its first process exited with 0, as with a kubelet.
    pub fn deciding_code(&self, kind: ContainerKind) -> i32 {
        match (kind, self.exit_code, &*self.reason) {
            (ContainerKind::Init, 0, "OOMKilled") => 137,
            (_, code, _) => code,
        }
    }
}
