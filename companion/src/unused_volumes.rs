//! Volumes that are staged and that no pod has.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{PodUid, PodUidMap};

/// A kubelet gives a volume back soon after its last pod. One that it has not given back by then, and that none of
/// the pods that end now had, is not waited for.
const STALE: Duration = Duration::from_secs(10);

/// Since when volumes are unused, and pods end.
#[derive(Debug, Default)]
pub(super) struct UnusedVolumes(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    volumes: HashMap<String, Volume>,
    pods: PodUidMap<Instant>,
}

#[derive(Debug)]
struct Volume {
    since: Instant,
    /// It was said that it is not waited for.
    is_said: bool,
}

// === impl UnusedVolumes ===

impl UnusedVolumes {
    /// The pod's end has begun, and these volumes were unused at that time.
    pub(super) fn begin(&self, uid: &PodUid, at: Instant, unused: &[String]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.pods.entry(uid.clone()).or_insert(at);
        seen.take(at, unused);
    }

    /// Those of the volumes, which are unused at this time, that may be the pod's.
    pub(super) fn of(&self, uid: &PodUid, at: Instant, mut unused: Vec<String>) -> Vec<String> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.take(at, &unused);
        // The pod may have ended before this agent came.
        let begun = seen.pods.get(uid).copied().unwrap_or(at);
        unused.retain(|point| {
            let Some(volume) = seen.volumes.get_mut(point) else { return true };
            let is_stale = volume.since <= begun && at - volume.since >= STALE;
            if is_stale && !std::mem::replace(&mut volume.is_said, true) {
                tracing::warn!(
                    "{point} is mounted for a volume that no pod has, and the kubelet does not give it \
                     back: it is waited for no longer"
                );
            }
            !is_stale
        });
        unused
    }

    /// The pod is known no more.
    pub(super) fn forget(&self, uid: &PodUid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pods.remove(uid);
    }
}

// === impl Seen ===

impl Seen {
    /// Notes what is unused at this time; what is used meanwhile begins anew.
    fn take(&mut self, at: Instant, unused: &[String]) {
        self.volumes.retain(|point, _| unused.contains(point));
        for point in unused {
            let new = || Volume { since: at, is_said: false };
            self.volumes.entry(point.clone()).or_insert_with(new);
        }
    }
}
