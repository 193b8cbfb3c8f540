//! Watches the pods of this node at the API server.

use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1 as api;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_shared::{PodUid, PodUidMap, error_chain};

use super::config::Whose;
use super::known::ObjectChange;
use super::parts::Parts;
use super::seams::{Prepare, StatusSide};
use winddown_api_client::events_of;
use winddown_api_client::node_pods::PodApi;
use winddown_api_client::outage::Outage;

/// Follows the API's pods until the controller is cancelled. `synced` becomes true after the first complete list.
pub(crate) async fn follow<A: PodApi, T: StatusSide, R: Prepare>(
    parts: Arc<Parts<A, T, R>>,
    synced: watch::Sender<bool>,
) {
    let outage = Outage::new("watching the pods of this node");
    let mut listed = Listed::default();
    let mut events = events_of(parts.api.watch(), outage, |_| {});
    loop {
        tokio::select! {
            Some(event) = events.next() => {
                if parts.take(event, &mut listed) {
                    synced.send_replace(true);
                }
            }
            () = parts.cancel.cancelled() => return,
        }
    }
}

/// The pods of the current list so far.
#[derive(Debug, Default)]
struct Listed {
    pods: PodUidMap<()>,
    mirrors: Vec<PodUid>,
}

impl<A: PodApi, T: StatusSide, R: Prepare> Parts<A, T, R> {
    /// Handles one event. Returns whether it completes a list.
    fn take(&self, event: Event<api::Pod>, listed: &mut Listed) -> bool {
        match event {
            Event::Init => {
                *listed = Listed::default();
                self.statuses.listing();
            }
            Event::InitApply(object) => match self.applied(object) {
                Some((Whose::Ours, uid)) => drop(listed.pods.insert(uid, ())),
                Some((Whose::Mirror, uid)) => listed.mirrors.push(uid),
                Some((Whose::Others, _)) | None => {}
            },
            Event::InitDone => {
                self.listed(listed);
                return true;
            }
            Event::Apply(object) => drop(self.applied(object)),
            Event::Delete(object) => self.deleted(object),
        }
        false
    }

    fn applied(&self, object: api::Pod) -> Option<(Whose, PodUid)> {
        let (whose, pod) = match self.config.received(object) {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "the API server has a pod without identity; it is ignored"
                );
                return None;
            }
        };
        match whose {
            Whose::Ours => {
                self.statuses.api_saw(&pod);
                match self.known.applied(&pod, Instant::now()) {
                    // A pod that is left alone is stopped for a new one of its name.
                    ObjectChange::New => {
                        for uid in self.known.namesakes(&pod) {
                            self.queues.sync.wake_fresh(&uid);
                        }
                    }
                    ObjectChange::Matters => self.queues.sync.wake_fresh(pod.uid()),
                    ObjectChange::Nothing => {}
                }
            }
            Whose::Mirror => self.mirrors.api_saw(&pod),
            // It was this controller's before it changed.
            Whose::Others if self.known.get(pod.uid()).is_some_and(|known| known.was_seen) => {
                self.gone(pod.uid(), None);
            }
            Whose::Others => {}
        }
        Some((whose, pod.uid().clone()))
    }

    fn deleted(&self, object: api::Pod) {
        let Ok((whose, pod)) = self.config.received(object) else { return };
        if whose == Whose::Mirror {
            return self.mirrors.gone(pod.uid());
        }
        if self.known.get(pod.uid()).is_some() {
            self.gone(pod.uid(), Some(&pod));
        }
    }

    /// Handles a complete list: pods that it lacks are looked up.
    fn listed(&self, listed: &Listed) {
        self.mirrors.relisted(&listed.mirrors);
        let missing = self.known.listed(&listed.pods, self.config.confirmations);
        if listed.pods.is_empty() && !missing.is_empty() {
            tracing::warn!(
                pods = missing.len(),
                "the API server lists no pod for this node, but some run; each is looked up"
            );
        }
        for uid in missing {
            self.queues.sync.wake(&uid);
        }
    }
}
