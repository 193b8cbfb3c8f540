//! The interface of the node controller to the rest of the agent.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use winddown_shared::{PressureCondition, WallClock, WallTime};

use super::conditions::DrainingNode;
use super::cordon::CordonReason;
use super::server::NodeReader;

/// Sets the node's state. Cheap to clone; no setter blocks or needs the API server.
#[derive(Clone, Debug)]
pub struct NodeControllerHandle {
    desired: Arc<watch::Sender<DesiredState>>,
    state: watch::Receiver<NodeState>,
    reader: NodeReader,
    clock: WallClock,
}

/// The node controller's state, for metrics, `doctor` and readiness.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// `metadata.uid` of the Node object, while there is one.
    pub uid: Option<Arc<str>>,
    /// Whether the API server has shown the Node object, or answered that there is none, since the agent started.
    pub was_read: bool,
    /// Whether the Node object was deleted and is not created again.
    pub deleted: bool,
    /// Why the node's status cannot be written at the moment.
    pub outage: Option<Arc<str>>,
    /// Why the API server refuses this node's labels, annotations, taints or cordon.
    pub refused: Option<Arc<str>>,
    /// Why the lease is not renewed at the moment.
    pub lease_problem: Option<Arc<str>>,
    /// When the lease was last renewed.
    pub lease_renewed: Option<Instant>,
    /// The number of statuses written.
    pub status_writes: u64,
    /// The number of renewals of the lease.
    pub lease_renewals: u64,
    /// The number of registrations: one, and one more for each time the object was deleted.
    pub registrations: u64,
    /// The last change of the handle that has reached the API server.
    pub(super) acknowledged: u64,
}

/// Not everything reached the API server in time. Sending continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server does not know the node's conditions and cordon yet")]
pub struct NotDelivered;

/// The state that was set through the handle.
#[derive(Clone, Debug)]
pub(super) struct DesiredState {
    /// Incremented with every change.
    pub(super) generation: u64,
    /// Incremented with every change that interrupts a write in progress.
    pub(super) urgent: u64,
    pub(super) ready: Result<(), Arc<str>>,
    pub(super) shutting_down: Option<WallTime>,
    pub(super) draining: DrainingNode,
    pub(super) draining_since: Option<WallTime>,
    pub(super) pressure: Vec<PressureCondition>,
}

// === impl NodeControllerHandle ===

impl NodeControllerHandle {
    pub(super) fn new(
        desired: Arc<watch::Sender<DesiredState>>,
        state: watch::Receiver<NodeState>,
        reader: NodeReader,
        clock: WallClock,
    ) -> Self {
        Self { desired, state, reader, clock }
    }

    /// Sets whether the node can run pods. The error is the message of the Ready condition. Before
    /// the first call the node is not ready.
    pub fn set_ready(&self, ready: Result<(), String>) {
        let ready = ready.map_err(Into::into);
        self.change(false, |desired| std::mem::replace(&mut desired.ready, ready.clone()) != ready);
    }

    /// Sets whether the node is going down. Both conditions of a shutdown, Ready and the cordon are
    /// written immediately, whatever else happens; [`flush`](Self::flush) waits for it.
    pub fn set_shutting_down(&self, on: bool) {
        let now = self.clock.now();
        self.change(true, |desired| {
            let changed = desired.shutting_down.is_some() != on;
            if changed {
                desired.shutting_down = on.then_some(now);
            }
            changed
        });
    }

    /// Sets how far an operator's drain of this node is.
    pub fn set_draining(&self, draining: DrainingNode) {
        let now = self.clock.now();
        self.change(true, |desired| {
            let changed = std::mem::replace(&mut desired.draining, draining) != draining;
            desired.draining_since = match draining {
                DrainingNode::No => None,
                _ => desired.draining_since.or(Some(now)),
            };
            changed
        });
    }

    /// Sets the pressure conditions that hold.
    pub fn set_pressure(&self, pressure: Vec<PressureCondition>) {
        self.change(false, |desired| {
            let changed = desired.pressure != pressure;
            desired.pressure = pressure;
            changed
        });
    }

    /// Waits until the API server has everything that was set so far and the current facts, except
    /// labels, or has answered that there is no Node object, which this agent does not
    /// create. Failed writes are retried immediately. Cancel-safe; sending continues.
    ///
    /// # Errors
    /// When the API server does not have it by `deadline`.
    pub async fn flush(&self, deadline: Instant) -> Result<(), NotDelivered> {
        // The controller acknowledges only what it reads after a change.
        self.change(false, |_| true);
        let desired = self.desired.borrow().generation;
        let mut state = self.state.clone();
        let told = state.wait_for(|state| state.acknowledged >= desired);
        match timeout_at(deadline, told).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(NotDelivered),
        }
    }

    /// The Node object as the API server has it; `None` before it is registered and after it was
    /// deleted. Admission uses its labels, taints and allocatable resources.
    #[must_use]
    pub fn server_node(&self) -> watch::Receiver<Option<Arc<Node>>> {
        self.reader.server.subscribe()
    }

    /// Reads the Node object again, for a decision that must not rest on an old copy. Returns whether the API server
    /// has answered; [`server_node`](Self::server_node) then has the answer. Takes as long as one request at most.
    pub async fn read_again(&self) -> bool {
        self.reader.read().await
    }

    /// The controller's state, as it changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<NodeState> {
        self.state.clone()
    }

    fn change(&self, urgent: bool, change: impl FnOnce(&mut DesiredState) -> bool) {
        self.desired.send_if_modified(|desired| {
            let changed = change(desired);
            if changed {
                desired.generation += 1;
                desired.urgent += u64::from(urgent);
            }
            changed
        });
    }
}

// === impl DesiredState ===

impl DesiredState {
    pub(super) fn new() -> Self {
        Self {
            generation: 1,
            urgent: 0,
            ready: Err("the node agent is starting".into()),
            shutting_down: None,
            draining: DrainingNode::No,
            draining_since: None,
            pressure: Vec::new(),
        }
    }

    /// Why no new pods should be bound to the node, and since when.
    pub(super) fn cordon(&self) -> Option<(CordonReason, WallTime)> {
        let shutdown = self.shutting_down.map(|since| (CordonReason::Shutdown, since));
        shutdown.or_else(|| self.draining_since.map(|since| (CordonReason::Drain, since)))
    }
}
