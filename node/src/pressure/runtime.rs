//! Any runtime as what eviction measures and reclaims through.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use winddown_shared::{
    Freed, Garbage, MemoryFigure, PodStats, PodUid, Runtime, RuntimeError, RuntimePlaces,
};

pub(super) type Figures = Vec<(PodUid, PodStats)>;

/// The methods of [`Runtime`] for eviction, which is compiled once and not once for each runtime.
pub(crate) trait EvictionRuntime: Send + Sync + 'static {
    /// See [`Runtime::pod_stats`].
    fn figures(
        &self,
        disk_age: Option<Duration>,
    ) -> BoxFuture<'_, Result<Option<Figures>, RuntimeError>>;

    /// See [`Runtime::places`].
    fn where_to_measure(&self) -> BoxFuture<'_, Result<RuntimePlaces, RuntimeError>>;

    /// See [`Runtime::collect_garbage`].
    fn collect(&self, what: Garbage) -> BoxFuture<'_, Result<Freed, RuntimeError>>;

    /// See [`Runtime::reclaim_memory`].
    fn take_back<'a>(
        &'a self,
        uid: &'a PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> BoxFuture<'a, Result<Freed, RuntimeError>>;
}

impl<R: Runtime> EvictionRuntime for R {
    fn figures(
        &self,
        disk_age: Option<Duration>,
    ) -> BoxFuture<'_, Result<Option<Figures>, RuntimeError>> {
        self.pod_stats(disk_age).boxed()
    }

    fn where_to_measure(&self) -> BoxFuture<'_, Result<RuntimePlaces, RuntimeError>> {
        self.places().boxed()
    }

    fn collect(&self, what: Garbage) -> BoxFuture<'_, Result<Freed, RuntimeError>> {
        self.collect_garbage(what).boxed()
    }

    fn take_back<'a>(
        &'a self,
        uid: &'a PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> BoxFuture<'a, Result<Freed, RuntimeError>> {
        self.reclaim_memory(uid, figure, bytes, time).boxed()
    }
}
