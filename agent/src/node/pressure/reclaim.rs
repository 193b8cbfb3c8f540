//! Gives back what no pod misses.

use std::sync::Arc;

use winddown_eviction::{GivenBack, Reclaim, ReclaimError, Reclaimable};

use super::RuntimeFigures;

/// Has the runtime do it.
pub(in crate::node) struct GiveBack(pub(super) Arc<dyn RuntimeFigures>);

impl Reclaim for GiveBack {
    async fn give_back(&self, what: Reclaimable) -> Result<GivenBack, ReclaimError> {
        match self.0.give_back(what).await {
            Ok(freed) => Ok(GivenBack { items: freed.items, bytes: freed.bytes }),
            Err(error) => Err(ReclaimError {
                what: format!("removing {}", named(what)),
                source: Some(Arc::new(error)),
            }),
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
