//! What of /proc and /sys a container does not see.

use std::path::Path;

/// The paths that the kubelet hides on every machine.
const EVERYWHERE: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// The directories of the processors, below /sys.
const PROCESSORS: &str = "devices/system/cpu";
/// Below that of a processor: how often heat has slowed it down, which tells what others compute.
const THROTTLE: &str = "thermal_throttle";

/// The paths that are hidden from a container, unless it is privileged: the kubelet's. Reads the kernel's `/sys`.
///
/// The runtime hides these instead of its own choice.
pub(super) fn masked_paths(sys: &Path) -> Vec<String> {
    let processors = std::fs::read_dir(sys.join(PROCESSORS)).into_iter().flatten().flatten();
    let with_throttle = processors.filter(|processor| processor.path().join(THROTTLE).exists());
    let throttles = with_throttle.map(|processor| {
        format!("/sys/{PROCESSORS}/{}/{THROTTLE}", processor.file_name().display())
    });
    EVERYWHERE.iter().map(|&path| path.to_owned()).chain(throttles).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_often_a_processor_was_slowed_down_is_hidden() {
        let sys = tempfile::tempdir().unwrap();
        let masked = || masked_paths(sys.path());
        assert_eq!(masked(), EVERYWHERE);
        for directory in ["cpu0/thermal_throttle", "cpu1/cache", "cpufreq"] {
            std::fs::create_dir_all(sys.path().join(PROCESSORS).join(directory)).unwrap();
        }
        assert_eq!(masked()[EVERYWHERE.len()..], ["/sys/devices/system/cpu/cpu0/thermal_throttle"]);
    }
}
