//! One typed event per decision.
//!
//! The same value gives the log line, the metric, the Kubernetes Event and the line in the report,
//! so they cannot tell different stories.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::{KillReason, PluginName, PodEvent, PodUid, ResourceName, StatusOverride};

/// Takes events. Must not block: it is called on the kill path.
pub trait Recorder: Send + Sync + 'static {
    /// Takes one event.
    fn record(&self, event: &Event);
}

/// Takes events and does nothing with them.
impl Recorder for () {
    fn record(&self, _: &Event) {}
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
    /// A running pod asks for something that is not done, since an update or since the agent is another
    /// one. It goes on without that.
    FieldsIgnored {
        /// Which pod.
        pod: PodLabel,
        /// The fields, with what is not done, for people.
        message: Arc<str>,
    },
    /// A pod that the node cannot do without does not fit yet. It starts when there is room.
    PodHeld {
        /// Which pod.
        pod: PodLabel,
        /// What it waits for, for people.
        message: Arc<str>,
    },
    /// Pods were chosen to end so that another fits, and are asked to.
    PreemptionStarted {
        /// The pod that needs the room.
        pod: PodLabel,
        /// Who ends for it, in the order in which they were chosen.
        victims: Vec<PodLabel>,
        /// The first resource that is lacking: the label of the kubelet's metric.
        signal: Option<ResourceName>,
        /// How much is lacking of what, and who was passed over, for people.
        message: Arc<str>,
    },
    /// A pod that was chosen so has ended.
    PodPreempted {
        /// Which pod.
        pod: PodLabel,
        /// The pod that needed the room.
        by: PodLabel,
        /// The first resource that was lacking.
        signal: Option<ResourceName>,
        /// The same words as when it was chosen.
        message: Arc<str>,
    },
    /// A resource of the node runs out: what can be given back is, or a pod is ended.
    EvictionThresholdMet {
        /// The signal: `memory.available`, …
        signal: &'static str,
        /// The resource: `memory`, `ephemeral-storage`, `inodes` or `pids`.
        resource: &'static str,
        /// How old the figures were when it was decided.
        stats_age: Option<Duration>,
        /// How long it has been short, its grace included.
        short_for: Duration,
    },
    /// A pod was chosen to end for that, or because it uses more of the disks than it may, and is
    /// asked to.
    EvictionStarted {
        /// Which pod.
        pod: PodLabel,
        /// The signal, which is also the label of the kubelet's metric.
        signal: &'static str,
        /// The pod's status message.
        message: Arc<str>,
        /// Annotations of the Kubernetes Event.
        annotations: Vec<(&'static str, String)>,
        /// The time between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// A pod that was chosen so has ended.
    PodEvicted {
        /// Which pod.
        pod: PodLabel,
        /// The signal.
        signal: &'static str,
        /// From the request to the end.
        took: Duration,
    },
    /// A pod that was chosen so could not be ended in time.
    EvictionFailed {
        /// Which pod.
        pod: PodLabel,
        /// The signal.
        signal: &'static str,
        /// Why.
        error: String,
    },
    /// A pod would have been chosen so, but nothing is touched: eviction only watches.
    EvictionShadowed {
        /// Which pod.
        pod: PodLabel,
        /// The signal.
        signal: &'static str,
        /// What the pod's status message would have been.
        message: Arc<str>,
    },
    /// A plug-in chose a pod to end, which is asked to.
    PluginChose {
        /// Which pod.
        pod: PodLabel,
        /// The plug-in.
        by: PluginName,
        /// The pod's status reason.
        reason: Arc<str>,
        /// The pod's status message.
        message: Arc<str>,
    },
    /// A plug-in's work at a point of a shutdown has ended.
    PluginWorked {
        /// The plug-in.
        by: PluginName,
        /// What it did.
        what: &'static str,
        /// How long it took.
        took: Duration,
        /// Why it was not done, if it was not.
        error: Option<Arc<str>>,
    },
    /// A pressure condition of the node changed.
    NodePressure {
        /// `MemoryPressure`, `DiskPressure` or `PIDPressure`.
        condition: &'static str,
        /// Whether it holds now.
        on: bool,
        /// The kubelet's word for it: `NodeHasInsufficientMemory`, …
        reason: &'static str,
    },
    /// A pod that came back under the UID of one that has ended was started again.
    PodRestarted {
        /// Which pod.
        pod: PodLabel,
        /// The agent itself brought it in, from a manifest.
        is_static: bool,
    },
    /// The runtime runs a pod that no source wants and no worker knows; it is being ended.
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
        /// What the pod's status will say of it.
        status: Option<StatusOverride>,
    },
    /// No container of the pod runs any more and none will start.
    PodStopped {
        /// Which pod.
        pod: PodLabel,
        /// From the first request to the last container's exit.
        took: Duration,
        /// Containers that needed SIGKILL.
        forced: Vec<Arc<str>>,
        /// What people should know of how it was ended.
        remark: Option<Arc<str>>,
    },
    /// Something happened to a pod's containers that was not decided: only a Kubernetes Event tells it.
    Pod(PodEvent),
    /// A call to the runtime failed; it will be tried again.
    SyncFailed {
        /// Which pod.
        pod: PodLabel,
        /// The error with its sources.
        error: String,
        /// When it will be tried again.
        again_in: Duration,
    },
    /// A pod was active for longer than its `activeDeadlineSeconds`. It is being ended.
    DeadlineExceeded {
        /// Which pod.
        pod: PodLabel,
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
    /// A shutdown that an earlier agent was in the middle of is gone on with.
    ShutdownResumed {
        /// Since the signal.
        after: Duration,
        /// Pods that are still there.
        pods: usize,
    },
    /// A group of pods was asked to end.
    GroupStarted {
        /// The group's priority.
        priority: i32,
        /// Its name for people, if it has one: `ordinary pods`.
        name: Option<Cow<'static, str>>,
        /// Its pods.
        pods: usize,
        /// The group's time.
        allowed: Duration,
    },
    /// A group's containers are gone, or its time is over.
    GroupEnded {
        /// The group's priority.
        priority: i32,
        /// Its name for people, if it has one: `ordinary pods`.
        name: Option<Cow<'static, str>>,
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
    /// How the node went down before this boot; told once in a boot.
    LastBoot {
        /// Whether every pod could end by itself; none when that is not known.
        graceful: Option<bool>,
        /// How it went, how long it took and who was cut, in one line for people.
        text: Arc<str>,
    },
    /// The pods are ended, or the time is over.
    ShutdownEnded {
        /// From the signal to the release of the lock, or to the end of the run where none was held.
        took: Duration,
        /// Pods that still run.
        left: usize,
        /// The login manager's lock was given back: the node may go down. After a notice it is held
        /// until the login manager announces the shutdown.
        released: bool,
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

impl PodLabel {
    /// How the kubelet's messages name the pod: `name_namespace(uid)`.
    pub fn kubelet_title(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }
}

impl std::fmt::Display for PodLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
