//! Writes to the Node object in rounds, one write at a time.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, info, warn};
use winddown_shared::{WallTime, error_chain};

use super::registering::Registered;
use super::{Core, NodeScope};
use crate::node::attempt::WriteAttempt;
use crate::node::conditions;
use crate::node::cordon::{self, Barrier, CordonReason, Mark};
use crate::node::events::changes;
use crate::node::fault::Fault;
use crate::node::handle::DesiredState;
use crate::node::patch;
use winddown_api_client::refusal::Refusal;

/// The writer's state between rounds.
#[derive(Debug)]
pub(super) struct NodeWriter<'a> {
    core: &'a Core,
    /// The version of the desired state: incremented with every local change.
    inputs: u64,
    /// The node and the inputs for which nothing was left to write.
    settled: Option<(Arc<Node>, u64)>,
    /// Whether the last good answer to a ping was too old at the last check.
    stale: bool,
    /// What the server forbids, by kind: acknowledgements do not wait for it.
    refused: [bool; KINDS],
    /// When the status was last written.
    reported: Option<Instant>,
    /// The node about which events were last sent.
    told: Option<Arc<Node>>,
    registration: WriteAttempt,
    attempts: [WriteAttempt; KINDS],
}

/// What to do after a round.
#[derive(Debug)]
pub(super) enum Next {
    /// Start another round: there may be more to write.
    Again,
    /// Wait until something changes.
    Idle,
    /// Something is left, to be retried at this time.
    At(Instant),
}

/// The node's writes, by importance. Each needs its own rights, and fails independently.
#[derive(Clone, Copy, Debug)]
enum WriteKind {
    Status,
    /// The conditions alone, if nothing else of the status differs, or another writer disputes that.
    Conditions,
    Cordon,
    /// The taint of a node that goes down.
    OwnTaint,
    Metadata,
}

const KINDS: usize = 5;

#[derive(Debug, Default)]
struct PlannedPatches {
    status: Option<Value>,
    conditions: Option<Value>,
    cordon: Option<Value>,
    own_taint: Option<Value>,
    metadata: Option<Value>,
    /// When the first patch that has to wait is due.
    wake: Option<Instant>,
}

/// How often to check for a node that another party creates, in case the watch does not report it.
const NODE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

impl<'a> NodeWriter<'a> {
    pub(super) fn new(core: &'a Core) -> Self {
        Self {
            core,
            inputs: 1,
            settled: None,
            stale: false,
            refused: [false; KINDS],
            reported: None,
            told: None,
            registration: WriteAttempt::eager(),
            attempts: [
                WriteAttempt::eager(),
                WriteAttempt::eager(),
                WriteAttempt::eager(),
                WriteAttempt::eager(),
                WriteAttempt::patient(),
            ],
        }
    }

    /// Handles a change of the desired state: no write waits for an earlier failure any more.
    pub(super) fn inputs_changed(&mut self) {
        self.inputs += 1;
        self.refused = [false; KINDS];
        self.registration.inputs_changed();
        self.attempts.iter_mut().for_each(WriteAttempt::inputs_changed);
    }

    /// Makes the most important write that is due.
    pub(super) async fn round(&mut self) -> Next {
        let Some(node) = self.core.server.node() else {
            return self.register().await;
        };
        self.core.note_registered(&node);
        let now = Instant::now();
        self.tell_events(&node);
        if self.core.answer_is_stale(now) != self.stale {
            self.stale = !self.stale;
            self.inputs_changed();
        }
        let heartbeat = self.heartbeat_due(now);
        if !heartbeat && self.is_settled(&node) {
            return Next::Idle;
        }
        let desired = self.core.desired.borrow().clone();
        let plan = self.plan(&node, &desired, heartbeat, now);
        for (kind, patch) in [
            (WriteKind::Status, plan.status),
            (WriteKind::Conditions, plan.conditions),
            (WriteKind::Cordon, plan.cordon),
            (WriteKind::OwnTaint, plan.own_taint),
            (WriteKind::Metadata, plan.metadata),
        ] {
            // One write per round: each creates a new version of the node, which the next one needs.
            if let Some(patch) = patch {
                let written = match kind {
                    WriteKind::Metadata => self.core.patch_metadata(patch).await,
                    WriteKind::Status
                    | WriteKind::Conditions
                    | WriteKind::Cordon
                    | WriteKind::OwnTaint => self.core.patch(kind, &patch).await,
                };
                self.note(kind, written, &node, heartbeat).await;
                return Next::Again;
            }
        }
        match plan.wake {
            Some(at) => Next::At(at),
            None => {
                self.settled = Some((node, self.inputs));
                Next::Idle
            }
        }
    }

    async fn register(&mut self) -> Next {
        let now = Instant::now();
        if !self.registration.is_due(now) {
            return Next::At(self.registration.waits_until().unwrap_or(now));
        }
        let generation = self.core.desired.borrow().generation;
        match self.core.register().await {
            Registered::Yes => {
                if self.registration.succeeded(self.inputs, true, now) {
                    info!(node = %self.core.name, "the API server answers");
                }
                Next::Again
            }
            Registered::NotOurs => {
                // There is no Node object to write to, so nothing is left to wait for.
                self.core.acknowledge(generation);
                Next::At(now + NODE_CHECK_INTERVAL)
            }
            Registered::Failed(fault) => {
                let refusal = fault.refusal();
                // The client logs an unreachable server once.
                let first = self.registration.failed(refusal, now);
                if first && refusal != Refusal::NoAnswer {
                    warn!(
                        node = %self.core.name,
                        error = error_chain(&fault),
                        "cannot register the node yet; retrying"
                    );
                }
                self.core.state.send_modify(|state| state.outage = fault.problem());
                Next::Again
            }
        }
    }

    fn plan(
        &mut self,
        node: &Node,
        desired: &DesiredState,
        heartbeat: bool,
        now: Instant,
    ) -> PlannedPatches {
        let core = self.core;
        let wanted = core.wanted(conditions::of(node));
        let wanted_mark = core.desired_mark(desired);
        let whole = core.settings.scope == NodeScope::Whole;
        let ready = core.is_ready(node);
        let barrier = |barrier, wanted_mark| {
            let step = cordon::decide(barrier, wanted_mark, node, ready, &self.core.field_manager);
            cordon::patch(barrier, &step, node)
        };
        let cordon = barrier(Barrier::Cordon, wanted_mark.as_ref());
        // Where this agent runs the pods itself it rejects new ones, so it needs no taint.
        let own_taint = barrier(Barrier::Taint, wanted_mark.as_ref().filter(|_| !whole));
        let time = Time(core.clock.now());
        let (status, conditions, metadata) = {
            // The facts must not be borrowed again in here: a change that waits for this read would
            // deadlock with it.
            let facts = core.facts.borrow();
            let conditions = patch::conditions(&facts, &wanted, node, &time, heartbeat);
            match whole {
                true => (
                    patch::status(&facts, &wanted, node, &time, heartbeat),
                    conditions,
                    patch::metadata(&facts, node),
                ),
                false => (None, conditions, None),
            }
        };
        // A status has the conditions too. A dispute over the rest of it does not hold them back.
        let disputed = self.attempts[WriteKind::Status as usize].is_disputed(now);
        let conditions = conditions.filter(|_| status.is_none() || disputed);
        let is_done =
            |kind: WriteKind, patch: &Option<Value>| patch.is_none() || self.refused[kind as usize];
        if (status.is_none() || disputed)
            && conditions.is_none()
            && is_done(WriteKind::Cordon, &cordon)
            && is_done(WriteKind::OwnTaint, &own_taint)
        {
            core.acknowledge(desired.generation);
        }
        let mut plan = PlannedPatches::default();
        plan.status = self.due(WriteKind::Status, status, now, &mut plan.wake);
        plan.conditions = self.due(WriteKind::Conditions, conditions, now, &mut plan.wake);
        plan.cordon = self.due(WriteKind::Cordon, cordon, now, &mut plan.wake);
        plan.own_taint = self.due(WriteKind::OwnTaint, own_taint, now, &mut plan.wake);
        plan.metadata = self.due(WriteKind::Metadata, metadata, now, &mut plan.wake);
        plan
    }

    /// Returns the patch if it may be sent now; otherwise notes in `wake` when it may be.
    fn due(
        &self,
        kind: WriteKind,
        patch: Option<Value>,
        now: Instant,
        wake: &mut Option<Instant>,
    ) -> Option<Value> {
        let patch = patch?;
        let attempt = &self.attempts[kind as usize];
        if attempt.is_due(now) {
            return Some(patch);
        }
        *wake = [*wake, attempt.waits_until()].into_iter().flatten().min();
        None
    }

    async fn note(
        &mut self,
        kind: WriteKind,
        written: Result<Node, Fault>,
        before: &Arc<Node>,
        heartbeat: bool,
    ) {
        let (core, now) = (self.core, Instant::now());
        let attempt = &mut self.attempts[kind as usize];
        match written {
            Ok(node) => {
                if attempt.succeeded(self.inputs, heartbeat, now) {
                    info!(node = %core.name, "{} again", kind.done());
                }
                core.server.offer(node, Some(before));
                core.note_written(kind);
                if matches!(kind, WriteKind::Status | WriteKind::Conditions) {
                    self.reported = Some(now);
                }
            }
            Err(fault) => {
                let refusal = fault.refusal();
                if fault.is_for_good() {
                    self.refused[kind as usize] = true;
                }
                let first = attempt.failed(refusal, now);
                if first && refusal != Refusal::NoAnswer {
                    warn!(node = %core.name, error = error_chain(&fault), "{}; retrying", kind.failed());
                } else {
                    debug!(node = %core.name, error = error_chain(&fault), "{}", kind.failed());
                }
                core.note_failed(kind, &fault);
                core.look_again(refusal).await;
            }
        }
    }

    fn tell_events(&mut self, node: &Arc<Node>) {
        let tells = self.core.settings.scope == NodeScope::Whole;
        if !tells || self.told.as_ref().is_some_and(|told| Arc::ptr_eq(told, node)) {
            return;
        }
        let none = Node::default();
        let before = self.told.as_deref().unwrap_or(&none);
        let wanted = self.core.wanted(conditions::of(node));
        for event in changes(&self.core.name, before, node, &wanted) {
            self.core.tell(event);
        }
        self.told = Some(node.clone());
    }

    fn heartbeat_due(&self, now: Instant) -> bool {
        let settings = &self.core.settings;
        if settings.scope == NodeScope::Lifecycle {
            return false;
        }
        // The heartbeat is sent with a tick, the one nearest to its time.
        let slack = settings.beat() / 2;
        self.reported.is_none_or(|at| now.duration_since(at) + slack >= settings.heartbeat())
    }

    fn is_settled(&self, node: &Arc<Node>) -> bool {
        self.settled
            .as_ref()
            .is_some_and(|(settled, inputs)| *inputs == self.inputs && Arc::ptr_eq(settled, node))
    }
}

impl Core {
    async fn patch(&self, kind: WriteKind, patch: &Value) -> Result<Node, Fault> {
        let params = PatchParams {
            field_manager: Some(self.field_manager.to_string()),
            ..PatchParams::default()
        };
        let patch = Patch::Strategic(patch);
        match kind {
            WriteKind::Status | WriteKind::Conditions => {
                self.bounded(self.api.patch_status(&self.name, &params, &patch)).await
            }
            _ => self.bounded(self.api.patch(&self.name, &params, &patch)).await,
        }
    }

    /// Writes labels and annotations. One label that the server refuses does not cost the node the others: each is then
    /// written alone, and the error names those that are missing.
    async fn patch_metadata(&self, mut patch: Value) -> Result<Node, Fault> {
        let whole = self.patch(WriteKind::Metadata, &patch).await;
        let Err(fault) = whole else { return whole };
        let labels = patch["metadata"].as_object_mut().and_then(|all| all.remove("labels"));
        let labels = labels.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        if !fault.is_for_good() || labels.is_empty() {
            return Err(fault);
        }
        let mut refused = Vec::new();
        for (name, value) in labels {
            let alone = json!({ "metadata": {
                "uid": patch["metadata"]["uid"], "labels": { &*name: value },
            } });
            match self.patch(WriteKind::Metadata, &alone).await {
                Ok(node) => self.server.offer(node, None),
                Err(fault) if fault.is_for_good() => refused.push(name),
                Err(fault) => return Err(fault),
            }
        }
        if refused.is_empty() || patch["metadata"].get("annotations").is_some() {
            let rest = self.patch(WriteKind::Metadata, &patch).await;
            if refused.is_empty() {
                return rest;
            }
            if let Ok(node) = rest {
                self.server.offer(node, None);
            }
        }
        Err(Fault::Labels { refused: refused.join(", "), cause: Box::new(fault) })
    }

    /// Updates the view of the node after a refusal.
    async fn look_again(&self, refusal: Refusal) {
        let before = self.server.node();
        if refusal.is_gone() {
            let uid = before.and_then(|node| node.metadata.uid.clone());
            self.server.gone(uid.as_deref());
        } else if refusal == Refusal::Conflict
            && let Ok(Some(node)) = self.bounded(self.api.get_opt(&self.name)).await
        {
            self.server.offer(node, before.as_ref());
        }
    }

    fn desired_mark(&self, desired: &DesiredState) -> Option<Mark> {
        let (reason, since) = desired.cordon()?;
        let wanted = match reason {
            CordonReason::Shutdown => self.settings.cordon_on_shutdown,
            CordonReason::Drain => self.settings.cordon_on_drain,
        };
        wanted.then(|| Mark {
            boot: self.facts.borrow().info.boot_id.as_str().into(),
            since: format!("{since:.0}").into(),
            reason,
            released: false,
        })
    }

    fn answer_is_stale(&self, now: Instant) -> bool {
        self.answers.borrow().is_stale(now, self.settings.ping)
    }

    fn is_ready(&self, node: &Node) -> bool {
        let health = self.health();
        let kubelet = match self.settings.scope {
            NodeScope::Whole => true,
            NodeScope::Lifecycle => {
                let up_for = self.settings.up_since.map(|up_since| up_since.elapsed());
                let up_since = up_for.and_then(|up_for| self.clock.now().checked_sub(up_for).ok());
                is_kept(node, &self.facts.borrow().info.boot_id, up_since)
            }
        };
        health.not_ready.is_empty() && !health.shutting_down && kubelet
    }

    fn acknowledge(&self, generation: u64) {
        self.state.send_if_modified(|state| {
            let new = state.acknowledged < generation;
            state.acknowledged = state.acknowledged.max(generation);
            new
        });
    }

    fn note_written(&self, kind: WriteKind) {
        self.state.send_modify(|state| match kind {
            WriteKind::Status | WriteKind::Conditions => {
                state.outage = None;
                state.status_writes += 1;
            }
            WriteKind::Cordon | WriteKind::OwnTaint => {}
            WriteKind::Metadata => state.refused = None,
        });
    }

    fn note_failed(&self, kind: WriteKind, fault: &Fault) {
        let refused = fault.is_for_good();
        self.state.send_modify(|state| match kind {
            WriteKind::Status | WriteKind::Conditions => {
                state.outage = fault.problem();
            }
            _ if refused => state.refused = Some(fault.to_string().into()),
            _ => {}
        });
    }
}

/// Whether a kubelet reports the node as ready, in this boot and since `up_since`. A report from before stays for a while.
fn is_kept(node: &Node, boot: &str, up_since: Option<WallTime>) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let ready = conditions::find(conditions::of(node), conditions::READY);
    // A kubelet's times have no fractions.
    let is_late = |ready: &NodeCondition| match (&ready.last_heartbeat_time, up_since) {
        (Some(at), Some(up)) => at.0.as_second() >= up.as_second(),
        _ => true,
    };
    info.is_some_and(|info| info.boot_id == boot)
        && ready.is_some_and(|ready| ready.status == "True" && is_late(ready))
}

// === impl WriteKind ===

impl WriteKind {
    fn failed(self) -> &'static str {
        match self {
            Self::Status | Self::Conditions => "the node's status could not be written",
            Self::Cordon => "the node's cordon could not be changed",
            Self::OwnTaint => {
                "the node could not be tainted, so DaemonSets may start pods while it goes down"
            }
            Self::Metadata => "the node's labels and annotations could not be written",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Status | Self::Conditions => "the node's status is written",
            Self::Cordon => "the node's cordon is changed",
            Self::OwnTaint => "the node's own taint is changed",
            Self::Metadata => "the node's labels and annotations are written",
        }
    }
}
