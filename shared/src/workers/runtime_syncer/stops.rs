//! Tells each stop in progress of the changes of its own pod, and of no other's.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::base::lock::Mutex;
use crate::{PodUid, PodUidMap};

#[derive(Default)]
pub(super) struct Stops(Mutex<PodUidMap<Arc<Notify>>>);

/// The changes of a pod while this is held.
pub(super) struct PodChanges<'a> {
    of: &'a Stops,
    uid: PodUid,
    /// Notified when the pod has changed.
    pub(super) changed: Arc<Notify>,
}

// === impl Stops ===

impl Stops {
    /// Follows the changes of a pod whose stop begins.
    pub(super) fn follow(&self, uid: &PodUid) -> PodChanges<'_> {
        let changed = Arc::<Notify>::default();
        self.0.lock().insert(uid.clone(), Arc::clone(&changed));
        PodChanges { of: self, uid: uid.clone(), changed }
    }

    /// Tells the stop of the pod, if one is in progress, that the pod changed.
    pub(super) fn changed(&self, uid: &PodUid) {
        if let Some(changed) = self.0.lock().get(uid) {
            changed.notify_one();
        }
    }

    /// Tells all stops that their pods may have changed.
    pub(super) fn all_changed(&self) {
        self.0.lock().values().for_each(|changed| changed.notify_one());
    }
}

impl Drop for PodChanges<'_> {
    fn drop(&mut self) {
        self.of.0.lock().remove(&self.uid);
    }
}
