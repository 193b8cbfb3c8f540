//! The part of the controller that renews the lease.

use std::sync::Arc;

use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::Core;
use crate::node::conditions::{READY, find};
use crate::node::lease::LeaseError;
use crate::node::lease::keeper::{Keeper, RENEWAL_BACKOFF};
use crate::node::ticker::Ticker;
use winddown_api_client::refusal::Refusal;
use winddown_shared::Backoff;

impl Core {
    /// Renews the lease with every tick, forever.
    pub(super) async fn keep_lease(&self, mut ticker: Ticker) {
        let Some(times) = self.settings.lease else {
            return std::future::pending().await;
        };
        let mut keeper =
            Keeper::new(self.leases.clone(), self.name.clone(), times, self.clock.clone());
        let mut backoff = Backoff::new(RENEWAL_BACKOFF.0, RENEWAL_BACKOFF.1);
        let mut nodes = self.server.subscribe();
        // Until then the API server may well be right that the node is ready: an earlier agent told it.
        self.readiness_is_known().await;
        loop {
            let node = nodes.borrow_and_update().clone();
            let uid = node.as_ref().and_then(|node| node.metadata.uid.as_deref().map(Arc::from));
            let renewed = match &uid {
                None => Err(LeaseError::NotRegistered),
                Some(_) if self.api_errs_about_readiness() => Err(LeaseError::NotReady),
                Some(uid) => keeper.renew(uid).await,
            };
            let failed = renewed.is_err();
            self.note_lease(renewed);
            let another = nodes.wait_for(|node| {
                node.as_ref().and_then(|node| node.metadata.uid.as_deref()) != uid.as_deref()
            });
            // Without a Node object a retry is useless: only a tick or a new node helps.
            let retry = if failed && uid.is_some() {
                backoff.next_delay()
            } else {
                backoff.reset();
                times.duration()
            };
            tokio::select! {
                _ = another => {}
                () = ticker.next() => {}
                () = sleep(retry), if failed && uid.is_some() => {}
            }
        }
    }

    /// Whether the API wrongly shows the node as ready. A renewal would attract pods that it cannot
    /// run; without one the control plane notices by itself.
    fn api_errs_about_readiness(&self) -> bool {
        let health = self.health();
        if health.not_ready.is_empty() && !health.shutting_down {
            return false;
        }
        let node = self.server.node();
        let conditions = node.as_ref().and_then(|node| node.status.as_ref()?.conditions.as_ref());
        conditions
            .and_then(|conditions| find(conditions, READY))
            .is_some_and(|ready| ready.status == "True")
    }

    fn note_lease(&self, renewed: Result<(), LeaseError>) {
        self.state.send_if_modified(|state| match renewed {
            Ok(()) => {
                if state.lease_problem.take().is_some() {
                    info!(node = %self.name, "the node's lease is renewed again");
                }
                state.lease_renewed = Some(Instant::now());
                state.lease_renewals += 1;
                true
            }
            Err(LeaseError::NotRegistered) => false,
            Err(error) => {
                let first = state.lease_problem.is_none();
                if first {
                    let text = error.to_string();
                    // The client logs an outage once.
                    if !matches!(&error, LeaseError::Fault(f) if f.refusal() == Refusal::NoAnswer) {
                        warn!(
                            node = %self.name,
                            error = text,
                            "cannot renew the node's lease; retrying"
                        );
                    }
                    state.lease_problem = Some(text.into());
                }
                first
            }
        });
    }
}
