//! Reclaims what no pod needs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use winddown_eviction::{Reclaim, ReclaimError, Reclaimable, Reclaimed};
use winddown_shared::Garbage;

use super::EvictionRuntime;

/// Reclaims through the runtime.
pub(crate) struct GiveBack {
    pub(super) runtime: Arc<dyn EvictionRuntime>,
    /// How long unused images are kept.
    pub(super) image_age: watch::Receiver<Duration>,
}

impl Reclaim for GiveBack {
    async fn reclaim(&self, what: Reclaimable) -> Result<Reclaimed, ReclaimError> {
        let garbage = match what {
            Reclaimable::DeadContainers => Garbage::DeadContainers,
            Reclaimable::RotatedLogs => Garbage::RotatedLogs,
            Reclaimable::UnusedImages => {
                Garbage::UnusedImages { min_age: *self.image_age.borrow() }
            }
        };
        match self.runtime.collect(garbage).await {
            Ok(freed) => Ok(Reclaimed::new(freed.items, freed.bytes)),
            Err(error) => {
                Err(ReclaimError::new(format!("removing {}", named(what)), Some(Arc::new(error))))
            }
        }
    }
}

const fn named(what: Reclaimable) -> &'static str {
    match what {
        Reclaimable::DeadContainers => "dead containers",
        Reclaimable::RotatedLogs => "rotated logs",
        Reclaimable::UnusedImages => "unused images",
    }
}
