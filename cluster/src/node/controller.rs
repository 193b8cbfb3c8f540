//! Reconciles the Node object, its conditions, its cordon, its taint and its lease.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::WallClock;

use super::conditions::{self, NodeHealth};
use super::cordon::FIELD_MANAGER;
use super::desired::NodeFacts;
use super::events::starting;
use super::handle::{DesiredState, NodeControllerHandle, NodeState};
use super::lease::{LEASE_NAMESPACE, LeaseTimes};
use super::ping::{NoPing, Ping, PingAnswer, PingTimes, watch_over};
use super::server::{NodeReader, ServerNode};
use super::ticker::TickSource;
use crate::events::{EventDraft, Events};

mod leasing;
mod registering;
mod writer;
mod writing;

/// The settings of a [`NodeController`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// How much of the Node object this agent owns.
    pub scope: NodeScope,
    /// The lease; without one the status itself is the heartbeat.
    pub lease: Option<LeaseTimes>,
    /// How often the status is written when nothing has changed and there is no lease, and how
    /// often it is checked when there is one: `nodeStatusUpdateFrequency`. At least a second.
    pub update_frequency: Duration,
    /// How often the status is written when nothing has changed and there is a lease:
    /// `nodeStatusReportFrequency`.
    pub report_frequency: Duration,
    /// Whether this node creates its own Node object.
    pub registration: Registration,
    /// Whether a shutdown cordons the node.
    pub cordon_on_shutdown: bool,
    /// Whether an operator's drain cordons the node.
    pub cordon_on_drain: bool,
    /// When the system was started, if the boot id does not tell it from another: beside a kubelet, what that reported
    /// before is not about this system. No wall time: the clock may be set after the start.
    pub up_since: Option<Instant>,
    /// The timeout of one request.
    pub request_timeout: Duration,
    /// How answers to pings are judged.
    pub ping: PingTimes,
}

/// How much of the Node object this agent owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeScope {
    /// Everything that a kubelet writes.
    #[default]
    Whole,
    /// The conditions of KEP-5683 and of the facts, and the cordon and the taint of a shutdown; the
    /// rest is a kubelet's. Of the facts only the conditions and the boot id are used, and no
    /// events are sent: the kubelet sends them.
    Lifecycle,
}

/// Who creates the Node object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Registration {
    /// This node, when it starts. If the object is deleted later it stays so until the agent
    /// restarts, as with the kubelet: deleting the node is how a machine is taken out of a cluster.
    #[default]
    AtStart,
    /// This node, also if the object is deleted while the agent runs. Not during a shutdown.
    Always,
    /// Another party; the controller waits for it.
    Never,
}

/// The settings are contradictory or out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeSettingsError {
    /// The node's name is empty.
    #[error("the node has no name: set nodeName, or give the machine a host name")]
    NoName,
    /// An interval is shorter than a second.
    #[error("{field} is {value:?}: write at least 1s")]
    TooShort {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: Duration,
    },
}

/// Manages one Node object. Created by [`NodeController::builder`].
#[derive(Debug)]
pub struct NodeController<P = NoPing> {
    core: Core,
    ping: P,
    answers: watch::Sender<PingAnswer>,
}

/// Builds a [`NodeController`].
#[derive(Debug)]
pub struct NodeControllerBuilder<P = NoPing> {
    api: Api<Node>,
    leases: Api<Lease>,
    name: Arc<str>,
    facts: watch::Receiver<NodeFacts>,
    clock: WallClock,
    settings: NodeSettings,
    ping: P,
    events: Option<Events>,
    field_manager: Arc<str>,
}

/// The state that all parts of the controller share.
#[derive(Debug)]
struct Core {
    api: Api<Node>,
    leases: Api<Lease>,
    name: Arc<str>,
    clock: WallClock,
    settings: NodeSettings,
    events: Option<Events>,
    field_manager: Arc<str>,
    facts: watch::Receiver<NodeFacts>,
    desired: watch::Receiver<DesiredState>,
    answers: watch::Receiver<PingAnswer>,
    server: ServerNode,
    state: watch::Sender<NodeState>,
}

// === impl NodeController ===

impl NodeController {
    /// Starts to build a controller of the node `name`, which publishes the latest `facts`.
    pub fn builder(
        client: Client,
        name: impl Into<Arc<str>>,
        facts: watch::Receiver<NodeFacts>,
        clock: WallClock,
    ) -> NodeControllerBuilder {
        NodeControllerBuilder {
            api: Api::all(client.clone()),
            leases: Api::namespaced(client, LEASE_NAMESPACE),
            name: name.into(),
            facts,
            clock,
            settings: NodeSettings::default(),
            ping: NoPing,
            events: None,
            field_manager: FIELD_MANAGER.into(),
        }
    }
}

impl<P: Ping> NodeController<P> {
    /// Reconciles the node until `cancel`. Never gives up, and does not remove the node when it
    /// stops: pods survive a restart of the agent.
    pub async fn run(self, cancel: CancellationToken) {
        let Self { core, ping, answers } = self;
        if core.settings.scope == NodeScope::Whole {
            core.tell(starting(&core.name));
        }
        let ticks = TickSource::new();
        let (times, ticker) = (core.settings.ping, ticks.ticker());
        let watched = async {
            match core.settings.scope {
                NodeScope::Whole => watch_over(&ping, times, ticker, &answers).await,
                // The kubelet pings the runtime, and its Ready says the result.
                NodeScope::Lifecycle => watch_over(&NoPing, times, ticker, &answers).await,
            }
        };
        // One task and one timer: an idle node wakes once per renewal.
        tokio::select! {
            () = cancel.cancelled() => {}
            () = ticks.beat(core.settings.beat()) => {}
            () = watched => {}
            () = core.server.follow(core.api.clone(), &core.name) => {}
            () = core.keep_lease(ticks.ticker()) => {}
            () = core.keep_status(ticks.ticker()) => {}
        }
    }
}

// === impl NodeControllerBuilder ===

impl<P: Ping> NodeControllerBuilder<P> {
    /// Uses these settings instead of the kubelet's.
    #[must_use]
    pub fn settings(mut self, settings: NodeSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Checks with `ping` whether pods can run, unless a kubelet does ([`NodeScope::Lifecycle`]). Without it only
    /// [`NodeControllerHandle::set_ready`] decides that.
    #[must_use]
    pub fn ping<Q: Ping>(self, ping: Q) -> NodeControllerBuilder<Q> {
        let Self { api, leases, name, facts, clock, settings, events, field_manager, .. } = self;
        NodeControllerBuilder {
            api,
            leases,
            name,
            facts,
            clock,
            settings,
            ping,
            events,
            field_manager,
        }
    }

    /// Writes as this field manager: the name of the program. Without it, as `winddown`.
    #[must_use]
    pub fn field_manager(mut self, name: impl Into<Arc<str>>) -> Self {
        self.field_manager = name.into();
        self
    }

    /// Sends events about the node to `events`. Without it none are sent.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.events = Some(events);
        self
    }

    /// Returns the controller and its handle.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn build(self) -> Result<(NodeController<P>, NodeControllerHandle), NodeSettingsError> {
        let Self { api, leases, name, facts, clock, settings, ping, events, field_manager } = self;
        let settings = settings.checked(&name)?;
        let (desired, receiver) = watch::channel(DesiredState::new());
        let (answers, answered) = watch::channel(PingAnswer::Waiting);
        let server = ServerNode::new();
        let state = watch::Sender::new(NodeState::default());
        let reader = NodeReader {
            api: api.clone(),
            name: Arc::clone(&name),
            request_timeout: settings.request_timeout,
            server: server.clone(),
        };
        let desired = Arc::new(desired);
        let handle = NodeControllerHandle::new(desired, state.subscribe(), reader, clock.clone());
        let core = Core {
            api,
            leases,
            name,
            clock,
            settings,
            events,
            field_manager,
            facts,
            desired: receiver,
            answers: answered,
            server,
            state,
        };
        Ok((NodeController { core, ping, answers }, handle))
    }
}

// === impl Core ===

impl Core {
    fn tell(&self, event: EventDraft) {
        if let Some(events) = &self.events {
            events.send(event);
        }
    }

    /// The current facts that determine the conditions.
    fn health(&self) -> NodeHealth {
        let desired = self.desired.borrow();
        let now = tokio::time::Instant::now();
        let unanswered = self.answers.borrow().problem(now, self.settings.ping);
        let unready = desired.ready.as_ref().err().cloned();
        let whole = self.settings.scope == NodeScope::Whole;
        let lacking = self.facts.borrow().lacking().filter(|_| whole).map(Into::into);
        NodeHealth {
            not_ready: unready.into_iter().chain(unanswered).chain(lacking).collect(),
            shutting_down: desired.shutting_down.is_some(),
            draining: desired.draining,
            pressure: desired.pressure.clone(),
        }
    }

    /// The conditions that the node should have, in the order in which they are shown.
    fn wanted(&self, server: &[NodeCondition]) -> Vec<NodeCondition> {
        let mut wanted = match self.settings.scope {
            NodeScope::Whole => conditions::wanted(&self.health(), server),
            NodeScope::Lifecycle => conditions::lifecycle(&self.health(), server),
        };
        let facts = self.facts.borrow();
        let more = facts.conditions.iter();
        let more: Vec<_> =
            more.filter(|one| conditions::find(&wanted, &one.type_).is_none()).cloned().collect();
        wanted.extend(more);
        wanted
    }
}

// === impl NodeSettings ===

impl NodeSettings {
    /// The settings next to a kubelet, which owns the Node object: no lease, registration or heartbeat.
    pub fn beside_kubelet() -> Self {
        Self {
            scope: NodeScope::Lifecycle,
            lease: None,
            registration: Registration::Never,
            update_frequency: Duration::from_secs(3600),
            ..Self::default()
        }
    }

    fn checked(mut self, name: &str) -> Result<Self, NodeSettingsError> {
        if name.is_empty() {
            return Err(NodeSettingsError::NoName);
        }
        let fields = [
            ("nodeStatusUpdateFrequency", self.update_frequency),
            ("nodeStatusReportFrequency", self.report_frequency),
            ("the lease's renewal interval", self.lease.map_or(Duration::MAX, LeaseTimes::renew)),
        ];
        let short = fields.into_iter().find(|(_, value)| *value < Duration::from_secs(1));
        match short {
            Some((field, value)) => Err(NodeSettingsError::TooShort { field, value }),
            None => {
                // A good answer must stay valid until after the next one.
                self.ping.stale_after = self.ping.stale_after.max(self.beat() * 3);
                Ok(self)
            }
        }
    }

    /// The interval of all periodic work.
    fn beat(&self) -> Duration {
        self.lease.map_or(self.update_frequency, LeaseTimes::renew)
    }

    /// How often the status is written when nothing has changed.
    fn heartbeat(&self) -> Duration {
        if self.lease.is_some() { self.report_frequency } else { self.update_frequency }
    }
}

impl Default for NodeSettings {
    /// The kubelet's settings: a lease of 40 s renewed every 10 s, the status checked every 10 s
    /// and written every 5 min, registration at the start. A shutdown and a drain cordon the node.
    fn default() -> Self {
        Self {
            scope: NodeScope::Whole,
            lease: Some(LeaseTimes::default()),
            update_frequency: Duration::from_secs(10),
            report_frequency: Duration::from_secs(300),
            registration: Registration::default(),
            cordon_on_shutdown: true,
            cordon_on_drain: true,
            up_since: None,
            request_timeout: Duration::from_secs(5),
            ping: PingTimes::default(),
        }
    }
}
