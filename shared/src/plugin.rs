//! Third-party controllers that a node runs in addition to its own.

mod metrics;
pub(crate) mod reviews;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::watch;

use crate::status::{StatusEntry, StatusStore};
use crate::{
    AdmitHandler, ContainedRecorder, Event, GateReasons, KillError, KillReason, KillRequest,
    PluginName, Pod, PodKiller, PodStateProvider, PodStopped, PodUid, Recorder, ShutdownWork,
    StatusOverride, VictimLock, WallClock, WallTime,
};

pub use metrics::{Counter, Gauge, MetricValue, PluginMetric};

/// A controller that a node runs in addition to its own.
///
/// It chooses pods to terminate through the [`NodeHandle`], and its actions are visible where those of the node's own
/// controllers are, under its [name](Self::name): in the log, the metrics, the Events, the pods' statuses, `winddown status`.
pub trait Plugin: Send + 'static {
    /// Its name wherever people and programs see it. Names of plug-ins are unique within a node.
    fn name(&self) -> PluginName;

    /// Its admission check for new pods, if any. It runs after the gate that a shutdown closes, and before anything is
    /// preempted for the pod. When its result changes, call [`NodeHandle::retry_rejected`].
    fn admission(&self) -> Option<Arc<dyn AdmitHandler>> {
        None
    }

    /// Its metrics, which are shown among the node's. A name begins with the plug-in's own, hyphens as underscores:
    /// `max_age_looks` of `max-age`. The plug-in keeps the counters and gauges themselves.
    fn metrics(&self) -> Vec<PluginMetric> {
        Vec::new()
    }

    /// Its work at certain points of a shutdown. Called once, before any pod is known.
    fn at_shutdown(&self, _node: &NodeHandle) -> Vec<ShutdownWork> {
        Vec::new()
    }

    /// Runs the plug-in. Called once, when the pods that ran before the agent did are known;
    /// dropped when the agent stops. The node carries on without a plug-in whose future resolves;
    /// one that panics is a failure of the process ([`critical`](crate::critical)), which is to exit and be restarted.
    fn run(self: Box<Self>, _node: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A plug-in's view of its node, and its way to terminate pods. Clones belong to the same plug-in.
#[derive(Clone)]
pub struct NodeHandle(Arc<HandleShared>);

struct HandleShared {
    name: PluginName,
    parts: NodeHandleParts<dyn Killer>,
    rejected_retries: watch::Sender<()>,
}

/// A pod that a plug-in may choose.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodePod {
    /// The pod.
    pub pod: Pod,
    /// When it started on this node; `None` if it has not.
    pub started_at: Option<WallTime>,
}

/// How a plug-in wants a pod to terminate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TerminationSpec {
    /// `status.reason` of the pod and the reason of its Kubernetes Event, for example `TooOld`.
    pub reason: Arc<str>,
    /// `status.message` and the text of the Event: what was found, with its numbers.
    pub message: Arc<str>,
    /// The time between SIGTERM and SIGKILL, at least a second. `None` uses the pod's own grace period.
    pub grace: Option<Duration>,
}

/// The last status line of each plug-in. Clones share the same lines.
#[derive(Clone, Debug, Default)]
pub struct PluginStatusLines(Arc<watch::Sender<Vec<PluginStatusLine>>>);

/// The last status line of one plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PluginStatusLine {
    /// The plug-in.
    pub name: PluginName,
    /// One line for people.
    pub line: Arc<str>,
}

/// A pod that was requested to terminate.
#[must_use = "the pod terminates without it as well; await it to learn how"]
pub struct KillHandle(BoxFuture<'static, Result<Arc<PodStopped>, KillError>>);

/// The object-safe part of [`PodKiller`] that [`NodeHandle`] needs.
trait Killer: Send + Sync {
    fn kill(
        &self,
        pod: Pod,
        request: KillRequest,
    ) -> BoxFuture<'static, Result<Arc<PodStopped>, KillError>>;

    /// The pods that can be terminated for this reason.
    fn choices(&self, reason: KillReason) -> Vec<Pod>;
}

/// The parts of a [`NodeHandle`].
pub struct NodeHandleParts<K: ?Sized> {
    /// The pod workers.
    pub killer: Arc<K>,
    /// The lock shared by all controllers that choose pods to terminate.
    pub victims: VictimLock,
    /// The reasons for which new pods are refused: while there is one, no plug-in terminates a pod.
    pub gate: watch::Receiver<GateReasons>,
    /// The pods' statuses.
    pub statuses: StatusStore,
    /// The recorder of what plug-ins decide.
    pub recorder: Arc<dyn Recorder>,
    /// The clock.
    pub wall: WallClock,
    /// The status lines of plug-ins.
    pub notes: PluginStatusLines,
}

// === impl TerminationSpec ===

impl TerminationSpec {
    /// A termination with the pod's own grace period.
    pub fn new(reason: impl Into<Arc<str>>, message: impl Into<Arc<str>>) -> Self {
        Self { reason: reason.into(), message: message.into(), grace: None }
    }

    /// Sets [`grace`](Self::grace).
    #[must_use]
    pub fn with_grace(self, grace: impl Into<Option<Duration>>) -> Self {
        Self { grace: grace.into(), ..self }
    }
}

// === impl NodeHandle ===

impl NodeHandle {
    /// Creates the handle of the plug-in `name`.
    pub fn new<K>(name: PluginName, parts: NodeHandleParts<K>) -> Self
    where
        K: PodKiller + PodStateProvider,
    {
        let NodeHandleParts { killer, victims, gate, statuses, recorder, wall, notes } = parts;
        let killer: Arc<dyn Killer> = Arc::new(killer);
        let recorder = Arc::new(ContainedRecorder::new(recorder));
        let parts = NodeHandleParts { killer, victims, gate, statuses, recorder, wall, notes };
        Self(Arc::new(HandleShared { name, parts, rejected_retries: watch::Sender::new(()) }))
    }

    /// The pods among which it may choose: those that were not requested to terminate, and that the runtime would stop.
    #[must_use]
    pub fn pods(&self) -> Vec<NodePod> {
        let of_node = |pod: Pod| {
            let status = self.0.parts.statuses.get(pod.uid());
            let started_at = status.and_then(|status| Some(status.start_time.as_ref()?.0));
            NodePod { pod, started_at }
        };
        let reason = KillReason::Plugin(self.0.name);
        self.0.parts.killer.choices(reason).into_iter().map(of_node).collect()
    }

    /// The status of every known pod, including terminating and refused ones, in no particular order.
    #[must_use]
    pub fn statuses(&self) -> Vec<StatusEntry> {
        self.0.parts.statuses.all()
    }

    /// The status of one pod.
    #[must_use]
    pub fn status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.0.parts.statuses.get(uid)
    }

    /// A counter that changes when the status of a pod does, for example when it started or
    /// terminated. A receiver sees changes since its last check at once.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.parts.statuses.changes()
    }

    /// The reasons for which the node takes no new pods: it goes down, or is drained. While there
    /// is one, no plug-in terminates a pod.
    #[must_use]
    pub fn gate(&self) -> watch::Receiver<GateReasons> {
        self.0.parts.gate.clone()
    }

    /// The node's clock.
    #[must_use]
    pub fn now(&self) -> WallTime {
        self.0.parts.wall.now()
    }

    /// Lets `choose` pick a pod and requests its termination, in one step: no other controller
    /// chooses meanwhile, and no termination is requested once a shutdown or a drain has begun.
    ///
    /// `None` if `choose` picked none, or if the node goes down, in which case it is not called.
    /// `choose` must return at once, and must neither call `terminate` again nor read the gate.
    pub fn terminate(
        &self,
        choose: impl FnOnce(&[NodePod]) -> Option<(Pod, TerminationSpec)>,
    ) -> Option<KillHandle> {
        self.0.parts.victims.choose(|| {
            // Held until the request is made: a shutdown that closes the gate waits that long.
            let gate = self.0.parts.gate.borrow();
            if !gate.is_empty() {
                return None;
            }
            let (pod, ending) = choose(&self.pods())?;
            let TerminationSpec { reason, message, grace } = ending;
            self.0.parts.recorder.record(&Event::PluginChose {
                pod: pod.pod_ref().clone(),
                by: self.0.name,
                reason: Arc::clone(&reason),
                message: Arc::clone(&message),
            });
            let status = StatusOverride::failed(reason, message, None);
            let request = KillRequest {
                grace,
                status: Some(status),
                ..KillRequest::new(KillReason::Plugin(self.0.name))
            };
            let mut gone = self.0.parts.killer.kill(pod, request);
            // The first poll makes the request.
            Some(KillHandle(match (&mut gone).now_or_never() {
                Some(result) => Box::pin(std::future::ready(result)),
                None => gone,
            }))
        })
    }

    /// Has admission try every refused pod that is [retryable](crate::Rejection::retryable) again, at once.
    ///
    /// A plug-in calls it when its [`admission`](Plugin::admission) would decide differently than
    /// before. While the gate is closed, the pods are tried when it opens.
    pub fn retry_rejected(&self) {
        self.0.rejected_retries.send_replace(());
    }

    /// Changes with each call of [`retry_rejected`](Self::retry_rejected), for the node that created this handle.
    #[must_use]
    pub fn rejected_retries(&self) -> watch::Receiver<()> {
        self.0.rejected_retries.subscribe()
    }

    /// Sets the line that `winddown status` shows for this plug-in. An empty line shows nothing.
    pub fn set_status_line(&self, line: impl Into<Arc<str>>) {
        self.0.parts.notes.set(self.0.name, line.into());
    }
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeHandle").field(&self.0.name).finish()
    }
}

impl<K: PodKiller + PodStateProvider> Killer for Arc<K> {
    fn kill(
        &self,
        pod: Pod,
        request: KillRequest,
    ) -> BoxFuture<'static, Result<Arc<PodStopped>, KillError>> {
        let killer = Self::clone(self);
        Box::pin(async move { killer.kill_pod(pod, request).await })
    }

    fn choices(&self, reason: KillReason) -> Vec<Pod> {
        let mut pods = self.non_terminating_pods();
        pods.retain(|pod| self.refuses_stop(pod.uid(), reason).is_none());
        pods
    }
}

// === impl PluginStatusLines ===

impl PluginStatusLines {
    /// The last line of each plug-in, sorted by name.
    #[must_use]
    pub fn all(&self) -> Vec<PluginStatusLine> {
        self.0.borrow().clone()
    }

    /// A receiver of the lines and their changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Vec<PluginStatusLine>> {
        self.0.subscribe()
    }

    fn set(&self, name: PluginName, line: Arc<str>) {
        self.0.send_if_modified(|notes| {
            let place = notes.binary_search_by_key(&name, |note| note.name);
            match place {
                Ok(at) if line.is_empty() => drop(notes.remove(at)),
                Ok(at) if notes[at].line == line => return false,
                Ok(at) => notes[at].line = line,
                Err(_) if line.is_empty() => return false,
                Err(at) => notes.insert(at, PluginStatusLine { name, line }),
            }
            true
        });
    }
}

// === impl KillHandle ===

impl KillHandle {
    /// Waits until the pod is gone. Dropping the future abandons the wait, not the kill.
    ///
    /// # Errors
    /// As [`PodKiller::kill_pod`].
    pub async fn wait(self) -> Result<Arc<PodStopped>, KillError> {
        self.0.await
    }
}

impl fmt::Debug for KillHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KillHandle")
    }
}

#[cfg(test)]
mod tests;
