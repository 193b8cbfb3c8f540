//! What the agent reads of the host it runs on.

use std::time::SystemTime;

use winddown_shared::{WallClock, WallTime};

/// The host's name, as the kernel has it; `localhost` if it has none that can be read.
pub fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok());
    name.filter(|n| !n.is_empty()).unwrap_or_else(|| "localhost".to_owned())
}

/// The kernel's boot id; empty where there is none.
pub(super) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map(|t| t.trim().to_owned()).unwrap_or_default()
}

/// The id of a group by its name.
pub(super) fn group_id(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// The machine's own wall clock: the one place that reads it.
#[allow(clippy::disallowed_methods, reason = "every other module is handed this clock")]
pub fn wall_clock() -> WallClock {
    WallClock::new(|| WallTime::try_from(SystemTime::now()).unwrap_or(WallTime::UNIX_EPOCH))
}
