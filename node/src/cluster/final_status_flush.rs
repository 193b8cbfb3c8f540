//! What the cluster is told before the node goes down.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use winddown_api_client::ApiState;
use winddown_shared::status::{Phase, StatusEntry, StatusStore};
use winddown_shared::{FinalStatusFlush, PodLabel};

use super::Membership;
use super::facts::Clean;

/// The timeout for an API server that was away before: it is enough to persist what to send after
/// the boot.
const AWAY: Duration = Duration::from_secs(1);

/// Statuses, conditions and events of a node that goes down, told for as long as there is time.
pub(crate) struct FinalReport {
    pub(crate) cluster: Membership,
    pub(crate) statuses: StatusStore,
}

impl FinalStatusFlush for FinalReport {
    fn tell(&self, clean: bool, until: Instant) -> BoxFuture<'_, Vec<PodLabel>> {
        async move {
            let until = match self.cluster.api().state {
                ApiState::Connected | ApiState::Unknown => until,
                _ => until.min(Instant::now() + AWAY),
            };
            self.cluster.change(|changing| changing.clean = Clean::Down { clean });
            let pods = async {
                let Some(side) = self.cluster.pods() else { return Vec::new() };
                // The last changes may not have reached the outbox yet.
                self.statuses.all().iter().for_each(|entry| self.say(entry));
                let (left, _) = tokio::join!(side.outbox.flush(until), side.ended.flush(until));
                left
            };
            let node = self.cluster.node().flush(until);
            let events = self.cluster.events().flush(until);
            let (pods, node, events) = tokio::join!(pods, node, events);
            if node.is_err() {
                tracing::warn!("the API server does not know that this node goes down");
            }
            if events > 0 {
                tracing::warn!(events, "events were not told to the API server");
            }
            pods
        }
        .boxed()
    }
}

impl FinalReport {
    fn say(&self, entry: &StatusEntry) {
        use winddown_cluster::status::update_of;
        let Some(side) = self.cluster.pods() else { return };
        if !entry.pod.is_static() {
            return side.outbox.submit(update_of(entry, entry.pod.label().clone()));
        }
        if let Some(phase) = entry.status.phase.as_deref().and_then(Phase::parse) {
            side.mirrors.says(entry.pod.uid(), phase);
        }
        if let Some(mirror) = side.mirrors.of(entry.pod.uid()) {
            side.outbox.submit(update_of(entry, mirror));
        }
    }
}
