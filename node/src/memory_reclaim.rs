//! Memory reclaim before an eviction, through the runtime and as configured.

use std::sync::Arc;
use std::time::Duration;

use winddown_eviction::{Alternative, MemoryReclaim, ReclaimError, ReclaimMemory};
use winddown_shared::{MemoryFigure, PodUid};

use crate::{Configured, RuntimeFigures};

struct ThroughRuntime(Arc<dyn RuntimeFigures>);

impl ReclaimMemory for ThroughRuntime {
    async fn reclaim_memory(
        &self,
        pod: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> Result<u64, ReclaimError> {
        let freed = self.0.reclaim_memory(pod, figure, bytes, time).await;
        freed.map(|freed| freed.bytes).map_err(|error| ReclaimError {
            what: format!("taking memory back from pod {pod}"),
            source: Some(Arc::new(error)),
        })
    }
}

impl Configured {
    /// Memory reclaim as configured.
    pub(crate) fn memory_reclaim(&self, runtime: Arc<dyn RuntimeFigures>) -> Arc<dyn Alternative> {
        let time = self.follow(|config| config.eviction.memory_reclaim);
        Arc::new(MemoryReclaim::new(ThroughRuntime(runtime), time))
    }
}
