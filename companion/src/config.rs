//! How pods are ended beside a kubelet.

use std::time::Duration;

use tokio::sync::watch;
use winddown_shared::{PodUid, WallClock};

/// How pods are ended beside a kubelet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompanionConfig {
    /// The node's name.
    pub node: String,
    /// How long disruption budgets are asked for their consent; none takes a third of the grace, and
    /// at most [`EVICTION_TIMEOUT`](Self::EVICTION_TIMEOUT). Never longer than the grace.
    pub eviction_timeout: Option<Duration>,
    /// What is done when the API server is away while the node goes down.
    pub without_api: WithoutApi,
    /// The pod that this agent itself runs in: it is never ended.
    pub own_pod: Option<PodUid>,
    /// Whether the node goes down. Each time this says that it does not, a kubelet that was stopped for a
    /// shutdown is started again, also one that an earlier agent stopped.
    pub going_down: watch::Receiver<bool>,
    /// The API server's clock, as well as it is known: the ends of graces are stated by it.
    pub api_clock: WallClock,
}

/// What is done when the API server is away while the node goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutApi {
    /// The containers are stopped through the container runtime, and the kubelet's service before them, so
    /// that it does not start them again.
    #[default]
    StopContainers,
    /// Nothing: what the API server is not told does not happen.
    Wait,
}

// === impl CompanionConfig ===

impl CompanionConfig {
    /// The longest time that is spent on disruption budgets if nothing else is said.
    pub const EVICTION_TIMEOUT: Duration = Duration::from_secs(10);

    /// For this node, with everything else as it usually is, and a node that never goes down.
    pub fn new(node: impl Into<String>, api_clock: WallClock) -> Self {
        Self {
            node: node.into(),
            eviction_timeout: None,
            without_api: WithoutApi::default(),
            own_pod: None,
            going_down: watch::channel(false).1,
            api_clock,
        }
    }

    /// How much of `grace` is spent on disruption budgets.
    pub(super) fn consent(&self, grace: Duration) -> Duration {
        match self.eviction_timeout {
            Some(configured) => configured.min(grace),
            None => (grace / 3).min(Self::EVICTION_TIMEOUT),
        }
    }
}

// === impl WithoutApi ===

impl WithoutApi {
    /// The choice's name in configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StopContainers => "stopContainers",
            Self::Wait => "wait",
        }
    }
}
