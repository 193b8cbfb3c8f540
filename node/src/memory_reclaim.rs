//! Memory reclaim before an eviction, through the runtime and as configured.

use std::sync::Arc;
use std::time::Duration;

use winddown_eviction::{Alternative, MemoryReclaim, ReclaimMemory};
use winddown_shared::{Freed, MemoryFigure, PodUid, RuntimeError};

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
    ) -> Result<Freed, RuntimeError> {
        self.0.take_back(pod, figure, bytes, time).await
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
