//! Passes statuses from this process's status store to the API server.

use futures_util::future::OptionFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_shared::status::{PodPhase, StatusEntry, StatusStore, is_terminal};

use super::patch::any_running;
use super::{Outbox, StatusUpdate};
use crate::mirror::Mirrors;
use crate::pods::StatusSide;

/// Passes every change in a [`StatusStore`] to an [`Outbox`], or another [`StatusSide`].
///
/// For agents whose own pod workers run the pods. Its cost grows with the number of changes.
#[derive(Debug)]
pub struct Follow<T = Outbox> {
    store: StatusStore,
    outbox: T,
    mirrors: Option<Mirrors>,
}

/// Submits the status of `entry` to `outbox`: that of a static pod as its mirror's, if it has one. Nothing is submitted for
/// a pod that its source gave with its final status.
pub fn submit_status<T: StatusSide>(entry: &StatusEntry, outbox: &T, mirrors: Option<&Mirrors>) {
    let StatusEntry { pod, status, .. } = entry;
    if pod.status.as_ref().is_some_and(is_terminal) {
        return;
    }
    let shown_as = match mirrors {
        _ if !pod.is_static() => Some(pod.pod_ref().clone()),
        Some(mirrors) => {
            if let Some(phase) = PodPhase::of(status) {
                mirrors.says(pod, phase);
            }
            mirrors.of(pod)
        }
        None => None,
    };
    let Some(shown_as) = shown_as else { return };
    outbox.submit(StatusUpdate {
        pod: shown_as,
        status: status.clone(),
        last: is_terminal(status) && !any_running(status),
        generation: pod.metadata.generation,
    });
}

impl<T: StatusSide> Follow<T> {
    /// Follows the pods that came from the API. Static pods are left out.
    pub fn new(store: StatusStore, outbox: T) -> Self {
        Self { store, outbox, mirrors: None }
    }

    /// Also follows static pods, whose statuses become those of their mirrors.
    #[must_use]
    pub fn with_mirrors(mut self, mirrors: Mirrors) -> Self {
        self.mirrors = Some(mirrors);
        self
    }

    /// Follows until `cancel`led.
    pub async fn run(self, cancel: CancellationToken) {
        let mut changes = self.store.changes();
        let mut names = self.mirrors.as_ref().map(Mirrors::changes);
        let mut seen = 0;
        loop {
            changes.mark_unchanged();
            let (entries, now) = self.store.changed_since(seen);
            seen = now;
            for entry in &entries {
                self.bring(entry);
            }
            let renamed = OptionFuture::from(names.as_mut().map(watch::Receiver::changed));
            tokio::select! {
                () = cancel.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
                // A static pod has got a mirror, or a different one.
                Some(Ok(())) = renamed => {
                    let (all, _) = self.store.changed_since(0);
                    for entry in all.iter().filter(|entry| entry.pod.is_static()) {
                        self.bring(entry);
                    }
                }
            }
        }
    }

    fn bring(&self, entry: &StatusEntry) {
        submit_status(entry, &self.outbox, self.mirrors.as_ref());
    }
}
