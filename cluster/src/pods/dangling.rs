//! Pods that the provider runs and that the API may not have any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_shared::{Pod, PodUidMap};

use super::config::Whose;
use super::known::{ApiPresence, Known};
use super::parts::Parts;
use super::queue::Outcome;
use super::seams::{Prepare, StatusSide};
use crate::provider::{Notify, ProvidedPod};
use winddown_api_client::node_pods::PodApi;
use winddown_shared::{Backoff, fraction};

impl<A: PodApi, P: Notify, S: StatusSide, R: Prepare> Parts<A, P, S, R> {
    /// Asks the API for one pod that a list did not have. A list can be wrong (a selector, a
    /// filter, an old copy), and a pod that ends cannot be made to run again; so nothing ends
    /// before its name was asked for and not found. A missing answer proves nothing.
    pub(crate) async fn look_up(&self, known: &Known) -> Option<Outcome> {
        let label = known.pod.label();
        let found = match self.request("read the pod", self.api.get(label)).await {
            Ok(found) => found,
            Err(refused) => {
                self.api_outage.failed(&refused);
                return Some(Outcome::Failed { after: refused.refusal.retry_after() });
            }
        };
        self.api_outage.worked();
        let found = found.and_then(|object| Pod::new(object).ok());
        match found {
            Some(pod) if pod.uid() == &label.uid && self.config.whose(&pod) == Whose::Ours => {
                if self.known.found(&pod, Instant::now(), self.api_time()) {
                    self.statuses.api_saw(&pod);
                }
            }
            // Another pod has its name, or it is no longer one of ours: that is certain at once.
            Some(_) => self.gone(&label.uid, None),
            None if self.known.not_found(&label.uid, Instant::now(), self.api_time()) => {
                tracing::info!(pod = %label, "the API server no longer has the pod");
                self.statuses.gone(&label.uid);
            }
            None => return Some(Outcome::At(Instant::now() + self.config.confirm_every)),
        }
        None
    }

    /// The provider's pods. Retried until it answers: pods started beside unknown ones may run
    /// twice. `None` if cancelled.
    pub(crate) async fn what_runs(&self) -> Option<Vec<ProvidedPod>> {
        let mut backoff = Backoff::EAGER;
        loop {
            let listed = tokio::select! {
                listed = self.query(self.provider.list_pods()) => listed,
                () = self.cancel.cancelled() => return None,
            };
            match listed {
                Ok(pods) => {
                    self.provider_outage.worked();
                    return Some(pods);
                }
                Err(error) => {
                    self.provider_outage.failed(&error);
                    let wait = backoff.after_failure(error.retry_after());
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = self.cancel.cancelled() => return None,
                    }
                }
            }
        }
    }

    /// Compares both sides: pods that only one side has are handled.
    fn compare(&self, provided: &[ProvidedPod]) {
        let have: PodUidMap<()> = provided.iter().map(|p| (p.pod.uid().clone(), ())).collect();
        for uid in self.known.provided(provided.iter().map(|p| &p.pod), 1) {
            self.queues.sync.wake_if_idle(&uid);
        }
        for uid in self.known.uids() {
            let is_there = have.contains_key(&uid);
            let is_wanted = |known: Known| known.presence == ApiPresence::Present;
            if self.known.get(&uid).is_some_and(is_wanted) != is_there {
                self.queues.sync.wake_if_idle(&uid);
            }
        }
    }
}

/// Compares both sides periodically, as a safety net.
pub(crate) async fn reconcile<A, P, S, R>(parts: Arc<Parts<A, P, S, R>>)
where
    A: PodApi,
    P: Notify,
    S: StatusSide,
    R: Prepare,
{
    loop {
        let wait: Duration = parts.config.reconcile_every.mul_f64(0.9 + fraction() / 5.0);
        tokio::select! {
            () = sleep(wait) => {}
            () = parts.cancel.cancelled() => return,
        }
        let Some(provided) = parts.what_runs().await else { return };
        parts.compare(&provided);
    }
}
