//! The state of the node in its cluster, for the status and for metrics.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use winddown_api_client::ConnectionState;
use winddown_cluster::pods::RunState;
use winddown_shared::{WallClock, WallTime};

use super::Membership;
use crate::metrics::{CertificateGauges, ClusterFacts, ScrapedNode};
use crate::plugin::PluginSection;
use winddown_control::api;

/// The cluster's section of the status and the metrics.
pub(super) struct ClusterView {
    cluster: Membership,
    wall: WallClock,
}

impl ClusterView {
    pub(super) fn new(cluster: Membership, wall: WallClock) -> Self {
        Self { cluster, wall }
    }
}

impl PluginSection for ClusterView {
    fn status(&self, status: &mut api::Status) {
        status.cluster = Some(self.cluster.status(&self.wall));
    }

    fn facts(&self, facts: &mut ScrapedNode) {
        facts.cluster = Some(self.cluster.facts(&self.wall));
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        self.cluster.leave().boxed()
    }
}

impl Membership {
    /// The part of `winddown status`.
    fn status(&self, wall: &WallClock) -> api::ClusterStatus {
        let health = self.api();
        let node = self.0.node.state().borrow().clone();
        let outbox = self.pods().map(|side| side.outbox.stats()).unwrap_or_default();
        let controller = self.pods().map(|side| &side.controller);
        let waiting = controller.map(|handle| {
            let queue = *handle.queues().sync.borrow();
            queue.waiting + queue.in_flight
        });
        let (certificate, renewal) = (self.0.connection.certificate(), self.0.connection.renewal());
        // Without a certificate, the state of the connection says it.
        let problem = renewal.and_then(|renewal| renewal.problem).filter(|_| certificate.is_some());
        let problems = [node.refused, node.outage, node.lease_problem];
        api::ClusterStatus {
            // Next to a kubelet, this agent does not run the API server's pods.
            mode: if self.pods().is_some() { "cluster" } else { "companion" }.to_owned(),
            api: api_status(&health.state, at(health.since, wall)),
            registered: match (node.uid, node.deleted) {
                (Some(_), _) => Some(true),
                (None, true) => Some(false),
                (None, false) => None,
            },
            problems: problems.into_iter().flatten().map(|text| text.to_string()).collect(),
            lease_age_seconds: node.lease_renewed.map(|then| then.elapsed().as_secs()),
            statuses_waiting: outbox.unacknowledged,
            spooled: outbox.spool.files,
            pods_waiting: waiting.unwrap_or(0),
            pods_known: controller.is_some_and(|c| matches!(c.state(), RunState::Ready)),
            certificate_expires: certificate.map(|facts| facts.not_after),
            certificate_problem: problem.map(|why| why.to_string()),
            ..api::ClusterStatus::default()
        }
    }

    /// The part of the metrics.
    fn facts(&self, wall: &WallClock) -> ClusterFacts {
        let node = self.0.node.state().borrow().clone();
        let side = self.pods();
        let outbox = side.map(|side| side.outbox.stats()).unwrap_or_default();
        let events = self.0.events.counts();
        let expires = self.0.connection.certificate().map(|facts| facts.not_after);
        let renewal = self.0.connection.renewal().unwrap_or_default();
        ClusterFacts {
            connected: self.api().is_connected(),
            registered: node.uid.is_some(),
            lease_renewed: node.lease_renewed.and_then(|then| at(then, wall)),
            lease_renewals: node.lease_renewals,
            status_writes: node.status_writes,
            statuses_waiting: outbox.unacknowledged,
            statuses_sent: outbox.sent,
            status_failures: outbox.failures,
            spool_records: outbox.spool.files,
            spool_errors: outbox.spool.errors,
            events_written: events.written + events.repeated,
            events_lost: events.dropped + events.refused,
            certificate: CertificateGauges {
                time_left: expires.map(|at| at.duration_since(wall.now()).as_secs()),
                renew_errors: renewal.errors,
            },
            of_plugins: Vec::new(),
            mirrors: side.map_or(0, |side| side.mirrors.count()),
        }
    }
}

fn api_status(state: &ConnectionState, since: Option<WallTime>) -> api::ApiStatus {
    let (state, why) = match state {
        ConnectionState::Connected => (api::ApiState::Connected, None),
        ConnectionState::Unreachable { why } => (api::ApiState::Unreachable, Some(why.to_string())),
        ConnectionState::Unauthorized { why } => {
            (api::ApiState::Unauthorized, Some(why.to_string()))
        }
        ConnectionState::Untrusted { why } => (api::ApiState::Untrusted, Some(why.to_string())),
        ConnectionState::Unsigned { why } => (api::ApiState::Unsigned, Some(why.to_string())),
        _ => (api::ApiState::Unknown, None),
    };
    api::ApiStatus { state, since, why }
}

fn at(then: Instant, wall: &WallClock) -> Option<WallTime> {
    wall.now().checked_sub(then.elapsed()).ok()
}

#[cfg(test)]
mod tests;
