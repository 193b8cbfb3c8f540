//! Requests to terminate a pod, and their results.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{
    ContainerExit, GateReason, LateRemark, NodeEnding, PluginName, Pod, PodUid, RuntimePod,
};
use grace::instant_after;

pub(crate) mod eviction_constraints;
pub(crate) mod gate_reason;
pub(crate) mod grace;
pub(crate) mod node_ending;

/// Why a pod is requested to terminate. Names the controller, never the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KillReason {
    /// The node is shutting down.
    Shutdown,
    /// A critical pod needs the pod's resources.
    Preemption,
    /// The node is running out of a resource.
    Eviction,
    /// An operator drains the node, which stays up.
    Drain,
    /// An operator terminates this one pod.
    Operator,
    /// The pod left its source (manifest removed, API object deleted).
    Removed,
    /// A controller that is not one of the node's own.
    Plugin(PluginName),
}

impl KillReason {
    /// Short name of the reason as used in logs and JSON: `shutdown`, or the name of a plug-in.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Preemption => "preemption",
            Self::Eviction => "eviction",
            Self::Drain => "drain",
            Self::Operator => "operator",
            Self::Removed => "removed",
            Self::Plugin(name) => name.as_str(),
        }
    }

    /// The reason in a few words, for people.
    #[must_use]
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::Shutdown => "the node shuts down".into(),
            Self::Preemption => "a critical pod needs the room".into(),
            Self::Eviction => "it is evicted".into(),
            Self::Drain => "the node is drained".into(),
            Self::Operator => "requested by an operator".into(),
            Self::Removed => "it was removed or replaced at its source".into(),
            Self::Plugin(name) => format!("chosen by the plug-in {name}").into(),
        }
    }

    /// Whether all pods of the node are terminated for this reason, which show as not ready from before their SIGTERM on.
    #[must_use]
    pub(crate) const fn is_of_node(self) -> bool {
        matches!(self, Self::Shutdown | Self::Drain)
    }

    /// Whether the node waits for the end of the pods that are terminated for this reason: for their room, or to be down
    /// in time.
    #[must_use]
    pub const fn node_waits(self) -> bool {
        match self {
            Self::Removed | Self::Operator => false,
            Self::Shutdown | Self::Preemption | Self::Eviction | Self::Drain | Self::Plugin(_) => {
                true
            }
        }
    }

    /// When a static pod that was terminated for this reason starts again. An API pod never does, unless its request
    /// says so ([`StatusOverride::restarts_on_node`]): it has failed, and its controller creates another one.
    #[must_use]
    pub const fn restart_condition(self) -> RestartCondition {
        match self {
            Self::Shutdown | Self::Drain => RestartCondition::AdmissionReopens,
            Self::Preemption => RestartCondition::RoomIsFree,
            Self::Eviction => RestartCondition::PressureEnds,
            Self::Operator => RestartCondition::Terminated,
            Self::Removed => RestartCondition::SourceListsIt,
            Self::Plugin(_) => RestartCondition::Never,
        }
    }
}

/// When a static pod that the node has terminated starts again. A restart of the agent changes nothing of it where the
/// request is kept ([`Event::KillRequested`](crate::Event::KillRequested)), as by `winddown-node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartCondition {
    /// The pod starts again when it has terminated and the node admits pods.
    Terminated,
    /// The pod starts again when the node admits pods again. The request is kept until then.
    AdmissionReopens,
    /// The pod is tried again whenever there may be room for it.
    RoomIsFree,
    /// The controller that terminated the pod readmits it when the shortage is over. The request is kept until then.
    PressureEnds,
    /// The pod starts again if its source lists it again.
    SourceListsIt,
    /// The pod stays terminated until its manifest changes or the machine boots. The request is kept until then.
    Never,
}

impl RestartCondition {
    /// Whether the request is kept when the pod has terminated, so that a later agent does not start it too early.
    #[must_use]
    pub const fn is_kept_after_end(self) -> bool {
        match self {
            Self::AdmissionReopens | Self::PressureEnds | Self::Never => true,
            Self::Terminated | Self::RoomIsFree | Self::SourceListsIt => false,
        }
    }
}

/// The status that a kill writes into the pod, and that stays there whatever the exit codes are.
///
/// The kubelet loses this when all containers exit 0 (k8s#141483).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StatusOverride {
    /// `status.reason`, for example `Terminated`.
    pub reason: Arc<str>,
    /// `status.message`.
    pub message: Arc<str>,
    /// Message of the `DisruptionTarget` condition (reason `TerminationByKubelet`); `None` adds no condition.
    pub disruption_message: Option<Arc<str>>,
    /// Whether the pod has not failed: it keeps its node and its phase, and starts again when the
    /// node is back. Reason and message are then those of its `Ready` condition.
    #[serde(default, rename = "stays", skip_serializing_if = "std::ops::Not::not")]
    pub restarts_on_node: bool,
}

// === impl StatusOverride ===

impl StatusOverride {
    /// Status of a pod that fails when it terminates. `disruption_message` adds the condition `DisruptionTarget`.
    pub fn failed(
        reason: impl Into<Arc<str>>,
        message: impl Into<Arc<str>>,
        disruption_message: Option<Arc<str>>,
    ) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self { reason, message, disruption_message, restarts_on_node: false }
    }

    /// Status of a pod that stays on its node and starts again. Reason and message go to its `Ready` condition.
    pub fn staying(reason: impl Into<Arc<str>>, message: impl Into<Arc<str>>) -> Self {
        Self { restarts_on_node: true, ..Self::failed(reason, message, None) }
    }
}

/// One request to terminate a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KillRequest {
    /// The requester.
    pub reason: KillReason,
    /// The time between SIGTERM and SIGKILL. `None` uses the pod's own grace period. It can only
    /// shorten what an earlier request or a deletion granted; a shorter one takes effect on a stop
    /// in flight. At least a second is given.
    pub grace: Option<Duration>,
    /// When SIGKILL is due at the latest, if that was promised before: the pod is asked again, by a later agent. What is
    /// left may be nothing.
    pub until: Option<Instant>,
    /// Marks the pod as evicted: its logs and exit records may be removed once it has stopped.
    pub evict: bool,
    /// The status to write into the pod.
    pub status: Option<StatusOverride>,
    /// How long the caller waits; `None` uses 1.5 times the effective grace period, and never less
    /// than 10 s. When it passes, the caller gets [`KillError::Deadline`] and the kill continues.
    pub deadline: Option<Instant>,
    /// Whether an earlier agent has recorded, besides the request, that the pod has terminated.
    pub(crate) is_recorded: bool,
    /// Whether the node waits for the pod's end, whatever the reason: a further request to an earlier agent said so.
    pub(crate) node_waits: bool,
}

impl KillRequest {
    /// Whether the node waits for the pod's end.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.node_waits || self.reason.node_waits()
    }

    /// Whether the pod starts again when its node is back.
    pub fn restarts_on_node(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.restarts_on_node)
    }

    /// The pod's status from now on, if this request changes the `earlier` one. A shutdown or drain of the whole node only
    /// replaces that the pod stays: the node may not come back after all. As with a kubelet, a disruption remains one
    /// when another request follows.
    pub fn replacement(&self, earlier: Option<&StatusOverride>) -> Option<StatusOverride> {
        let gives_way = earlier.is_none_or(|status| status.restarts_on_node);
        let mut status = self.status.clone().filter(|_| gives_way || !self.reason.is_of_node())?;
        let disruption = earlier.and_then(|status| status.disruption_message.clone());
        status.disruption_message = status.disruption_message.or(disruption);
        Some(status)
    }

    /// What is left of `grace` until the end that was promised before.
    pub(crate) fn left_of(&self, grace: Duration, now: Instant) -> Duration {
        let left = self.until.map(|until| until.saturating_duration_since(now));
        left.map_or(grace, |left| left.min(grace))
    }

    /// Creates a request with the pod's own grace period and no status.
    pub fn new(reason: KillReason) -> Self {
        let (grace, until, status, deadline) = (None, None, None, None);
        Self {
            reason,
            grace,
            until,
            evict: false,
            status,
            deadline,
            is_recorded: false,
            node_waits: false,
        }
    }

    /// Sets [`grace`](Self::grace).
    #[must_use]
    pub fn with_grace(self, grace: impl Into<Option<Duration>>) -> Self {
        Self { grace: grace.into(), ..self }
    }

    /// Sets [`until`](Self::until).
    #[must_use]
    pub fn with_until(self, until: impl Into<Option<Instant>>) -> Self {
        Self { until: until.into(), ..self }
    }

    /// Sets [`evict`](Self::evict).
    #[must_use]
    pub fn with_evict(self, evict: bool) -> Self {
        Self { evict, ..self }
    }

    /// Sets [`status`](Self::status).
    #[must_use]
    pub fn with_status(self, status: impl Into<Option<StatusOverride>>) -> Self {
        Self { status: status.into(), ..self }
    }

    /// Sets [`deadline`](Self::deadline).
    #[must_use]
    pub fn with_deadline(self, deadline: impl Into<Option<Instant>>) -> Self {
        Self { deadline: deadline.into(), ..self }
    }
}

/// A request of an earlier agent of this boot to terminate a pod. Its end is a point in time: time passes while no agent
/// runs, and while the runtime is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EarlierKill {
    /// The request. Its own grace period is not used.
    pub request: KillRequest,
    /// When the grace period ends, in time since the boot.
    pub until: Duration,
    /// Whether the earlier agent has recorded that the pod has terminated.
    pub has_terminated: bool,
    /// Whether the node waits for the pod's end, whatever the reason ([`KillReason::node_waits`]).
    pub node_waits: bool,
}

impl EarlierKill {
    /// A request to a pod that is not known to have terminated.
    pub fn new(request: KillRequest, until: Duration) -> Self {
        Self { request, until, has_terminated: false, node_waits: false }
    }

    /// The request for the rest of the grace period, which may be nothing. `now` is the time since the boot.
    #[must_use]
    pub fn request_at(&self, now: Duration) -> KillRequest {
        let left = self.until.saturating_sub(now);
        let until = Some(instant_after(Instant::now(), left));
        KillRequest {
            grace: Some(left),
            until,
            node_waits: self.node_waits,
            ..self.request.clone()
        }
    }

    /// Whether the pod must not start yet, even if it has terminated.
    pub(crate) fn keeps_out(&self, is_static: bool) -> bool {
        // What the end of the node, or a drain, has ended has not been rejected, whatever its source.
        let condition = self.request.reason.restart_condition();
        let is_of_node =
            self.request.restarts_on_node() || condition == RestartCondition::AdmissionReopens;
        is_of_node || (is_static && condition.is_kept_after_end())
    }
}

/// How a pod terminated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodStopped {
    /// When the first container got SIGTERM; `None` when there was nothing to stop, or when that is not known.
    pub signalled_at: Option<Instant>,
    /// When the last container was gone.
    pub stopped_at: Option<Instant>,
    /// The containers that were running when the stop began.
    pub containers: Vec<StoppedContainer>,
    /// Whether it is known that none was: the pod was starting, or waited to be restarted.
    pub nothing_ran: bool,
    /// A remark for people on how it was stopped: `its disruption budget refused for 6.5 s`.
    pub remark: Option<Arc<str>>,
    /// Takes a remark on what became of it since: `the kubelet restarted it, and it was stopped again`; with whether that
    /// needed SIGKILL.
    pub afterwards: LateRemark,
}

impl PodStopped {
    /// These containers were running, and the last was gone at `stopped_at`.
    pub fn at(stopped_at: Instant, containers: Vec<StoppedContainer>) -> Self {
        Self { stopped_at: Some(stopped_at), containers, ..Self::default() }
    }

    /// No container was running.
    pub fn of_nothing() -> Self {
        Self { nothing_ran: true, ..Self::default() }
    }

    /// Whether any container had to be killed because its grace period ran out.
    pub fn forced(&self) -> bool {
        self.containers.iter().any(|c| c.forced)
    }
}

/// How one container was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoppedContainer {
    /// The container's name in the pod's spec.
    pub name: Arc<str>,
    /// Exit code as Kubernetes shows it: 128 + signal number for a container killed by a signal.
    pub exit_code: i32,
    /// Whether SIGKILL was needed because the grace period ran out.
    pub forced: bool,
}

impl StoppedContainer {
    /// A container that exited with this code, whether it needed SIGKILL or not.
    pub fn new(name: impl Into<Arc<str>>, exit_code: i32, forced: bool) -> Self {
        Self { name: name.into(), exit_code, forced }
    }

    /// Creates the entry that a kubelet or a container runtime reports. Exit code 137 (SIGKILL) is the only sign of a
    /// grace period that ran out, unless the kernel killed the container for its memory, or its exit was not observed.
    pub fn from_exit_code(name: impl Into<Arc<str>>, exit_code: i32, reason: &str) -> Self {
        let has_other_cause = matches!(reason, "OOMKilled" | ContainerExit::UNKNOWN);
        Self::new(name, exit_code, exit_code == 137 && !has_other_cause)
    }
}

/// Why [`PodKiller::kill_pod`] could not confirm that the pod is gone.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum KillError {
    /// The deadline passed and containers still run. The kill continues.
    #[error("pod {pod} still runs after {}{}{}", crate::display::duration(*.waited),
        if .still_running.is_empty() { "" } else { ": " }, .still_running.join(", "))]
    Deadline {
        /// `namespace/name`.
        pod: Arc<str>,
        /// How long the caller waited.
        waited: Duration,
        /// Names of the containers last seen running; empty if the runtime did not answer.
        still_running: Vec<String>,
    },
    /// The runtime would not stop the pod for this reason, however long it is asked to: nothing was requested, or a
    /// request that had begun was given up before anything was stopped.
    #[error("pod {pod} is left as it is: {why}")]
    Refused {
        /// `namespace/name`.
        pod: Arc<str>,
        /// Why, and what ends the pod instead; for people.
        why: Arc<str>,
    },
    /// The pod workers are gone because the agent is stopping.
    #[error("pod {pod} was not terminated: the pod workers have shut down")]
    WorkersGone {
        /// `namespace/name`.
        pod: Arc<str>,
    },
}

/// The pods that run on the node, as far as is known at one moment.
///
/// "Nothing runs" is `known` and empty. Without `known`, the listed pods may run, and there may be more.
#[derive(Clone, Debug, Default)]
pub struct RunningPods {
    /// The pods that occupy a place on the node, including those that are terminating, in no particular order.
    pub pods: Vec<Pod>,
    /// Pods that run and are in no source: the manifest is broken or unreachable, or they are left
    /// over from a pod that is gone. In no particular order.
    pub runtime_only: Vec<RuntimePod>,
    /// Whether the runtime has been listed since the agent started.
    pub known: bool,
}

// === impl RunningPods ===

impl RunningPods {
    /// A node that is known to run these pods and nothing else.
    pub fn known(pods: Vec<Pod>) -> Self {
        Self { pods, runtime_only: Vec::new(), known: true }
    }

    /// All running pods, also those that only the runtime knows ([`Pod::of_runtime`]), by namespace and name.
    pub fn into_pods(self) -> Vec<Pod> {
        let mut pods = self.pods;
        pods.extend(self.runtime_only.iter().map(Pod::of_runtime));
        pods.sort_unstable_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        pods
    }

    /// Whether it is known that nothing runs.
    pub fn is_known_empty(&self) -> bool {
        self.known && self.pods.is_empty() && self.runtime_only.is_empty()
    }
}

/// Terminates pods. In a node, the pod workers implement it; controllers work with any implementation.
pub trait PodKiller: Send + Sync + 'static {
    /// Terminates `pod` and resolves when none of its containers runs and none will start.
    ///
    /// Works for a pod in any state (not started, running, stopping, gone), and for one that only the runtime knows
    /// ([`Pod::of_runtime`]). Dropping the future abandons the wait, not the kill. Before its first poll nothing is
    /// requested: see [`begin_kill`](Self::begin_kill).
    ///
    /// # Errors
    /// [`KillError::Deadline`] when containers still run at the deadline; the kill continues. [`KillError::Refused`]
    /// when the pod runs on.
    fn kill_pod(
        &self,
        pod: Pod,
        request: KillRequest,
    ) -> impl Future<Output = Result<Arc<PodStopped>, KillError>> + Send;

    /// Requests the same without waiting for it: when this returns, the pod is terminating, unless that is refused.
    fn begin_kill(&self, pod: Pod, request: KillRequest) {
        // The first poll makes the request; dropping the future after that only abandons the wait.
        let _ = self.kill_pod(pod, request).now_or_never();
    }

    /// The pods that run on the node now, and whether the list is complete.
    fn running(&self) -> RunningPods;

    /// A counter that changes when a pod is newly known to run. A receiver that never changes is
    /// right where everything is known from the start.
    fn more_known(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    /// The pods that were not requested to terminate, among which a controller chooses. With one that was, eviction would
    /// request the same pod again and again, and no other. Pods in no source are not included.
    fn non_terminating_pods(&self) -> Vec<Pod>;

    /// Waits until a stopped pod holds nothing on the host any more (sandbox, cgroup, mounts), at most until `deadline`.
    ///
    /// Returns the mount points that remain at that time; an empty list means released. If the
    /// mounts cannot be determined, the only entry is `unknown: ` and the cause. An unknown pod
    /// holds nothing. Dropping the future abandons the wait, not the unmounting.
    fn volumes_released(
        &self,
        _uid: &PodUid,
        _deadline: Instant,
    ) -> impl Future<Output = Vec<String>> + Send {
        async { Vec::new() }
    }
}

/// What is known of the end of single pods. Implemented by the pod workers.
pub trait PodStateProvider: Send + Sync + 'static {
    /// The first requester of this pod's termination; `None` while it is not terminating, or if that is not known.
    fn prior_reason(&self, _uid: &PodUid) -> Option<KillReason> {
        None
    }

    /// Why the pod would not be terminated for this reason, so that the request is refused; `None` if it would. Never
    /// blocks.
    fn refuses_stop(&self, _uid: &PodUid, _reason: KillReason) -> Option<Arc<str>> {
        None
    }

    /// What is left of the grace period of a terminating pod; `None` while it is not terminating, or if that is not known.
    fn grace_left(&self, _uid: &PodUid) -> Option<Duration> {
        None
    }

    /// Whether the pod, as it was started, would keep running through a soft-reboot of the node.
    fn survives_soft_reboot(&self, _uid: &PodUid) -> bool {
        false
    }

    /// How a pod terminated if no agent saw it, according to the runtime; `None` if it runs or that is unknown.
    fn unseen_end(&self, _uid: &PodUid) -> impl Future<Output = Option<PodStopped>> + Send {
        async { None }
    }
}

/// Hears that the node goes down, and makes its pods ready for that.
pub trait NodeEndListener: Send + Sync + 'static {
    /// Announces to all pods, including later ones, that they are about to terminate. A second call with the same
    /// `reason` replaces the first; [`lame_duck`](Self::lame_duck) with `false` withdraws it. Returns at once.
    fn announce(&self, _reason: GateReason, _ending: NodeEnding) {}

    /// Makes every pod not ready (`true`), so that load balancers turn away before the first SIGTERM, or withdraws that
    /// for `reason` (`false`). Readiness follows the probes again once the last reason is withdrawn. Returns at once.
    fn lame_duck(&self, _reason: GateReason, _on: bool) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeKiller, pod};

    #[tokio::test(start_paused = true)]
    async fn a_kill_that_is_begun_is_asked_for_at_once_and_is_no_choice_for_others() {
        let killer = FakeKiller::with([pod("a"), pod("b")]);
        killer.takes(pod("a").uid(), Duration::from_secs(1));
        killer.begin_kill(pod("a"), KillRequest::new(KillReason::Preemption));
        assert_eq!(killer.calls().len(), 1);
        let staying: Vec<PodUid> =
            killer.non_terminating_pods().iter().map(|p| p.uid().clone()).collect();
        assert_eq!(staying, [pod("b").uid().clone()]);
        assert_eq!(killer.running().pods.len(), 2, "it still holds its place");
    }
}
