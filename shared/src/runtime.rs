//! The interface to whatever runs containers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::{
    ContainerExit, ContainerKind, ContainerState, ContainerStatus, EvictionConstraints, Freed,
    Garbage, Grace, KillReason, MemoryFigure, NodeEnding, Pod, PodStats, PodStopped, PodUid,
    Recorder, RuntimePlaces, RuntimePod, StoppedContainer, WallTime,
};

pub(crate) mod found_pod;
pub(crate) mod garbage;
pub(crate) mod places;
pub(crate) mod stats;

/// What runs containers: the pod workers start and stop pods through it, and eviction measures and reclaims through it.
///
/// Six methods are required. The others have a default that suits a simple runtime: it supports every pod, holds nothing
/// of a stopped one, measures nothing and reclaims nothing. The crate `winddown-runtime-conformance` tries what is
/// promised here on a runtime of your own.
///
/// Of the steps of one UID ([`sync_pod`](Self::sync_pod), [`stop_pod`](Self::stop_pod), [`clean_pod`](Self::clean_pod)) and
/// [`forget_pod`](Self::forget_pod), one at most runs at a time; one whose future was dropped counts as over. Every other
/// call may come at any time, beside a step of the same pod too, and calls for different pods run in parallel. Every call
/// is idempotent. A real runtime may answer any call wrongly or late, so the implementer bounds its own calls to other
/// systems and returns an error instead of hanging.
// Over the limit because a runtime is one thing to those who write one: six methods are required, and the others have a
// default that fits a simple runtime.
pub trait Runtime: Send + Sync + 'static {
    /// Brings the pod's containers to the state that its spec asks for, in one step or several. Starts what should run
    /// and does not, and restarts what may be restarted and whose backoff is over. What runs is left as it is. A pod that
    /// was stopped and may be restarted starts again, without a backoff.
    ///
    /// Returns the state afterwards. Must be cancel-safe: the future is dropped as soon as the pod
    /// is requested to terminate, and [`stop_pod`](Self::stop_pod) then stops whatever was started.
    ///
    /// A pod of which anything was ever started is kept running whatever its spec says now: the
    /// fields that are not honoured are returned in [`SyncedPod::ignored`].
    ///
    /// # Errors
    /// [`RuntimeError::Unsupported`]: the pod asks for something that the runtime does not support, and nothing of the
    /// pod was ever started. Otherwise the runtime refused or did not answer, and the workers retry.
    fn sync_pod(&self, pod: &Pod) -> impl Future<Output = Result<SyncedPod, RuntimeError>> + Send;

    /// Stops every container of the pod: preStop hook, SIGTERM, grace period, SIGKILL. No container is killed before its
    /// grace is over. What still runs when the grace is over is killed. Resolves when nothing of the pod runs, and
    /// [`pod_status`](Self::pod_status) and [`list_pods`](Self::list_pods) say so. It does not wait for the rest of the
    /// grace, for which the next pods of a shutdown would wait too.
    ///
    /// `pod` is `None` for a pod that is not configured; only its UID is known. `grace` may shrink
    /// during the call, and the shorter one must take effect at once. Stopping a stopped or unknown pod succeeds.
    /// Dropping the future abandons the wait; the containers may continue to stop, and the next call joins that stop.
    ///
    /// # Errors
    /// Something still runs, or it is unknown whether anything does.
    fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> impl Future<Output = Result<PodStopped, RuntimeError>> + Send;

    /// Removes what remains (logs, exit records, directories) of a pod that left its source.
    ///
    /// # Errors
    /// The pod still runs, or something could not be removed.
    fn forget_pod(&self, uid: &PodUid) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// The current state of the pod's containers. A container that has exited stays in it, with how it exited, until
    /// [`forget_pod`](Self::forget_pod). A pod that the runtime does not know has none.
    ///
    /// An exit that was observed has `started_at` and `finished_at`: without them, the report of a shutdown that an earlier
    /// agent began cannot say when, and calls a pod gone that no agent had asked. Each restart adds one to `restart_count`, and `last_exit` has how the run before
    /// exited. While a container waits for its restart backoff it is `Waiting` and has that exit as `last_exit`: one that
    /// stays `Exited` is done for good.
    ///
    /// # Errors
    /// The runtime did not answer; the containers are unknown, not empty.
    fn pod_status(
        &self,
        uid: &PodUid,
    ) -> impl Future<Output = Result<PodRuntimeStatus, RuntimeError>> + Send;

    /// Every pod of this agent of which something runs or remains. An agent that starts learns from it what an earlier one
    /// has left running.
    ///
    /// # Errors
    /// The runtime did not answer; what runs is unknown, not nothing.
    fn list_pods(&self) -> impl Future<Output = Result<Vec<RuntimePod>, RuntimeError>> + Send;

    /// UIDs of pods that changed by themselves (a container exited, became ready). After a lag, check all pods.
    fn changes(&self) -> broadcast::Receiver<PodUid>;

    /// Frees what a stopped pod still holds (sandbox, cgroup, mounts), off the critical path. Logs and exit records stay
    /// until [`forget_pod`](Self::forget_pod). By default a stopped pod holds nothing.
    ///
    /// # Errors
    /// Something could not be freed. The workers retry with backoff.
    fn clean_pod(&self, _uid: &PodUid) -> impl Future<Output = Result<(), RuntimeError>> + Send {
        async { Ok(()) }
    }

    /// Mount points that the pod still holds on the host (volumes, not container root file
    /// systems). A pod the runtime does not know holds none.
    ///
    /// # Errors
    /// The mount table could not be read; the answer is unknown, not empty.
    fn mounts(
        &self,
        _uid: &PodUid,
    ) -> impl Future<Output = Result<Vec<String>, RuntimeError>> + Send {
        async { Ok(Vec::new()) }
    }

    /// The parties to ask before each of these pods is terminated. Pods with none are left out.
    ///
    /// # Errors
    /// That is currently unknown, not empty.
    fn eviction_constraints(
        &self,
        _pods: &[Pod],
    ) -> impl Future<Output = Result<Vec<(PodUid, EvictionConstraints)>, RuntimeError>> + Send {
        async { Ok(Vec::new()) }
    }

    /// Sets the recorder of container events ([`Event::Pod`](crate::Event::Pod)). A runtime whose
    /// containers are started by another agent leaves recording to that agent.
    fn record_to(&self, _recorder: &Arc<dyn Recorder>) {}

    /// Names the program that the runtime is part of, as `NAME-VERSION`, for those to whom it sends requests, such as
    /// probed containers. A runtime that sends none ignores it. Must return at once.
    fn identify_as(&self, _program: &str) {}

    /// Announces that all pods are about to terminate, or (`None`) no longer are. What a pod learns from its own
    /// termination is more precise: [`stop_pod`](Self::stop_pod) has the reason and the time. Must return at once.
    fn announce(&self, _ending: Option<Arc<NodeEnding>>) {}

    /// Whether the pod, as it was started, would keep running through a soft-reboot of the node. Must return at once.
    fn survives_soft_reboot(&self, _uid: &PodUid) -> bool {
        false
    }

    /// Checks that the runtime supports what the pod asks for; by default it does. Called by an `AdmitHandler` of the agent
    /// before [`NodeFit`](crate::NodeFit), so that none is preempted for a pod that it cannot run. Must return at once.
    ///
    /// # Errors
    /// [`RuntimeError::Unsupported`] with the first field that is not supported.
    fn supports(&self, _pod: &Pod) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Whether it applies `supplementalGroupsPolicy: Strict`; by default it does. A pod that asks for it is refused where it
    /// does not.
    fn applies_strict_groups(&self) -> bool {
        true
    }

    /// Whether the pod has completed: nothing of it runs, and [`sync_pod`](Self::sync_pod) would start nothing. False, the
    /// default, means that this is not known. Must return at once.
    fn has_completed(&self, _pod: &Pod) -> bool {
        false
    }

    /// Why the runtime would not stop the pod for this reason, and what ends it instead, for people; `None`, the
    /// default, if it would. Such a request is refused at once: an accepted one is repeated until the pod has
    /// terminated, or until this method refuses it after a failed stop. Must return at once.
    ///
    /// A pod that is refused for [`KillReason::Removed`] is run by another agent for its source. It is never stopped as
    /// a leftover, and if it had terminated, it begins another run.
    fn refuses_stop(&self, _uid: &PodUid, _reason: KillReason) -> Option<Arc<str>> {
        None
    }

    /// The usage of every pod that was started and not stopped, or still runs, in no particular order: while all its
    /// containers wait to be restarted, its files remain. `None`, the default, from a runtime that
    /// measures no pods. Eviction then ranks them as a kubelet does without statistics: by priority alone.
    ///
    /// Memory and processes are read on every call. Disk usage takes a walk through files, so it is cached: with
    /// `disk_age`, values older than that are measured again (off the async threads, in bounded time, never two walks
    /// at once); without it, the last values are returned, if they are less than a minute old. Cancel-safe.
    ///
    /// # Errors
    /// Nothing is known of any pod. If only one pod, or a part of it, is unknown, it is absent.
    fn pod_stats(
        &self,
        _disk_age: Option<Duration>,
    ) -> impl Future<Output = Result<Option<Vec<(PodUid, PodStats)>>, RuntimeError>> + Send {
        async { Ok(None) }
    }

    /// The directory of the containers' logs, laid out as `/var/log/pods` is; `None`, the default, if there is none.
    fn pod_logs(&self) -> Option<&Path> {
        None
    }

    /// Where the node is to be measured for its pods.
    ///
    /// # Errors
    /// A part is not known yet. It is asked for again, with a backoff.
    fn places(&self) -> impl Future<Output = Result<RuntimePlaces, RuntimeError>> + Send {
        async { Ok(RuntimePlaces::default()) }
    }

    /// Removes everything of one kind that no pod needs; by default nothing. Only one call runs at a time. Each is bounded
    /// in time, and dropping its future leaves the rest undone.
    ///
    /// # Errors
    /// The runtime did not answer, or refused one; the others are removed.
    fn collect_garbage(
        &self,
        _what: Garbage,
    ) -> impl Future<Output = Result<Freed, RuntimeError>> + Send {
        async { Ok(Freed::default()) }
    }

    /// Has the kernel reclaim memory from a running pod until `figure` has fallen by `bytes`, nothing more can be
    /// reclaimed, or `time` has passed; by default nothing. Only one call runs at a time.
    ///
    /// # Errors
    /// The kernel does not support it: cgroups version 1, or Linux before 5.19.
    fn reclaim_memory(
        &self,
        _uid: &PodUid,
        _figure: MemoryFigure,
        _bytes: u64,
        _time: Duration,
    ) -> impl Future<Output = Result<Freed, RuntimeError>> + Send {
        async { Ok(Freed::default()) }
    }
}

/// The result of [`Runtime::sync_pod`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SyncedPod {
    /// The containers after the call.
    pub status: PodRuntimeStatus,
    /// When to call again if nothing changes (a restart backoff ends then).
    pub again_in: Option<Duration>,
    /// The fields that are not honoured although the pod runs: they were added or changed after the
    /// pod had started, or an earlier agent admitted the pod.
    pub ignored: Vec<UnsupportedField>,
}

impl From<PodRuntimeStatus> for SyncedPod {
    fn from(status: PodRuntimeStatus) -> Self {
        Self { status, ..Self::default() }
    }
}

/// A field that asks for something that a runtime does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsupportedField {
    /// Path of the field, for example `spec.volumes[0].nfs`.
    pub field: String,
    /// What is not supported, and what to write instead.
    pub why: String,
}

impl UnsupportedField {
    /// The field at this path, and why it is not supported.
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

impl From<UnsupportedField> for RuntimeError {
    fn from(one: UnsupportedField) -> Self {
        Self::Unsupported { field: one.field, why: one.why }
    }
}

/// A pod's containers as the runtime sees them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PodRuntimeStatus {
    /// Init containers first, then the regular ones, each in the spec's order. A container that was
    /// never created is present as [`ContainerState::Waiting`] if the spec is known.
    pub containers: Vec<ContainerStatus>,
    /// When the first container (or the sandbox) of the pod started.
    pub started_at: Option<WallTime>,
    /// The pod's addresses; empty for pods without a network of their own.
    pub ips: Vec<String>,
    /// Whether exits that are shown say nothing about the pod: it starts over, or its kubelet may start containers again.
    pub starts_over: bool,
}

impl PodRuntimeStatus {
    /// These containers. When the pod started, and its addresses, are fields to set.
    pub fn new(containers: Vec<ContainerStatus>) -> Self {
        Self { containers, ..Self::default() }
    }

    /// Whether any container runs.
    pub fn any_running(&self) -> bool {
        self.containers.iter().any(|c| matches!(c.state, ContainerState::Running { .. }))
    }

    /// Takes over what readiness probes find of the containers that run here. Returns whether that is new. A container of
    /// `pod` that has exited by now answers no probe.
    pub(crate) fn take_readiness(&mut self, now: &Self, pod: &Pod) -> bool {
        let runs = |one: &ContainerStatus| matches!(one.state, ContainerState::Running { .. });
        let mut is_new = false;
        for shown in self.containers.iter_mut().filter(|one| runs(one)) {
            let same = now.containers.iter().find(|one| one.id == shown.id);
            let ready = match same {
                Some(now) if runs(now) => now.ready,
                _ if has_readiness_probe(pod, &shown.name) => false,
                _ => shown.ready,
            };
            is_new |= ready != shown.ready;
            shown.ready = ready;
        }
        is_new
    }

    /// Names of the containers that run.
    pub fn running(&self) -> impl Iterator<Item = &Arc<str>> {
        self.containers
            .iter()
            .filter(|c| matches!(c.state, ContainerState::Running { .. }))
            .map(|c| &c.name)
    }

    /// When the last container exited, and how each did, except init containers. `None` while one
    /// runs, or if an exit was not observed.
    pub fn ends(&self) -> Option<(WallTime, Vec<StoppedContainer>)> {
        let mut last = None;
        let mut ends = Vec::new();
        for one in self.containers.iter().filter(|one| one.kind != ContainerKind::Init) {
            let exit = match &one.state {
                ContainerState::Running { .. } => return None,
                ContainerState::Exited(exit) => exit,
                // It was about to be restarted, or never ran.
                ContainerState::Waiting { .. } => match &one.last_exit {
                    Some(exit) => exit,
                    None => continue,
                },
            };
            last = last
                .max(Some(exit.finished_at.filter(|_| &*exit.reason != ContainerExit::UNKNOWN)?));
            let name = Arc::clone(&one.name);
            ends.push(StoppedContainer::from_exit_code(name, exit.exit_code, &exit.reason));
        }
        Some((last?, ends))
    }
}

/// Why the runtime could not do what was requested.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The pod asks for something that this runtime does not support. Retrying does not help: a pod
    /// that was never started is rejected, with the name of the field.
    #[error("{field}: {why}")]
    Unsupported {
        /// Path of the field, for example `spec.volumes[0].nfs`.
        field: String,
        /// What is not supported, and what to do instead.
        why: String,
    },
    /// The runtime, or the system below it, refused.
    #[error("{what}")]
    Failed {
        /// What was attempted, with the container or the file it concerned.
        what: String,
        /// The cause.
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// The node is not ready for the pod yet, for example because it has no address. Retrying soon
    /// helps; the pod is not at fault.
    #[error("{what}")]
    NotYet {
        /// What is missing, with the field that needs it.
        what: String,
    },
    /// The runtime did not answer in time.
    #[error("{what}: no answer within {after:?}")]
    Timeout {
        /// What was attempted.
        what: String,
        /// The time limit.
        after: Duration,
    },
}

/// Whether a container of the pod has a readiness probe.
fn has_readiness_probe(pod: &Pod, name: &str) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
        all.any(|one| one.name == name && one.readiness_probe.is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(kind: ContainerKind, end: Option<(i64, &str)>) -> ContainerStatus {
        let at = |second| WallTime::from_second(second).ok();
        let state = match end {
            None => ContainerState::Running { started_at: WallTime::UNIX_EPOCH },
            Some((second, reason)) => ContainerState::Exited(ContainerExit {
                exit_code: 137,
                signal: None,
                reason: reason.into(),
                message: String::new(),
                started_at: None,
                finished_at: at(second),
            }),
        };
        ContainerStatus::new("a", kind, state)
    }

    #[test]
    fn a_pods_end_is_that_of_its_last_container_unless_one_runs_or_was_not_seen() {
        let ends = |containers: &[(ContainerKind, Option<(i64, &str)>)]| {
            let containers = containers.iter().map(|(kind, end)| container(*kind, *end)).collect();
            let (at, ends) = PodRuntimeStatus::new(containers).ends()?;
            Some((at.as_second(), ends.iter().map(|end| end.forced).collect::<Vec<_>>()))
        };
        use ContainerKind::{Init, Regular, Sidecar};
        let (early, late) = (Some((5, "OOMKilled")), Some((9, "Error")));
        assert_eq!(ends(&[(Regular, late), (Sidecar, early)]), Some((9, vec![true, false])));
        assert_eq!(ends(&[(Init, late), (Regular, early)]), Some((5, vec![false])));
        for other in [None, Some((7, ContainerExit::UNKNOWN))] {
            assert_eq!(ends(&[(Regular, late), (Regular, other)]), None, "{other:?}");
        }
        assert_eq!(ends(&[]), None);
    }
}
