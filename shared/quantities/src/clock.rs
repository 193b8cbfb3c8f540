//! Wall time and the time since boot, as injected clocks.
//!
//! Decisions are made on tokio's clock, which tests can pause. Wall time only labels what others read (statuses,
//! reports, logs), so it is injected here and never decides anything: a clock that jumps changes labels, not deadlines.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// A point in wall time, as in Kubernetes' `Time`.
pub type WallTime = Timestamp;

/// Reads the wall clock. The binary passes in the real one; tests pass in their own.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> WallTime + Send + Sync>);

/// Reads the time since boot, including suspend: the clock that all agents of one boot share.
#[derive(Clone)]
pub struct BootClock {
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    suspended: Arc<dyn Fn() -> Duration + Send + Sync>,
    system_start: Duration,
}

// === impl WallClock ===

impl WallClock {
    /// Creates a clock that returns what `read` returns.
    pub fn new(read: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Creates a clock that always returns `at`.
    pub fn fixed(at: WallTime) -> Self {
        Self::new(move || at)
    }

    /// The current wall time.
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
    /// Creates a clock that returns what `read` returns.
    pub fn new(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let suspended = Arc::new(|| Duration::ZERO);
        Self { now: Arc::new(read), suspended, system_start: Duration::ZERO }
    }

    /// Sets how to read for how long of the time since boot the machine was suspended.
    #[must_use]
    pub fn with_suspended(self, suspended: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { suspended: Arc::new(suspended), ..self }
    }

    /// Sets how long after its kernel the system was started. In a container the boot ID is that of the host, and after
    /// a soft-reboot it is unchanged, so it does not distinguish one start of the system from another.
    #[must_use]
    pub fn with_system_start(self, system_start: Duration) -> Self {
        Self { system_start, ..self }
    }

    /// When the system was started, relative to the kernel's boot.
    pub fn system_start(&self) -> Duration {
        self.system_start
    }

    /// The current time since boot.
    pub fn now(&self) -> Duration {
        (self.now)()
    }

    /// For how long of that the machine was suspended. tokio's clock stands still then.
    pub fn suspended(&self) -> Duration {
        (self.suspended)()
    }
}

impl std::fmt::Debug for BootClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BootClock")
    }
}
