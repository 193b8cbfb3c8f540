//! What the agent reads of the host it runs on.

use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use winddown_machine::{Capacity, Roots, UsagePlaces};
use winddown_shared::{ProcStat, WallClock, WallTime};
use winddown_shutdown::BootClock;
use winddown_systemd::Bus;
use winddown_systemd::inspect::Inspector;

use crate::node::Machine;
use winddown_config::Config;

/// The host's name, as the kernel has it; `localhost` if it has none that can be read.
pub fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok());
    name.filter(|n| !n.is_empty()).unwrap_or_else(|| "localhost".to_owned())
}

/// The machine that the pods run on. They write to the file system of the state directory.
pub(super) fn machine(config: &Config) -> Machine {
    let roots = Roots::of_host(&config.state_directory);
    Machine {
        host_name: host_name().trim().to_ascii_lowercase(),
        capacity: Box::new(move || Capacity::read(&roots)),
    }
}

/// Names the cgroup whose limits bound the node, for an agent in a container and for tests.
const NODE_CGROUP: &str = "WINDDOWN_NODE_CGROUP";

/// Where the machine's use is measured. Logs and volumes are on the file system of the state
/// directory.
pub(super) fn usage_places(config: &Config) -> UsagePlaces {
    let host = UsagePlaces::of_host(&config.state_directory);
    match std::env::var(NODE_CGROUP) {
        Ok(cgroup) if cgroup.starts_with('/') => UsagePlaces { node_cgroup: cgroup, ..host },
        _ => host,
    }
}

/// The kernel's boot id; empty where there is none.
pub(super) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map(|t| t.trim().to_owned()).unwrap_or_default()
}

/// The first line of a file of the host; empty where there is none that can be read.
pub(super) fn first_line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// What the operating system calls itself.
pub(super) fn os_image() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches(['"', '\'']).to_owned())
}

/// The id of a group by its name.
pub(super) fn group_id(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// How long the machine has been up, sleep included.
pub(super) fn uptime() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds = text.split_whitespace().next()?.parse::<f64>().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The kernel's time since boot, sleep included.
pub fn boot_clock() -> BootClock {
    // Not rustix: it panics on a kernel whose vDSO is not laid out as it expects.
    let clock = BootClock::new(|| match clock_gettime(ClockId::CLOCK_BOOTTIME) {
        Ok(since) => since.into(),
        Err(_) => uptime().unwrap_or_default(),
    });
    clock.with_system_start(system_start().unwrap_or_default())
}

/// How long the start of the agent waits for systemd's word; a system bus answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// The same, and with it when user space was started, which a soft reboot does anew. A kind of shutdown
/// that could not be learned is told by that.
pub(super) async fn boot_clock_of_user_space() -> BootClock {
    let clock = boot_clock();
    let asked =
        async { Inspector::connect(&Bus::System, PATIENCE).await?.soft_rebooted_at().await };
    match asked.await {
        Ok(Some(at)) => {
            // systemd's clock does not count the machine's sleep.
            let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(at, Duration::from);
            let started = clock.now().saturating_sub(monotonic.saturating_sub(at));
            let started = started.max(clock.system_start());
            clock.with_system_start(started)
        }
        Ok(None) => clock,
        Err(error) => {
            tracing::debug!("whether this is a soft reboot is not known: {error}");
            clock
        }
    }
}

/// When the first process was started, since the kernel's boot; none where that cannot be read.
fn system_start() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/1/stat").ok()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    let ticks: u64 = ProcStat::new(&text)?.field(22)?;
    Duration::try_from_secs_f64(ticks as f64 / per_second as f64).ok()
}

/// The machine's own wall clock: the one place that reads it.
#[allow(clippy::disallowed_methods, reason = "every other module is handed this clock")]
pub fn wall_clock() -> WallClock {
    WallClock::new(|| WallTime::try_from(SystemTime::now()).unwrap_or(WallTime::UNIX_EPOCH))
}
