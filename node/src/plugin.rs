//! The plug-ins of a node.
//!
//! Each plug-in joins the node once, with everything that it contributes, and starts when all have joined. No plug-in
//! knows another; they communicate through [`Links`].

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use winddown_control::ApiError;
use winddown_control::api::{
    self, Check, DrainEvent, DrainRequest, NoticeBody, PreemptionPlan, ReleaseAnswer, ReportList,
    StartPlan, WithdrawAnswer,
};
use winddown_shared::{
    AdmissionFailureHandler, AdmitHandler, EarlierKill, NodeHandle, NodeHandleParts, Plugin,
    PluginStatusLines, PodUidMap, PodWorkers, Recorder, Runtime, RuntimeSyncer, critical,
};

use crate::Settings;
use crate::core::Core;
use crate::links::Links;
use crate::metrics::ScrapedNode;
use crate::registered_plugin::RegisteredPlugin;

/// A plug-in of a node: one of this crate's, or a third-party [`Plugin`].
pub trait NodePlugin<R: Runtime>: Send + 'static {
    /// The name and the metrics of a third-party plug-in; `None` for this crate's.
    fn third_party(&self) -> Option<RegisteredPlugin> {
        None
    }

    /// Adds the plug-in's contributions to the node. Called once, inside a tokio runtime, before any pod is known.
    fn register(self: Box<Self>, node: &mut PluginRegistry<R>);
}

/// What a node consists of while it is assembled: each plug-in registers its contributions here.
pub struct PluginRegistry<R: Runtime> {
    pub(crate) core: Arc<Core<R>>,
    pub(crate) settings: watch::Receiver<Settings>,
    /// The directory for what may be lost with the boot.
    pub(crate) state_directory: Option<PathBuf>,
    pub(crate) notes: PluginStatusLines,
    pub(crate) contributions: Contributions,
}

/// What the plug-ins have contributed.
#[derive(Default)]
pub(crate) struct Contributions {
    /// Admission checks for new pods, between the gate and the fit.
    pub(crate) admission: Vec<Arc<dyn AdmitHandler>>,
    /// Makes room for a critical pod that does not fit.
    pub(crate) preemption_handler: Option<Arc<dyn AdmissionFailureHandler>>,
    /// The recorders that receive events.
    pub(crate) recorders: Vec<Arc<dyn Recorder>>,
    /// The sections of the status and the metrics.
    pub(crate) sections: Vec<Arc<dyn PluginSection>>,
    /// The handlers of requests on the control socket.
    pub(crate) answers: Answers,
    pub(crate) links: Links,
    /// The work that precedes the start of pods.
    pub(crate) lead: Option<Lead>,
    /// Start functions, called when all plug-ins have joined.
    pub(crate) starts: Vec<Start>,
}

/// Starts the work of a plug-in.
pub(crate) type Start = Box<dyn FnOnce(&mut Links) + Send>;

/// The work of one plug-in before pods are started: none is until it resolves. It returns the pods that were already
/// requested to stop, and what starts as soon as the pods are known, and runs for as long as the agent.
pub(crate) type Lead = BoxFuture<'static, (PodUidMap<EarlierKill>, BoxFuture<'static, ()>)>;

/// A plug-in's section of the status and the metrics.
pub(crate) trait PluginSection: Send + Sync + 'static {
    /// Brings up to date what the status and the metrics say of the machine. Called before either.
    fn refresh(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    /// Fills in the plug-in's part of the status.
    fn status(&self, status: &mut api::Status);

    /// Fills in the plug-in's part of the metrics.
    fn facts(&self, facts: &mut ScrapedNode);

    fn readiness(&self) -> Option<Check> {
        None
    }

    /// Called when the agent is stopped, while its tasks still run. The stop waits for the future.
    fn stopped(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// The handlers of requests on the control socket. Without a handler, the answer is an error or an empty plan.
#[derive(Clone, Default)]
pub(crate) struct Answers {
    pub(crate) shutdown: Option<Arc<dyn ShutdownAnswers>>,
    pub(crate) start: Option<Arc<dyn StartAnswers>>,
    pub(crate) release: Option<Arc<dyn ReleaseAnswers>>,
    pub(crate) preemption: Option<Arc<dyn PreemptionAnswers>>,
    #[cfg(feature = "eviction")]
    pub(crate) eviction: Option<Arc<dyn EvictionAnswers>>,
}

/// See [`PlanApi`](winddown_control::PlanApi), [`ActApi`](winddown_control::ActApi) and
/// [`ReportApi`](winddown_control::ReportApi) for each.
pub(crate) trait ShutdownAnswers: Send + Sync + 'static {
    #[cfg(feature = "shutdown")]
    fn plan(&self, within: Option<std::time::Duration>) -> BoxFuture<'_, api::ShutdownPlan>;

    fn drain(&self, request: DrainRequest) -> Result<Events, ApiError>;

    fn give_notice(&self, body: NoticeBody) -> BoxFuture<'_, Result<Events, ApiError>>;

    fn withdraw_notice(&self) -> BoxFuture<'_, WithdrawAnswer>;

    fn reports(&self) -> BoxFuture<'_, Result<ReportList, ApiError>>;

    fn report(&self, id: String) -> BoxFuture<'_, Result<serde_json::Value, ApiError>>;
}

/// See [`PlanApi`](winddown_control::PlanApi) and [`ReportApi`](winddown_control::ReportApi).
pub(crate) trait StartAnswers: Send + Sync {
    fn plan(&self) -> StartPlan;

    fn report(&self) -> BoxFuture<'_, Result<serde_json::Value, ApiError>>;
}

/// See [`ActApi`](winddown_control::ActApi).
pub(crate) trait ReleaseAnswers: Send + Sync {
    fn release(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'_, Result<ReleaseAnswer, ApiError>>;
}

/// The progress of a drain or of a notice.
pub(crate) type Events = tokio::sync::mpsc::UnboundedReceiver<DrainEvent>;

/// See [`PlanApi`](winddown_control::PlanApi).
pub(crate) trait PreemptionAnswers: Send + Sync + 'static {
    fn plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError>;
}

/// See [`PlanApi`](winddown_control::PlanApi).
#[cfg(feature = "eviction")]
pub(crate) trait EvictionAnswers: Send + Sync + 'static {
    fn plan(&self, signal: Option<String>) -> BoxFuture<'_, Result<api::EvictionPlan, ApiError>>;
}

// === impl PluginRegistry ===

impl<R: Runtime> PluginRegistry<R> {
    /// Registers `start` to start the plug-in's work when all have joined.
    pub(crate) fn start(&mut self, start: impl FnOnce(&mut Links) + Send + 'static) {
        self.contributions.starts.push(Box::new(start));
    }

    /// The parts of the node that a third-party plug-in can access.
    fn handle_parts(&self) -> NodeHandleParts<PodWorkers<RuntimeSyncer<R>>> {
        NodeHandleParts {
            killer: Arc::new(self.core.workers.clone()),
            victims: self.core.fit.victim_lock(),
            gate: self.core.gate.changes(),
            statuses: self.core.statuses.clone(),
            recorder: self.core.recorder(),
            wall: self.core.wall.clone(),
            notes: self.notes.clone(),
        }
    }
}

impl<R: Runtime> NodePlugin<R> for Box<dyn NodePlugin<R>> {
    fn third_party(&self) -> Option<RegisteredPlugin> {
        (**self).third_party()
    }

    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        (*self).register(node);
    }
}

impl<R: Runtime, P: Plugin> NodePlugin<R> for P {
    fn third_party(&self) -> Option<RegisteredPlugin> {
        Some(RegisteredPlugin { name: self.name(), metrics: self.metrics() })
    }

    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        let name = self.name();
        node.contributions.admission.extend(self.admission());
        let handle = NodeHandle::new(name, node.handle_parts());
        node.contributions.links.work.extend(self.at_shutdown(&handle));
        node.contributions.links.relief.push(Box::new(handle.rejected_retries()));
        let core = Arc::clone(&node.core);
        node.start(move |_| {
            let stop = core.stop.clone();
            critical::spawn_until(name.as_str(), stop.clone(), async move {
                core.pods_are_known().await;
                core.pods_are_seen().await;
                tokio::select! {
                    () = self.run(handle) => stop.cancelled().await,
                    () = stop.cancelled() => {}
                }
            });
        });
    }
}

/// The status lines of third-party plug-ins.
pub(crate) fn statuses(notes: &PluginStatusLines) -> Vec<api::PluginStatus> {
    let notes = notes.all().into_iter();
    notes
        .map(|note| api::PluginStatus {
            name: note.name.as_str().to_owned(),
            text: note.line.to_string(),
        })
        .collect()
}
