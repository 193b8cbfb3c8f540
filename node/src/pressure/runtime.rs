//! What eviction needs from a runtime.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use winddown_eviction::Reclaimable;
use winddown_shared::{
    Freed, Garbage, ImagePlaces, MemoryFigure, PodStats, PodStatsSource, PodUid, RuntimeError,
};

/// The usage of each pod.
pub(super) type Figures = Vec<(PodUid, PodStats)>;

/// A runtime that reports the usage of pods and reclaims what no pod needs.
pub trait RuntimeFigures: Send + Sync + 'static {
    /// See [`PodStatsSource::pod_stats`].
    fn figures(
        &self,
        disk_age: Option<Duration>,
    ) -> BoxFuture<'_, Result<Vec<(PodUid, PodStats)>, RuntimeError>>;

    /// See [`PodStatsSource::pods_cgroup`].
    fn cgroup(&self) -> BoxFuture<'_, Option<String>>;

    /// See [`PodStatsSource::image_places`].
    fn places(&self) -> BoxFuture<'_, Result<ImagePlaces, RuntimeError>>;

    /// Reclaims everything of one kind, except images that have been present for less than `image_age`: the
    /// pod that they are for may not have started yet.
    fn reclaim(
        &self,
        what: Reclaimable,
        image_age: Duration,
    ) -> BoxFuture<'_, Result<Freed, RuntimeError>>;

    /// See [`Garbage::reclaim_memory`].
    fn reclaim_memory<'a>(
        &'a self,
        uid: &'a PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> BoxFuture<'a, Result<Freed, RuntimeError>> {
        let _ = (uid, figure, bytes, time);
        std::future::ready(Ok(Freed::default())).boxed()
    }
}

impl<T: PodStatsSource + Garbage> RuntimeFigures for T {
    fn figures(&self, disk_age: Option<Duration>) -> BoxFuture<'_, Result<Figures, RuntimeError>> {
        self.pod_stats(disk_age).boxed()
    }

    fn cgroup(&self) -> BoxFuture<'_, Option<String>> {
        self.pods_cgroup().boxed()
    }

    fn places(&self) -> BoxFuture<'_, Result<ImagePlaces, RuntimeError>> {
        self.image_places().boxed()
    }

    fn reclaim(
        &self,
        what: Reclaimable,
        image_age: Duration,
    ) -> BoxFuture<'_, Result<Freed, RuntimeError>> {
        match what {
            Reclaimable::DeadContainers => self.remove_dead_containers().boxed(),
            Reclaimable::RotatedLogs => self.remove_rotated_logs().boxed(),
            Reclaimable::UnusedImages => self.remove_unused_images(image_age).boxed(),
        }
    }

    fn reclaim_memory<'a>(
        &'a self,
        uid: &'a PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> BoxFuture<'a, Result<Freed, RuntimeError>> {
        Garbage::reclaim_memory(self, uid, figure, bytes, time).boxed()
    }
}
