//! Reclaims what no pod needs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use winddown_eviction::{Reclaim, ReclaimError, Reclaimable, Reclaimed};
use winddown_shared::{MemoryFigure, PodUid};

use super::RuntimeFigures;

/// Reclaims through the runtime.
pub(crate) struct GiveBack {
    pub(super) runtime: Arc<dyn RuntimeFigures>,
    /// How long unused images are kept.
    pub(super) image_age: watch::Receiver<Duration>,
}

impl Reclaim for GiveBack {
    async fn reclaim(&self, what: Reclaimable) -> Result<Reclaimed, ReclaimError> {
        let image_age = *self.image_age.borrow();
        match self.runtime.reclaim(what, image_age).await {
            Ok(freed) => Ok(Reclaimed { items: freed.items, bytes: freed.bytes }),
            Err(error) => Err(ReclaimError {
                what: format!("removing {}", named(what)),
                source: Some(Arc::new(error)),
            }),
        }
    }

    async fn reclaim_memory(
        &self,
        pod: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> Result<u64, ReclaimError> {
        let freed = self.runtime.reclaim_memory(pod, figure, bytes, time).await;
        freed.map(|freed| freed.bytes).map_err(|error| ReclaimError {
            what: format!("taking memory back from pod {pod}"),
            source: Some(Arc::new(error)),
        })
    }
}

const fn named(what: Reclaimable) -> &'static str {
    match what {
        Reclaimable::DeadContainers => "dead containers",
        Reclaimable::RotatedLogs => "rotated logs",
        Reclaimable::UnusedImages => "unused images",
    }
}
