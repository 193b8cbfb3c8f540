//! Wall time and the time since boot, handed in.
//!
//! Decisions are made on tokio's clock, which tests can pause. Wall time only labels what others
//! read (statuses, reports, logs), so it comes in through this seam and never decides anything: a
//! clock that jumps changes labels, not deadlines.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// A moment of wall time, as Kubernetes' `Time` carries it.
pub type WallTime = Timestamp;

/// Reads the wall clock. The binary hands in the real one; tests hand in their own.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> WallTime + Send + Sync>);

/// Reads the time since boot, sleep included: the clock that one run's agents have in common.
#[derive(Clone)]
pub struct BootClock {
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    system_start: Duration,
}

// === impl WallClock ===

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

// === impl BootClock ===

impl BootClock {
    /// A clock that answers with what `read` returns.
    pub fn new(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(read), system_start: Duration::ZERO }
    }

    /// The same on a system that was started this long after its kernel: in a container the boot id is
    /// that of the host, and after a soft reboot that of before, and does not tell one start of the
    /// system from another.
    #[must_use]
    pub fn with_system_start(self, system_start: Duration) -> Self {
        Self { system_start, ..self }
    }

    /// When the system was started, counted from the kernel's boot.
    pub fn system_start(&self) -> Duration {
        self.system_start
    }

    /// The time since boot.
    pub fn now(&self) -> Duration {
        (self.now)()
    }
}

impl std::fmt::Debug for BootClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BootClock")
    }
}
