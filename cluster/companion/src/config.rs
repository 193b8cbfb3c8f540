//! Configuration of stops next to a kubelet.

use std::time::Duration;

use tokio::sync::watch;
use winddown_shared::{PodUid, WallClock};

/// Configuration of stops next to a kubelet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompanionConfig {
    /// The node's name.
    pub node: String,
    /// How long evictions are repeated that disruption budgets refuse. `None` uses a third of the grace period, and
    /// at most [`EVICTION_TIMEOUT`](Self::EVICTION_TIMEOUT). Never longer than the grace period.
    pub eviction_timeout: Option<Duration>,
    /// Whether nothing is stopped while the node goes down and the API server is away. Otherwise containers are stopped
    /// through the container runtime, and before that the kubelet's service, so that it does not restart them.
    pub waits_for_api: bool,
    /// The pod that this agent itself runs in; it is never stopped.
    pub own_pod: Option<PodUid>,
    /// Whether the node goes down. Each time this changes to false, a kubelet that was stopped for a
    /// shutdown is started again, even if an earlier agent stopped it.
    pub going_down: watch::Receiver<bool>,
    /// Whether the kubelet's service may be stopped while the node goes down. It may not be where only the kubelet could
    /// start this agent again, which has to start the kubelet if the node stays up.
    pub may_stop_kubelet: watch::Receiver<bool>,
    /// The best estimate of the API server's clock, in which deletion timestamps are expressed.
    pub api_clock: WallClock,
}

// === impl CompanionConfig ===

impl CompanionConfig {
    /// The maximum time spent on disruption budgets by default.
    pub const EVICTION_TIMEOUT: Duration = Duration::from_secs(10);

    /// How long an agent that has started waits to learn whether an earlier agent's shutdown resumes; after that it is taken
    /// not to.
    pub const RESUME_TIMEOUT: Duration = Duration::from_secs(15);

    /// The defaults, for this node and with `going_down` always false and `may_stop_kubelet` always true.
    pub fn new(node: impl Into<String>, api_clock: WallClock) -> Self {
        Self {
            node: node.into(),
            eviction_timeout: None,
            waits_for_api: false,
            own_pod: None,
            going_down: watch::channel(false).1,
            may_stop_kubelet: watch::channel(true).1,
            api_clock,
        }
    }

    /// The part of `grace` that is spent on disruption budgets.
    pub(super) fn consent(&self, grace: Duration) -> Duration {
        match self.eviction_timeout {
            Some(configured) => configured.min(grace),
            None => (grace / 3).min(Self::EVICTION_TIMEOUT),
        }
    }
}
