//! A service's state, assembled from its properties.

use std::collections::HashMap;
use std::time::Duration;

use winddown_host::service_units::{UnitEnd, UnitExit, UnitPhase, UnitView};
use winddown_shared::WallTime;
use zbus::{OwnedVariant, Variant};

/// A unit's properties. Times are in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitProperties {
    active: String,
    sub: String,
    result: String,
    main_pid: u32,
    /// In microseconds.
    stop_timeout: Option<u64>,
    code: i32,
    status: i32,
    started: Moment,
    ended: Moment,
    /// When the service was last no longer active, on the monotonic clock.
    inactive_since: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    wall: u64,
    monotonic: u64,
}

/// `CLD_EXITED` in `ExecMainCode`; any other non-zero code means that a signal killed the process.
const EXITED: i32 = 1;

impl UnitProperties {
    /// Stores the given properties, of either interface; the others stay as they are.
    pub(super) fn take(&mut self, properties: &HashMap<String, OwnedVariant>) {
        for (name, value) in properties {
            let value: &Variant<'_> = value;
            match (name.as_str(), value) {
                ("ActiveState", Variant::Str(text)) => self.active = text.to_string(),
                ("SubState", Variant::Str(text)) => self.sub = text.to_string(),
                ("Result", Variant::Str(text)) => self.result = text.to_string(),
                ("MainPID", Variant::U32(pid)) => self.main_pid = *pid,
                ("TimeoutStopUSec", Variant::U64(time)) => self.stop_timeout = Some(*time),
                ("ExecMainCode", Variant::I32(code)) => self.code = *code,
                ("ExecMainStatus", Variant::I32(status)) => self.status = *status,
                ("ExecMainStartTimestamp", Variant::U64(at)) => self.started.wall = *at,
                ("ExecMainStartTimestampMonotonic", Variant::U64(at)) => {
                    self.started.monotonic = *at;
                }
                ("ExecMainExitTimestamp", Variant::U64(at)) => self.ended.wall = *at,
                ("ExecMainExitTimestampMonotonic", Variant::U64(at)) => self.ended.monotonic = *at,
                ("ActiveExitTimestampMonotonic", Variant::U64(at)) => self.inactive_since = *at,
                _ => {}
            }
        }
    }

    pub(super) fn state(&self) -> UnitView {
        let pid = i32::try_from(self.main_pid).ok().filter(|&pid| pid > 0);
        let stop_timeout = self.stop_timeout.map(Duration::from_micros);
        UnitView { phase: self.phase(), end: self.end(), main_pid: pid, stop_timeout }
    }

    fn phase(&self) -> UnitPhase {
        match (self.active.as_str(), self.sub.as_str()) {
            ("active", "exited") => UnitPhase::Exited,
            ("active" | "reloading" | "refreshing", _) => UnitPhase::Running,
            ("deactivating", _) => UnitPhase::Stopping,
            ("failed", _) => UnitPhase::Over,
            // A service that is just starting is inactive too, for a moment even when its process
            // already exists.
            ("inactive", _) if self.main_pid == 0 && self.ended.monotonic > 0 => UnitPhase::Over,
            _ => UnitPhase::Starting,
        }
    }

    fn end(&self) -> Option<UnitEnd> {
        if self.code == 0 || self.ended.monotonic == 0 {
            return None;
        }
        let status = match self.code == EXITED {
            true => UnitExit::Code(self.status),
            false => UnitExit::Signal(self.status),
        };
        Some(UnitEnd {
            status,
            out_of_memory: self.result == "oom-kill",
            // One that exits by itself becomes inactive after that.
            stopped: (1..self.ended.monotonic).contains(&self.inactive_since),
            started_at: wall(self.started.wall),
            finished_at: wall(self.ended.wall),
            ran: Duration::from_micros(self.ended.monotonic.saturating_sub(self.started.monotonic)),
        })
    }
}

fn wall(micros: u64) -> Option<WallTime> {
    let micros = i64::try_from(micros).ok().filter(|&micros| micros > 0)?;
    WallTime::from_microsecond(micros).ok()
}
