//! Memory reclaim before an eviction, through the runtime and as configured.

use std::sync::Arc;
use std::time::Duration;

use winddown_eviction::{Alternative, MemoryReclaim, ReclaimError, ReclaimMemory};
use winddown_shared::{MemoryFigure, PodUid};

use crate::Configured;
use crate::pressure::EvictionRuntime;

struct ThroughRuntime(Arc<dyn EvictionRuntime>);

impl ReclaimMemory for ThroughRuntime {
    async fn reclaim_memory(
        &self,
        pod: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> Result<u64, ReclaimError> {
        let freed = self.0.take_back(pod, figure, bytes, time).await;
        freed.map(|freed| freed.bytes).map_err(|error| {
            ReclaimError::new(format!("reclaiming memory from pod {pod}"), Some(Arc::new(error)))
        })
    }
}

impl Configured {
    /// Memory reclaim as configured, on a runtime.
    pub(crate) fn memory_reclaim(
        &self,
    ) -> impl FnOnce(Arc<dyn EvictionRuntime>) -> Arc<dyn Alternative> + use<> {
        let time = self.follow(|config| config.eviction.memory_reclaim);
        |runtime| Arc::new(MemoryReclaim::new(ThroughRuntime(runtime), time))
    }
}
