//! Wall time, handed in.
//!
//! Decisions are made on tokio's clock, which tests can pause. Wall time only labels what others
//! read (statuses, reports, logs), so it comes in through this seam and never decides anything: a
//! clock that jumps changes labels, not deadlines.

use std::sync::Arc;

use jiff::Timestamp;

/// A moment of wall time, as Kubernetes' `Time` carries it.
pub type WallTime = Timestamp;

/// Reads the wall clock. The binary hands in the real one; tests hand in their own.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> WallTime + Send + Sync>);

impl WallClock {
    /// A clock that answers with what `read` returns.
    pub fn new(read: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// A clock that stands still at `at`.
    pub fn fixed(at: WallTime) -> Self {
        Self::new(move || at)
    }

    /// The wall time now.
    pub fn now(&self) -> WallTime {
        (self.0)()
    }
}

impl std::fmt::Debug for WallClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WallClock")
    }
}
