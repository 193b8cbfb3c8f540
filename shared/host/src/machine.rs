//! Facts about the host: its name, its clocks, its boot.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::{ProcStat, is_on_tmpfs, kernel, regular};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use winddown_shared::{BootClock, WallClock, WallTime};

/// The host's name according to the kernel; `localhost` if it has none that can be read.
pub fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok());
    name.filter(|n| !n.is_empty()).unwrap_or_else(|| "localhost".to_owned())
}

/// The variable that gives a pod its node's name.
const NODE_NAME: &str = "NODE_NAME";

/// The node's name if its configuration does not set it: the value of `NODE_NAME`, which pods are given because their
/// host name may differ, or else [`host_name`].
pub fn node_name() -> String {
    named_by(std::env::var(NODE_NAME).ok())
}

fn named_by(variable: Option<String>) -> String {
    variable.filter(|name| !name.is_empty()).unwrap_or_else(host_name)
}

/// The variable in which a unit hands its service the boot id (`%b`).
const BOOT_ID: &str = "WINDDOWN_BOOT_ID";

/// The id of this boot; empty if there is none. It is the service manager's where that names it (`WINDDOWN_BOOT_ID`), or
/// else the kernel's: a container has a boot id of its own, which a service with a `/proc` of its own does not see.
pub fn boot_id() -> String {
    let named = std::env::var(BOOT_ID).ok().and_then(|id| as_uuid(&id));
    named.unwrap_or_else(|| {
        let text = kernel::read_to_string("/proc/sys/kernel/random/boot_id");
        text.map(|t| t.trim().to_owned()).unwrap_or_default()
    })
}

/// The id as the kernel writes it. The service manager leaves out the hyphens.
fn as_uuid(id: &str) -> Option<String> {
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-"))
}

/// The first line of a file; empty if it cannot be read.
pub fn first_line(path: &str) -> String {
    let text = regular::read_first(path.as_ref(), 4096).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// The operating system's name for itself.
pub fn os_image() -> String {
    let text =
        regular::read_to_string("/etc/os-release".as_ref(), regular::MAX_CONFIGURATION_BYTES)
            .unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches(['"', '\'']).to_owned())
}

/// The id of a group by its name.
pub fn group_id(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// How long the machine has been up, including sleep.
pub fn uptime() -> Option<Duration> {
    let text = kernel::read_to_string("/proc/uptime").ok()?;
    let seconds = text.split_whitespace().next()?.parse::<f64>().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The kernel's time since boot, including sleep.
pub fn boot_clock() -> BootClock {
    // Not rustix: it panics on kernels with an unexpected vDSO layout.
    let clock = BootClock::new(|| match clock_gettime(ClockId::CLOCK_BOOTTIME) {
        Ok(since) => since.into(),
        Err(_) => uptime().unwrap_or_default(),
    });
    let clock = clock.with_suspended(|| {
        let read = |id| clock_gettime(id).map_or(Duration::ZERO, Duration::from);
        let (monotonic, all) = (read(ClockId::CLOCK_MONOTONIC), read(ClockId::CLOCK_BOOTTIME));
        all.saturating_sub(monotonic)
    });
    clock.with_system_start(system_start().unwrap_or_default())
}

/// When the first process was started, relative to the kernel's boot; none if it cannot be read, or if this is the first
/// process of a container: its restart is not the system's.
fn system_start() -> Option<Duration> {
    if std::process::id() == 1 {
        return None;
    }
    let text = kernel::read_to_string("/proc/1/stat").ok()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    let ticks: u64 = ProcStat::new(&text)?.field(22)?;
    Duration::try_from_secs_f64(ticks as f64 / per_second as f64).ok()
}

/// The machine's wall clock; the only place that reads it.
#[allow(clippy::disallowed_methods, reason = "every other module is handed this clock")]
pub fn wall_clock() -> WallClock {
    WallClock::new(|| WallTime::try_from(SystemTime::now()).unwrap_or(WallTime::UNIX_EPOCH))
}

/// Whether `directory`, or its closest existing ancestor, is on a tmpfs.
pub fn is_in_memory(directory: &Path) -> bool {
    directory.ancestors().find_map(|found| is_on_tmpfs(found).ok()).unwrap_or(false)
}

#[test]
fn a_node_has_the_name_that_a_pod_is_told_and_without_one_that_of_the_host() {
    assert_eq!(named_by(Some("worker-1".to_owned())), "worker-1");
    assert_eq!(named_by(Some(String::new())), host_name());
    assert_eq!(named_by(None), host_name());
}

#[test]
fn the_service_managers_boot_id_is_written_as_the_kernel_writes_it() {
    let id = as_uuid("aeff2bb5576046d89c17f4b5ddda9707");
    assert_eq!(id.as_deref(), Some("aeff2bb5-5760-46d8-9c17-f4b5ddda9707"));
    for other in ["", "%b", "aeff2bb5-5760-46d8-9c17-f4b5ddda9707", "ä".repeat(16).as_str()] {
        assert_eq!(as_uuid(other), None, "{other}");
    }
}
