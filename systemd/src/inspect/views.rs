//! The results of queries, as plain values.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use winddown_shared::ScheduledShutdown;
use zbus::{OwnedVariant, Variant};

use crate::logind::proxies::Inhibitor;

/// logind's view of shutdowns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginView {
    /// The longest time that it waits for delay locks (`InhibitDelayMaxSec`).
    pub delay: Duration,
    /// Whether a shutdown is under way.
    pub preparing: bool,
    /// The locks that it lists, in its order.
    pub locks: Vec<LockView>,
    /// The shutdown that is scheduled.
    pub scheduled: Option<ScheduledShutdown>,
}

/// One lock that logind lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockView {
    /// What it inhibits, separated by colons.
    pub what: String,
    /// The name that the holder gave.
    pub who: String,
    /// The reason that the holder gave.
    pub why: String,
    /// `delay` or `block`, with `-weak` since systemd 257.
    pub mode: String,
    /// The user that took it.
    pub uid: u32,
    /// The process that took it; it may have exited while another process keeps the lock.
    pub pid: u32,
}

/// The service manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemView {
    /// Its version with the distribution's suffix, as `252.39-1~deb12u1`.
    pub version: String,
    /// `running`, `degraded`, `stopping` and others.
    pub state: String,
}

/// A service unit.
// Over the limit because each field is a property of the unit that a caller reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceView {
    /// `loaded`, `not-found`, `masked`, `bad-setting`, `error`.
    pub load_state: String,
    /// `active`, `inactive`, `failed`, `activating` and others.
    pub active_state: String,
    /// `running`, `auto-restart` and others.
    pub sub_state: String,
    /// `enabled`, `disabled`, `static` and others; empty when there is no unit file.
    pub unit_file_state: String,
    /// Whether its files changed since systemd read them.
    pub need_daemon_reload: bool,
    /// The unit file; empty when there is none.
    pub fragment_path: String,
    /// The drop-ins, in the order in which systemd reads them.
    pub drop_ins: Vec<String>,
    /// Units it is started after, and stopped before.
    pub after: Vec<String>,
    /// Units it is started before, and stopped after.
    pub before: Vec<String>,
    /// The stop timeout; [`Duration::MAX`] for no limit.
    pub timeout_stop: Duration,
    /// The watchdog interval; zero if it has none.
    pub watchdog: Duration,
    /// The maximum number of file descriptors that systemd stores for it.
    pub fd_store_max: u32,
    /// The number of file descriptors stored now.
    pub fd_store: u32,
    /// `control-group`, `mixed`, `process` or `none`.
    pub kill_mode: String,
    /// `always`, `no`, `on-failure` and others.
    pub restart: String,
    /// How often systemd restarted it automatically.
    pub restarts: u32,
    /// The result of its last run: `success`, `exit-code`, `watchdog` and others.
    pub result: String,
    /// Its main process; 0 when it has none.
    pub main_pid: u32,
    /// Its sandbox.
    pub sandbox: SandboxView,
}

/// What the sandbox of a service leaves it of the file tree. Of a service with bind mounts, nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxView {
    /// The directories that it may write to; `None` if they are not limited, or unknown.
    pub writable: Option<Vec<String>>,
    /// The directories in whose place it sees an empty one, or one of its own.
    pub hidden: Vec<&'static str>,
}

/// A scope, which holds processes that systemd did not start itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeView {
    /// The unit's name.
    pub name: String,
    /// Units it is started before, and stopped after.
    pub before: Vec<String>,
}

/// The limits of a slice. `None` means no limit, or that the value is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceView {
    /// The most processes and threads it may have.
    pub tasks_max: Option<u64>,
    /// The processes and threads that exist now.
    pub tasks: Option<u64>,
    /// The memory limit in bytes.
    pub memory_max: Option<u64>,
}

impl LockView {
    /// Whether a shutdown waits for it: a delay lock for `shutdown`.
    pub fn delays_shutdown(&self) -> bool {
        self.mode == "delay" && self.what.split(':').any(|what| what == "shutdown")
    }
}

impl From<Inhibitor> for LockView {
    fn from((what, who, why, mode, uid, pid): Inhibitor) -> Self {
        Self { what, who, why, mode, uid, pid }
    }
}

impl SystemView {
    /// Returns the major version; `None` when the text does not begin with a number.
    pub fn major(&self) -> Option<u32> {
        let digits = self.version.trim_start_matches('v');
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits.get(..end)?.parse().ok()
    }
}

pub(super) type Properties = HashMap<String, OwnedVariant>;

/// The units that a stop of this one precedes.
pub(super) fn stopped_after(unit: &Properties) -> Vec<String> {
    match &*text(unit, "ActiveState") {
        "active" => ordered_after(unit),
        _ => Vec::new(),
    }
}

/// The units that a start of this one would follow, and a stop precede.
pub(super) fn ordered_after(unit: &Properties) -> Vec<String> {
    strings(unit, "After")
}

/// Builds the view of a service from the properties of both interfaces; missing properties are empty.
pub(super) fn service(unit: &Properties, service: &Properties) -> ServiceView {
    ServiceView {
        load_state: text(unit, "LoadState"),
        active_state: text(unit, "ActiveState"),
        sub_state: text(unit, "SubState"),
        unit_file_state: text(unit, "UnitFileState"),
        need_daemon_reload: flag(unit, "NeedDaemonReload"),
        fragment_path: text(unit, "FragmentPath"),
        drop_ins: strings(unit, "DropInPaths"),
        after: strings(unit, "After"),
        before: strings(unit, "Before"),
        timeout_stop: span(service, "TimeoutStopUSec"),
        watchdog: watchdog(service),
        fd_store_max: number(service, "FileDescriptorStoreMax"),
        fd_store: number(service, "NFileDescriptorStore"),
        kill_mode: text(service, "KillMode"),
        restart: text(service, "Restart"),
        restarts: number(service, "NRestarts"),
        result: text(service, "Result"),
        main_pid: number(service, "MainPID"),
        sandbox: sandbox(service),
    }
}

/// What `ProtectHome=` hides.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];
/// What `PrivateTmp=` hides.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// The line of a unit that shows a service this path, if one of the two settings may hide it.
pub fn setting_that_shows(path: &Path) -> Option<&'static str> {
    let is_below = |all: &[&str]| all.iter().any(|directory| path.starts_with(directory));
    match path {
        _ if is_below(&HOMES) => Some("ProtectHome=read-only"),
        _ if is_below(&TEMPORARY) => Some("PrivateTmp=no"),
        _ => None,
    }
}

/// Builds the view of a service's sandbox.
fn sandbox(service: &Properties) -> SandboxView {
    if has_any(service, "BindPaths") || has_any(service, "BindReadOnlyPaths") {
        return SandboxView::default();
    }
    let mut hidden = Vec::new();
    if matches!(&*text(service, "ProtectHome"), "yes" | "tmpfs") {
        hidden.extend(HOMES);
    }
    if flag(service, "PrivateTmp") {
        hidden.extend(TEMPORARY);
    }
    let is_strict = text(service, "ProtectSystem") == "strict";
    SandboxView { writable: is_strict.then(|| writable(service)), hidden }
}

/// The directories that are open to a service for which all others are read-only.
fn writable(service: &Properties) -> Vec<String> {
    let own = [
        ("RuntimeDirectory", "/run"),
        ("StateDirectory", "/var/lib"),
        ("CacheDirectory", "/var/cache"),
        ("LogsDirectory", "/var/log"),
    ];
    let own = own.into_iter().flat_map(|(property, parent)| {
        strings(service, property).into_iter().map(move |name| format!("{parent}/{name}"))
    });
    // `-`: it may be missing; `+`: it is below the service's root directory.
    let open = strings(service, "ReadWritePaths");
    let open = open.iter().map(|path| path.trim_start_matches(['-', '+']).to_owned());
    own.chain(open).collect()
}

/// Whether a property is a list with at least one entry.
fn has_any(properties: &Properties, name: &str) -> bool {
    matches!(value(properties, name), Some(Variant::Array(array)) if array.iter().count() > 0)
}

/// Whether a property exists and is true.
pub(super) fn flag(properties: &Properties, name: &str) -> bool {
    matches!(value(properties, name), Some(Variant::Bool(true)))
}

pub(super) fn slice(slice: &Properties) -> SliceView {
    let finite = |name: &str| match value(slice, name) {
        Some(Variant::U64(number)) if *number != u64::MAX => Some(*number),
        _ => None,
    };
    SliceView {
        tasks_max: finite("TasksMax"),
        tasks: finite("TasksCurrent"),
        memory_max: finite("MemoryMax"),
    }
}

/// Reads a list of strings; empty if the property is missing.
pub(super) fn strings(properties: &Properties, name: &str) -> Vec<String> {
    match value(properties, name) {
        Some(Variant::Array(array)) => array
            .iter()
            .filter_map(|item| match item {
                Variant::Str(text) => Some(text.to_string()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn value<'a>(properties: &'a Properties, name: &str) -> Option<&'a Variant<'static>> {
    properties.get(name).map(|value| &**value)
}

fn text(properties: &Properties, name: &str) -> String {
    match value(properties, name) {
        Some(Variant::Str(text)) => text.to_string(),
        _ => String::new(),
    }
}

fn number(properties: &Properties, name: &str) -> u32 {
    match value(properties, name) {
        Some(Variant::U32(number)) => *number,
        _ => 0,
    }
}

/// Reads microseconds; all bits set means no limit.
fn span(properties: &Properties, name: &str) -> Duration {
    match value(properties, name) {
        Some(Variant::U64(u64::MAX)) => Duration::MAX,
        Some(Variant::U64(micros)) => Duration::from_micros(*micros),
        _ => Duration::ZERO,
    }
}

/// Reads the watchdog interval. Without a watchdog systemd reports zero or, in some versions, no limit.
fn watchdog(service: &Properties) -> Duration {
    let every = span(service, "WatchdogUSec");
    if every == Duration::MAX { Duration::ZERO } else { every }
}
