//! The way to stop a slice. The program that embeds this crate provides it, because only that speaks to systemd.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use winddown_shared::service_units::UnitError;

/// Has systemd stop a slice, with everything in it.
#[derive(Clone)]
pub struct StopSlice(Stop);

type Stop = Arc<dyn Fn(String) -> BoxFuture<'static, Result<(), UnitError>> + Send + Sync>;

// === impl StopSlice ===

impl StopSlice {
    /// `stop` takes the slice's name and resolves when systemd has accepted the request, without waiting for the slice.
    /// One that does not exist counts as stopped.
    pub fn new<F>(stop: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), UnitError>> + Send + 'static,
    {
        let stop: Stop = Arc::new(move |slice| Box::pin(stop(slice)));
        Self(stop)
    }

    pub(crate) fn stop(&self, slice: String) -> BoxFuture<'static, Result<(), UnitError>> {
        (self.0)(slice)
    }
}

impl fmt::Debug for StopSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StopSlice")
    }
}
