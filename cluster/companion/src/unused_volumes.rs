//! Tracks volumes that are staged but used by no pod.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{Mutex, PodUid, PodUidMap};

/// How long to wait for an unused volume. A kubelet unstages a volume soon after its last pod is gone; one that is
/// still staged after this time, and was unused before the pod's stop began, is not waited for.
const UNUSED_VOLUME_TIMEOUT: Duration = Duration::from_secs(10);

/// Since when volumes have been unused, and when the stops of pods began.
#[derive(Debug, Default)]
pub(super) struct UnusedVolumes(Mutex<SeenVolume>);

#[derive(Debug, Default)]
struct SeenVolume {
    volumes: HashMap<String, Volume>,
    pods: PodUidMap<Instant>,
}

#[derive(Debug)]
struct Volume {
    since: Instant,
    /// Whether it was logged that the volume is not waited for.
    is_said: bool,
}

// === impl UnusedVolumes ===

impl UnusedVolumes {
    /// Records that the pod's stop has begun, and that these volumes were unused at that time.
    pub(super) fn begin(&self, uid: &PodUid, at: Instant, unused: &[String]) {
        let mut seen = self.0.lock();
        seen.pods.entry(uid.clone()).or_insert(at);
        seen.take(at, unused);
    }

    /// Those of the currently unused volumes that may be the pod's.
    pub(super) fn of(&self, uid: &PodUid, at: Instant, mut unused: Vec<String>) -> Vec<String> {
        let mut seen = self.0.lock();
        seen.take(at, &unused);
        // The pod may have stopped before this agent started.
        let begun = seen.pods.get(uid).copied().unwrap_or(at);
        unused.retain(|point| {
            let Some(volume) = seen.volumes.get_mut(point) else { return true };
            let is_stale = volume.since <= begun && at - volume.since >= UNUSED_VOLUME_TIMEOUT;
            if is_stale && !std::mem::replace(&mut volume.is_said, true) {
                tracing::warn!(
                    "{point} belongs to a volume that no pod uses, and the kubelet did not \
                     unmount it; no longer waiting"
                );
            }
            !is_stale
        });
        unused
    }

    pub(super) fn forget(&self, uid: &PodUid) {
        self.0.lock().pods.remove(uid);
    }
}

// === impl SeenVolume ===

impl SeenVolume {
    /// Updates the set of unused volumes; one that was in use meanwhile starts over.
    fn take(&mut self, at: Instant, unused: &[String]) {
        self.volumes.retain(|point, _| unused.contains(point));
        for point in unused {
            let new = || Volume { since: at, is_said: false };
            self.volumes.entry(point.clone()).or_insert_with(new);
        }
    }
}
