//! One typed event per decision.
//!
//! The same value yields the log line, the metric, the Kubernetes Event and the line in the report, so they cannot
//! contradict each other. A new kind of decision is a variant of [`Event`].

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::critical::panic_text;
use crate::{
    ContainerExit, EndCause, KillReason, PluginName, PodEvent, PodRef, ResourceName, StatusOverride,
};

pub(crate) mod of_pod;
pub(crate) mod pressure_condition;

/// Receives events. Must not block: it is called on the kill path.
pub trait Recorder: Send + Sync + 'static {
    /// Receives one event.
    fn record(&self, event: &Event);
}

/// Discards all events.
impl Recorder for () {
    fn record(&self, _: &Event) {}
}

/// A recorder whose panics are contained: it is code of the embedder, and called by tasks that must go on.
#[derive(Clone)]
pub struct ContainedRecorder(Arc<dyn Recorder>);

impl ContainedRecorder {
    /// Wraps `recorder`. Whatever keeps a recorder to call it keeps it so.
    pub fn new(recorder: Arc<dyn Recorder>) -> Self {
        Self(recorder)
    }
}

impl Recorder for ContainedRecorder {
    fn record(&self, event: &Event) {
        contained(event, || self.0.record(event));
    }
}

/// The result of `call`, which runs code of the embedder; `None` if that panics. `about` is logged then.
pub(crate) fn contained<T>(about: &dyn fmt::Debug, call: impl FnOnce() -> T) -> Option<T> {
    let called = catch_unwind(AssertUnwindSafe(call));
    let log = |panic: Box<dyn Any + Send>| {
        let text = panic_text(panic.as_ref());
        tracing::error!(?about, "bug: what was called for this panicked: {text}");
    };
    called.map_err(log).ok()
}

/// A decision or an incident that an operator may want to know about.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A pod was admitted and is handed to its worker.
    PodAdmitted {
        /// The pod.
        pod: PodRef,
    },
    /// A pod was refused.
    PodRejected {
        /// The pod.
        pod: PodRef,
        /// `status.reason`, for example `NodeShutdown`.
        reason: Arc<str>,
        /// For people, without the prefix used in the status.
        message: Arc<str>,
    },
    /// A running pod asks, since an update or a restart of the agent, for what is not supported. It runs without that.
    FieldsIgnored {
        /// The pod.
        pod: PodRef,
        /// The fields and what is not supported, for people.
        message: Arc<str>,
    },
    /// A critical pod does not fit yet. It starts when there is room.
    PodWaiting {
        /// The pod.
        pod: PodRef,
        /// What it waits for, for people.
        message: Arc<str>,
    },
    /// Pods were chosen to be preempted for another pod, and are requested to terminate.
    PreemptionStarted {
        /// The pod that needs the room.
        pod: PodRef,
        /// The pods that are preempted for it, in the order in which they were chosen.
        victims: Vec<PodRef>,
        /// The first resource that is short: the label of the kubelet's metric.
        signal: Option<ResourceName>,
        /// How much of which resources is short, and which pods were passed over, for people.
        message: Arc<str>,
    },
    /// A preempted pod has terminated.
    PodPreempted {
        /// The pod.
        pod: PodRef,
        /// The pod that needed the room.
        by: PodRef,
        /// The first resource that was short.
        signal: Option<ResourceName>,
        /// The same message as when it was chosen.
        message: Arc<str>,
    },
    /// A resource of the node is running out: it is reclaimed, or a pod is evicted.
    EvictionThresholdMet {
        /// The signal: `memory.available`, …
        signal: &'static str,
        /// The resource: `memory`, `ephemeral-storage`, `inodes` or `pids`.
        resource: &'static str,
        /// The age of the measurements at the time of the decision.
        stats_age: Option<Duration>,
        /// How long the resource has been short, grace period included.
        short_for: Duration,
    },
    /// A pod was chosen to be evicted, for a shortage or its disk limits, and is requested to terminate. Once per eviction.
    EvictionStarted {
        /// The pod.
        pod: PodRef,
        /// The signal, which is also the label of the kubelet's metric.
        signal: &'static str,
        /// The pod's status message.
        message: Arc<str>,
        /// Annotations of the Kubernetes Event.
        annotations: Vec<(&'static str, String)>,
        /// The time between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// An evicted pod has terminated.
    PodEvicted {
        /// The pod.
        pod: PodRef,
        /// The signal.
        signal: &'static str,
        /// From the request to the termination.
        took: Duration,
    },
    /// A pod chosen for eviction could not be terminated in time.
    EvictionFailed {
        /// The pod.
        pod: PodRef,
        /// The signal.
        signal: &'static str,
        /// The cause.
        error: String,
    },
    /// A pod would have been evicted, but eviction runs in shadow mode.
    EvictionShadowed {
        /// The pod.
        pod: PodRef,
        /// The signal.
        signal: &'static str,
        /// What the pod's status message would have been.
        message: Arc<str>,
    },
    /// A plug-in chose a pod, which is requested to terminate.
    PluginChose {
        /// The pod.
        pod: PodRef,
        /// The plug-in.
        by: PluginName,
        /// The pod's status reason.
        reason: Arc<str>,
        /// The pod's status message.
        message: Arc<str>,
    },
    /// The work of a plug-in at a point of a shutdown has ended.
    PluginWorked {
        /// The plug-in.
        by: PluginName,
        /// A description of the work.
        what: &'static str,
        /// How long it took.
        took: Duration,
        /// Why the work failed, if it did.
        error: Option<Arc<str>>,
    },
    /// A pressure condition of the node changed.
    NodePressure {
        /// Its `type`: [`crate::PressureCondition::as_str`].
        condition: &'static str,
        /// Whether it is true now.
        on: bool,
        /// The reason: [`crate::ConditionText::event`].
        reason: &'static str,
    },
    /// A pod that came back under the UID of a terminated one was started again.
    PodRestarted {
        /// The pod.
        pod: PodRef,
        /// Whether the pod comes from a manifest.
        is_static: bool,
    },
    /// The runtime runs a pod that no source wants and no worker knows; it is being stopped.
    OrphanFound {
        /// The pod as the runtime names it.
        pod: PodRef,
    },
    /// A pod was requested to terminate; it is asked once this is recorded. See [`crate::Intake::with_earlier_kills`].
    KillRequested {
        /// The pod.
        pod: PodRef,
        /// Whether it comes from a manifest.
        is_static: bool,
        /// The requester.
        by: KillReason,
        /// The effective grace period, after all shortening.
        grace: Duration,
        /// The status that will be written into the pod.
        status: Option<StatusOverride>,
    },
    /// No container of the pod runs any more, and none will start.
    PodStopped {
        /// The pod.
        pod: PodRef,
        /// The first requester; `None` if the pod completed by itself.
        by: Option<KillReason>,
        /// From the first request, or from when the pod had completed, to the last container's exit.
        took: Duration,
        /// The containers that needed SIGKILL.
        forced: Vec<Arc<str>>,
        /// A remark for people on how it was stopped.
        remark: Option<Arc<str>>,
    },
    /// Something happened to a pod's containers without a decision: only a Kubernetes Event reports it.
    Pod(PodEvent),
    /// A container exited without having been asked to, or because it kept failing its probe.
    ContainerExited {
        /// The pod.
        pod: PodRef,
        /// The container.
        container: Arc<str>,
        /// How it exited.
        exit: Box<ContainerExit>,
        /// The probe or the hook that ended it by failing, if one did.
        failed: Option<EndCause>,
        /// The last line that says why: of what that said, or else of its termination message or output.
        last_line: Option<Arc<str>>,
        /// The delay before it is restarted; `None` if it is not.
        again_in: Option<Duration>,
    },
    /// A call to the runtime failed and will be retried.
    SyncFailed {
        /// The pod.
        pod: PodRef,
        /// Whether it was to stop the pod.
        of_stop: bool,
        /// The error with its sources.
        error: String,
        /// The delay before the retry.
        again_in: Duration,
    },
    /// A pod was active for longer than its `activeDeadlineSeconds`. It is being terminated.
    DeadlineExceeded {
        /// The pod.
        pod: PodRef,
    },
    /// A kill exceeded its deadline and continues.
    ExceededGracePeriod {
        /// The pod.
        pod: PodRef,
    },
    /// A shutdown began: the signal is confirmed and admission is closed.
    ShutdownStarted {
        /// The number of pods that will be terminated.
        pods: usize,
        /// The longest time that the plan needs.
        budget: Duration,
    },
    /// A shutdown that an earlier agent had begun is resumed.
    ShutdownResumed {
        /// The time since the signal.
        after: Duration,
        /// The number of pods that are still present.
        pods: usize,
    },
    /// A group of pods was requested to terminate.
    GroupStarted {
        /// The reason of its run: a shutdown and a drain may be under way at once.
        reason: KillReason,
        /// The group's priority.
        priority: i32,
        /// Its name for people, if any: `ordinary pods`.
        name: Option<Cow<'static, str>>,
        /// The number of its pods.
        pods: usize,
        /// The time allowed for the group.
        allowed: Duration,
    },
    /// All containers of a group are gone, or its time is over.
    GroupFinished {
        /// The reason of its run.
        reason: KillReason,
        /// The group's priority.
        priority: i32,
        /// Its name for people, if any: `ordinary pods`.
        name: Option<Cow<'static, str>>,
        /// How long it took.
        took: Duration,
        /// The number of pods that still run.
        left: usize,
    },
    /// The shutdown was cancelled; groups that were not started stay alive.
    ShutdownCancelled {
        /// The number of groups that were not started.
        spared_groups: usize,
    },
    /// How the node went down before this boot; reported once per boot.
    LastBoot {
        /// Whether every pod could terminate by itself; `None` if that is not known.
        graceful: Option<bool>,
        /// How it went, how long it took and which pods were killed, in one line for people.
        text: Arc<str>,
    },
    /// The pods have terminated, or the time is over.
    ShutdownFinished {
        /// From the signal to the release of the lock, or to the end of the run if none was held.
        took: Duration,
        /// The number of pods that still run.
        left: usize,
        /// Whether more may be left: it is not known which pods ran, or what became of them.
        unknown: bool,
        /// Whether the login manager's lock was released. After a notice it is held until the shutdown is announced.
        released: bool,
    },
}
