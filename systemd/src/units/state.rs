//! A service's state, put together from its properties.

use std::collections::HashMap;
use std::time::Duration;

use winddown_shared::WallTime;
use zbus::{OwnedVariant, Variant};

/// A service as systemd sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceState {
    /// How far it has come.
    pub phase: ServicePhase,
    /// How its main process ended, if it has.
    pub end: Option<ServiceEnd>,
    /// Its main process, while that runs.
    pub main_pid: Option<i32>,
}

/// How far a service has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServicePhase {
    /// Its program is not executed yet.
    #[default]
    Starting,
    /// Its main process runs.
    Running,
    /// Its main process ended well; what else it started may still run.
    Exited,
    /// It is being stopped.
    Stopping,
    /// Nothing of it runs.
    Over,
}

/// How a service's main process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceEnd {
    /// Its exit code; none if a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// `Result` is `oom-kill`.
    pub out_of_memory: bool,
    /// When it started.
    pub started_at: Option<WallTime>,
    /// When it ended.
    pub finished_at: Option<WallTime>,
    /// How long it ran, by the monotonic clock.
    pub ran: Duration,
}

/// A unit's properties. Times are in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitProperties {
    active: String,
    sub: String,
    result: String,
    main_pid: u32,
    code: i32,
    status: i32,
    started: Moment,
    ended: Moment,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    wall: u64,
    monotonic: u64,
}

/// `CLD_EXITED`, as `ExecMainCode` has it; everything else is a signal's work.
const EXITED: i32 = 1;

impl UnitProperties {
    /// Takes what is told, by whichever interface; the rest stays.
    pub(super) fn take(&mut self, properties: &HashMap<String, OwnedVariant>) {
        for (name, value) in properties {
            let value: &Variant<'_> = value;
            match (name.as_str(), value) {
                ("ActiveState", Variant::Str(text)) => self.active = text.to_string(),
                ("SubState", Variant::Str(text)) => self.sub = text.to_string(),
                ("Result", Variant::Str(text)) => self.result = text.to_string(),
                ("MainPID", Variant::U32(pid)) => self.main_pid = *pid,
                ("ExecMainCode", Variant::I32(code)) => self.code = *code,
                ("ExecMainStatus", Variant::I32(status)) => self.status = *status,
                ("ExecMainStartTimestamp", Variant::U64(at)) => self.started.wall = *at,
                ("ExecMainStartTimestampMonotonic", Variant::U64(at)) => {
                    self.started.monotonic = *at;
                }
                ("ExecMainExitTimestamp", Variant::U64(at)) => self.ended.wall = *at,
                ("ExecMainExitTimestampMonotonic", Variant::U64(at)) => self.ended.monotonic = *at,
                _ => {}
            }
        }
    }

    pub(super) fn state(&self) -> ServiceState {
        let pid = i32::try_from(self.main_pid).ok().filter(|&pid| pid > 0);
        ServiceState { phase: self.phase(), end: self.end(), main_pid: pid }
    }

    fn phase(&self) -> ServicePhase {
        match (self.active.as_str(), self.sub.as_str()) {
            ("active", "exited") => ServicePhase::Exited,
            ("active" | "reloading" | "refreshing", _) => ServicePhase::Running,
            ("deactivating", _) => ServicePhase::Stopping,
            ("failed", _) => ServicePhase::Over,
            // One that is only just starting is inactive too: systemd says so of it even when its
            // process is there already.
            ("inactive", _) if self.main_pid == 0 && self.ended.monotonic > 0 => ServicePhase::Over,
            _ => ServicePhase::Starting,
        }
    }

    fn end(&self) -> Option<ServiceEnd> {
        if self.code == 0 || self.ended.monotonic == 0 {
            return None;
        }
        let is_exit = self.code == EXITED;
        Some(ServiceEnd {
            exit_code: is_exit.then_some(self.status),
            signal: (!is_exit).then_some(self.status),
            out_of_memory: self.result == "oom-kill",
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
