//! Passes statuses from this process's status store to the API server.

use std::future::pending;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_shared::PodRef;
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

/// Returns the update to submit for `entry`. `pod` is its name in the API.
pub fn update_of(entry: &StatusEntry, pod: PodRef) -> StatusUpdate {
    StatusUpdate {
        pod,
        status: entry.status.clone(),
        last: is_terminal(&entry.status) && !any_running(&entry.status),
        generation: entry.pod.metadata.generation,
    }
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
            tokio::select! {
                () = cancel.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
                () = new_name(names.as_mut()) => {
                    let (all, _) = self.store.changed_since(0);
                    for entry in all.iter().filter(|entry| entry.pod.is_static()) {
                        self.bring(entry);
                    }
                }
            }
        }
    }

    fn bring(&self, entry: &StatusEntry) {
        if !entry.pod.is_static() {
            self.outbox.submit(update_of(entry, entry.pod.pod_ref().clone()));
            return;
        }
        let Some(mirrors) = &self.mirrors else { return };
        if let Some(phase) = PodPhase::of(&entry.status) {
            mirrors.says(entry.pod.uid(), phase);
        }
        if let Some(mirror) = mirrors.of(entry.pod.uid()) {
            self.outbox.submit(update_of(entry, mirror));
        }
    }
}

/// Waits until a static pod gets a mirror, or a different one.
async fn new_name(names: Option<&mut watch::Receiver<u64>>) {
    let Some(names) = names else { return pending().await };
    if names.changed().await.is_err() {
        pending::<()>().await;
    }
}
