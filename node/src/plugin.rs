//! What a node is made of beside its pods: a list of plug-ins.
//!
//! Each joins the node once, with all that it brings, and starts when all have joined. None knows another: what one
//! has to tell another goes through [`Links`].

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use winddown_control::ApiError;
use winddown_control::api::{
    self, Check, DrainEvent, DrainRequest, EvictionPlan, NoticeBody, PreemptionPlan, ReleaseAnswer,
    ReportList, ShutdownPlan, StartPlan, WithdrawAnswer,
};
use winddown_shared::{
    AdmissionFailureHandler, AdmitHandler, KillRequest, Listed, NodeHandle, NodeHandleParts,
    Plugin, PluginNotes, PodUidMap, PodWorkers, Recorder, Runtime, RuntimeSyncer, critical,
};

use crate::core::Core;
use crate::links::Links;
use crate::metrics::NodeFacts;

/// A line of the list that a node is made of: one of the node's own, or a [`Plugin`] of another party.
pub trait NodePlugin<R: Runtime>: Send + 'static {
    /// What it is called and counts, if it is of another party.
    fn of_another(&self) -> Option<Listed> {
        None
    }

    /// Brings what it has. Called once, inside a tokio runtime, before any pod is known.
    fn join(self: Box<Self>, node: &mut Joining<R>);
}

/// A node that plug-ins join.
pub struct Joining<R: Runtime> {
    pub(crate) core: Arc<Core<R>>,
    pub(crate) notes: PluginNotes,
    pub(crate) brought: Brought,
}

/// What the plug-ins have brought.
#[derive(Default)]
pub(crate) struct Brought {
    /// What is asked of a new pod, after the gate and before it is fitted in.
    pub(crate) admission: Vec<Arc<dyn AdmitHandler>>,
    /// What makes room for a critical pod.
    pub(crate) room: Option<Arc<dyn AdmissionFailureHandler>>,
    /// Where events go.
    pub(crate) recorders: Vec<Arc<dyn Recorder>>,
    /// What is shown.
    pub(crate) sections: Vec<Arc<dyn Section>>,
    /// Who answers which question of the control socket.
    pub(crate) answers: Answers,
    pub(crate) links: Links,
    /// What goes before the pods come.
    pub(crate) lead: Option<Lead>,
    /// Begins the work of each, when all have joined.
    pub(crate) starts: Vec<Start>,
}

/// Begins the work of a plug-in.
pub(crate) type Start = Box<dyn FnOnce(&mut Links) + Send>;

/// What goes before the pods come, and after they are known.
pub(crate) struct Lead {
    /// Says what was asked to end already. Pods are held back until then.
    pub(crate) first: BoxFuture<'static, PodUidMap<KillRequest>>,
    /// What begins as soon as the pods are known, and goes on for as long as the agent does.
    pub(crate) then: BoxFuture<'static, ()>,
}

/// What a plug-in shows wherever the node is looked at.
pub(crate) trait Section: Send + Sync + 'static {
    /// Its part of the picture.
    fn status(&self, status: &mut api::Status);

    /// Its part of a scrape.
    fn facts(&self, facts: &mut NodeFacts);

    /// What has to be so for the node to be ready.
    fn readiness(&self) -> Option<Check> {
        None
    }

    /// The agent was told to stop. Waited for.
    fn stopped(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// Who answers which question of the control socket; none: this agent does no such thing.
#[derive(Clone, Default)]
pub(crate) struct Answers {
    pub(crate) shutdown: Option<Arc<dyn ShutdownAnswers>>,
    pub(crate) preemption: Option<Arc<dyn PreemptionAnswers>>,
    pub(crate) eviction: Option<Arc<dyn EvictionAnswers>>,
}

/// See [`AgentApi`](winddown_control::AgentApi) for each.
pub(crate) trait ShutdownAnswers: Send + Sync + 'static {
    fn plan(&self, within: Option<std::time::Duration>) -> BoxFuture<'_, ShutdownPlan>;

    fn start_plan(&self) -> StartPlan;

    fn drain(&self, request: DrainRequest) -> Result<Events, ApiError>;

    fn give_notice(&self, body: NoticeBody) -> BoxFuture<'_, Result<Events, ApiError>>;

    fn withdraw_notice(&self) -> BoxFuture<'_, WithdrawAnswer>;

    fn release(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'_, Result<ReleaseAnswer, ApiError>>;

    fn reports(&self) -> BoxFuture<'_, Result<ReportList, ApiError>>;

    fn report(&self, id: String) -> BoxFuture<'_, Result<serde_json::Value, ApiError>>;
}

/// What happens while pods end.
pub(crate) type Events = tokio::sync::mpsc::UnboundedReceiver<DrainEvent>;

/// See [`AgentApi`](winddown_control::AgentApi).
pub(crate) trait PreemptionAnswers: Send + Sync + 'static {
    fn plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError>;
}

/// See [`AgentApi`](winddown_control::AgentApi).
pub(crate) trait EvictionAnswers: Send + Sync + 'static {
    fn plan(&self, signal: Option<String>) -> BoxFuture<'_, Result<EvictionPlan, ApiError>>;
}

// === impl Joining ===

impl<R: Runtime> Joining<R> {
    /// Has `start` begin the plug-in's work when all have joined.
    pub(crate) fn start(&mut self, start: impl FnOnce(&mut Links) + Send + 'static) {
        self.brought.starts.push(Box::new(start));
    }

    /// What a plug-in of another party sees of the node.
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
    fn of_another(&self) -> Option<Listed> {
        (**self).of_another()
    }

    fn join(self: Box<Self>, node: &mut Joining<R>) {
        (*self).join(node);
    }
}

impl<R: Runtime, P: Plugin> NodePlugin<R> for P {
    fn of_another(&self) -> Option<Listed> {
        Some(Listed { name: self.name(), metrics: self.metrics() })
    }

    fn join(self: Box<Self>, node: &mut Joining<R>) {
        let name = self.name();
        node.brought.admission.extend(self.admission());
        let handle = NodeHandle::new(name, node.handle_parts());
        node.brought.links.work.extend(self.at_shutdown(&handle));
        node.brought.links.relief.push(Box::new(handle.asked_again()));
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

/// What plug-ins of others say of themselves.
pub(crate) fn statuses(notes: &PluginNotes) -> Vec<api::PluginStatus> {
    let notes = notes.all().into_iter();
    notes
        .map(|note| api::PluginStatus {
            name: note.name.as_str().to_owned(),
            text: note.line.to_string(),
        })
        .collect()
}
