//! Reclaims what no pod needs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use winddown_eviction::{Reclaim, Reclaimable};
use winddown_shared::{Freed, Garbage, RuntimeError};

use super::EvictionRuntime;

/// Reclaims through the runtime.
pub(crate) struct GiveBack {
    pub(super) runtime: Arc<dyn EvictionRuntime>,
    /// How long unused images are kept.
    pub(super) image_age: watch::Receiver<Duration>,
}

impl Reclaim for GiveBack {
    async fn reclaim(&self, what: Reclaimable) -> Result<Freed, RuntimeError> {
        let garbage = match what {
            Reclaimable::DeadContainers => Garbage::DeadContainers,
            Reclaimable::RotatedLogs => Garbage::RotatedLogs,
            Reclaimable::UnusedImages => {
                Garbage::UnusedImages { min_age: *self.image_age.borrow() }
            }
        };
        self.runtime.collect(garbage).await
    }
}
