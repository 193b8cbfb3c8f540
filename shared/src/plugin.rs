//! Controllers of others that a node runs beside its own.

mod metrics;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::watch;

use crate::status::{StatusEntry, StatusStore};
use crate::{
    AdmitHandler, Event, GateReasons, KillError, KillReason, KillRequest, Pod, PodKiller,
    PodStopped, PodUid, Recorder, ShutdownWork, StatusOverride, VictimLock, WallClock, WallTime,
};

pub use metrics::{Counter, Gauge, Listed, Measured, PluginError, PluginMetric};

/// A controller that a node runs beside its own.
///
/// It chooses pods to end through the [`NodeHandle`], and what it does is seen where the node's own
/// controllers are: in the log, the metrics, the Kubernetes Events, the pods' statuses and `winddown
/// status`, under its [name](Self::name).
pub trait Plugin: Send + 'static {
    /// What it is called wherever people and programs read of it. Two plug-ins of one node have two names.
    fn name(&self) -> PluginName;

    /// What it asks of a new pod, if anything. It is asked after the gate that a shutdown shuts, and
    /// before anything is ended for the pod. When its answer changes, call [`NodeHandle::ask_again`].
    fn admission(&self) -> Option<Arc<dyn AdmitHandler>> {
        None
    }

    /// What it counts, which is shown among the node's metrics. A name begins with the plug-in's own,
    /// hyphens as underscores: `max_age_looks` of `max-age`. The plug-in keeps what these are made of.
    fn metrics(&self) -> Vec<PluginMetric> {
        Vec::new()
    }

    /// What it does at certain points of a shutdown. Asked once, before any pod is known.
    fn at_shutdown(&self, _node: &NodeHandle) -> Vec<ShutdownWork> {
        Vec::new()
    }

    /// Does its work. Called once, when the pods that ran before the agent did are known; dropped when
    /// the agent ends. The node goes on without a plug-in whose future resolves; one that panics takes
    /// the agent down, and the service manager starts both again.
    fn run(self: Box<Self>, _node: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The name of a [`Plugin`]: 1 to 32 lower-case letters, digits and hyphens, a letter first.
///
/// It is a label of metrics and a word in reasons, so it is fixed when the program is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginName(&'static str);

/// What a plug-in sees of its node, and how it ends pods. Clones are of one plug-in.
#[derive(Clone)]
pub struct NodeHandle(Arc<Inner>);

struct Inner {
    name: PluginName,
    killer: Arc<dyn Killer>,
    victims: VictimLock,
    gate: watch::Receiver<GateReasons>,
    statuses: StatusStore,
    recorder: Arc<dyn Recorder>,
    wall: WallClock,
    notes: PluginNotes,
    ask_again: watch::Sender<()>,
}

/// A pod that a plug-in may choose.
#[derive(Clone, Debug)]
pub struct NodePod {
    /// The pod.
    pub pod: Pod,
    /// When it started on this node; none while it has not.
    pub started_at: Option<WallTime>,
}

/// How a plug-in wants a pod to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnding {
    /// `status.reason` of the pod and the reason of its Kubernetes Event, for example `TooOld`.
    pub reason: Arc<str>,
    /// `status.message` and the Event's text: what was found, with its numbers.
    pub message: Arc<str>,
    /// The time between SIGTERM and SIGKILL, at least a second. None takes the pod's own.
    pub grace: Option<Duration>,
}

/// What each plug-in said last of itself. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct PluginNotes(Arc<watch::Sender<Vec<PluginNote>>>);

/// What one plug-in said last of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginNote {
    /// The plug-in.
    pub name: PluginName,
    /// One line for people.
    pub line: Arc<str>,
}

/// A pod that was asked to end.
#[must_use = "the pod ends without it as well; await it to learn how"]
pub struct Ending(BoxFuture<'static, Result<Arc<PodStopped>, KillError>>);

/// What [`NodeHandle`] needs of a [`PodKiller`], whichever it is.
trait Killer: Send + Sync {
    fn kill(
        &self,
        pod: Pod,
        request: KillRequest,
    ) -> BoxFuture<'static, Result<Arc<PodStopped>, KillError>>;

    fn staying(&self) -> Vec<Pod>;
}

/// What a [`NodeHandle`] is made of.
pub struct NodeHandleParts<K> {
    /// The pod workers.
    pub killer: Arc<K>,
    /// Shared by all that choose pods to end.
    pub victims: VictimLock,
    /// What keeps new pods out: while there is a reason, no plug-in ends a pod.
    pub gate: watch::Receiver<GateReasons>,
    /// The pods' statuses.
    pub statuses: StatusStore,
    /// Takes what plug-ins decide.
    pub recorder: Arc<dyn Recorder>,
    /// Tells the time.
    pub wall: WallClock,
    /// Takes what plug-ins say of themselves.
    pub notes: PluginNotes,
}

// === impl PluginName ===

impl PluginName {
    /// The name of a plug-in, for a constant: `const NAME: PluginName = PluginName::of("max-age");`
    ///
    /// # Panics
    /// The name is not one. In a constant that is an error of the compiler.
    #[must_use]
    pub const fn of(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        assert!(
            !bytes.is_empty() && bytes.len() <= 32 && bytes[0].is_ascii_lowercase(),
            "a plug-in's name has 1 to 32 characters, the first a lower-case letter"
        );
        let mut at = 0;
        while at < bytes.len() {
            assert!(
                bytes[at].is_ascii_lowercase() || bytes[at].is_ascii_digit() || bytes[at] == b'-',
                "a plug-in's name is of lower-case letters, digits and hyphens"
            );
            at += 1;
        }
        Self(name)
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

// === impl NodeHandle ===

impl NodeHandle {
    /// The handle of the plug-in `name`.
    pub fn new<K: PodKiller>(name: PluginName, parts: NodeHandleParts<K>) -> Self {
        let NodeHandleParts { killer, victims, gate, statuses, recorder, wall, notes } = parts;
        let killer: Arc<dyn Killer> = Arc::new(killer);
        let ask_again = watch::Sender::new(());
        Self(Arc::new(Inner {
            name,
            killer,
            victims,
            gate,
            statuses,
            recorder,
            wall,
            notes,
            ask_again,
        }))
    }

    /// The pods among which it may choose: those that have not been asked to end.
    #[must_use]
    pub fn pods(&self) -> Vec<NodePod> {
        let of_node = |pod: Pod| {
            let status = self.0.statuses.get(pod.uid());
            let started_at = status.and_then(|status| Some(status.start_time.as_ref()?.0));
            NodePod { pod, started_at }
        };
        self.0.killer.staying().into_iter().map(of_node).collect()
    }

    /// Every pod that something is known of, ending and refused ones too, with its status; in no order.
    #[must_use]
    pub fn statuses(&self) -> Vec<StatusEntry> {
        self.0.statuses.all()
    }

    /// The status of one pod.
    #[must_use]
    pub fn status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.0.statuses.get(uid)
    }

    /// Changes when the status of a pod does: one that started, one that ended. Shows at once what has
    /// changed since the last look.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.statuses.changes()
    }

    /// Why the node takes no new pods, and every change of it: it goes down, or is drained. While there
    /// is a reason, no plug-in ends a pod.
    #[must_use]
    pub fn gate(&self) -> watch::Receiver<GateReasons> {
        self.0.gate.clone()
    }

    /// The node's clock.
    #[must_use]
    pub fn now(&self) -> WallTime {
        self.0.wall.now()
    }

    /// Lets `choose` pick a pod and asks that pod to end, in one step: no other controller chooses
    /// meanwhile, and none is asked once a shutdown or a drain has begun.
    ///
    /// None if `choose` picked none, or if the node goes down, in which case it is not called. `choose`
    /// must answer at once, and must neither call `end` again nor look at the gate.
    pub fn end(
        &self,
        choose: impl FnOnce(&[NodePod]) -> Option<(Pod, PodEnding)>,
    ) -> Option<Ending> {
        self.0.victims.choose(|| {
            // Held until the pod has been asked: a shutdown that shuts the gate waits that long.
            let gate = self.0.gate.borrow();
            if !gate.is_empty() {
                return None;
            }
            let (pod, ending) = choose(&self.pods())?;
            let PodEnding { reason, message, grace } = ending;
            self.0.recorder.record(&Event::PluginChose {
                pod: pod.label().clone(),
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
            let mut gone = self.0.killer.kill(pod, request);
            // The first poll asks.
            Some(Ending(match (&mut gone).now_or_never() {
                Some(result) => Box::pin(std::future::ready(result)),
                None => gone,
            }))
        })
    }

    /// Has admission ask again about every refused pod that is [retryable](crate::Rejection::retryable), at once.
    ///
    /// A plug-in calls it when its [`admission`](Plugin::admission) would answer otherwise than before. While
    /// the gate is shut, the pods are asked about when it opens.
    pub fn ask_again(&self) {
        self.0.ask_again.send_replace(());
    }

    /// Changes with each call of [`ask_again`](Self::ask_again), for the node that made this handle.
    #[must_use]
    pub fn asked_again(&self) -> watch::Receiver<()> {
        self.0.ask_again.subscribe()
    }

    /// What `winddown status` shows of this plug-in from now on, in one line. An empty line shows nothing.
    pub fn say(&self, line: impl Into<Arc<str>>) {
        self.0.notes.set(self.0.name, line.into());
    }
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeHandle").field(&self.0.name).finish()
    }
}

impl<K: PodKiller> Killer for Arc<K> {
    fn kill(
        &self,
        pod: Pod,
        request: KillRequest,
    ) -> BoxFuture<'static, Result<Arc<PodStopped>, KillError>> {
        let killer = Self::clone(self);
        Box::pin(async move { killer.kill_pod(pod, request).await })
    }

    fn staying(&self) -> Vec<Pod> {
        self.staying_pods()
    }
}

// === impl PluginNotes ===

impl PluginNotes {
    /// What each plug-in said last, in the order of their names.
    #[must_use]
    pub fn all(&self) -> Vec<PluginNote> {
        self.0.borrow().clone()
    }

    /// Changes with each of them.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Vec<PluginNote>> {
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
                Err(at) => notes.insert(at, PluginNote { name, line }),
            }
            true
        });
    }
}

// === impl Ending ===

impl Ending {
    /// Waits until the pod is gone. Dropping the future abandons the wait, not the kill.
    ///
    /// # Errors
    /// As [`PodKiller::kill_pod`].
    pub async fn gone(self) -> Result<Arc<PodStopped>, KillError> {
        self.0.await
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ending")
    }
}

#[cfg(test)]
mod tests;
