//! What the kernel says about a process: memory, time on a processor, wake-ups.

use std::fs;
use std::time::Duration;

/// What a process has used since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// On a processor, all threads together.
    pub(crate) cpu: Duration,
    /// How often a thread went to sleep by itself: as often it was woken.
    pub(crate) wake_ups: u64,
}

/// Reads what the process has used; zero for one that is gone.
pub(crate) fn used(pid: u32) -> Used {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().fold(Used::default(), |sum, thread| {
        let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        // The first number is the time on a processor in nanoseconds; /proc/PID/stat would round
        // to hundredths of a second.
        let cpu = read("schedstat").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        Used {
            cpu: sum.cpu + Duration::from_nanos(cpu),
            wake_ups: sum.wake_ups + number(&read("status"), "voluntary_ctxt_switches:"),
        }
    })
}

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Resident, counting pages shared with others in full.
    pub(crate) resident: u64,
    /// Its fair share: a page shared by n processes counts 1/n.
    pub(crate) share: u64,
}

/// Reads a process's memory; zero for one that is gone.
pub(crate) fn memory(pid: u32) -> Memory {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    Memory { resident: number(&rollup, "Rss:") * 1024, share: number(&rollup, "Pss:") * 1024 }
}

/// All running processes whose first two words are the given ones.
pub(crate) fn with_words(program: &str, command: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let mut words = line.split('\0');
        (words.next()? == program && words.next()? == command).then_some(pid)
    })
    .collect()
}

fn number(text: &str, field: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(field));
    value.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{memory, number, used};

    #[test]
    fn our_own_process_uses_something() {
        let pid = std::process::id();
        assert!(used(pid).cpu.as_nanos() > 0);
        assert!(memory(pid).resident >= memory(pid).share);
    }

    #[test]
    fn a_field_is_read_without_its_unit() {
        assert_eq!(number("Rss:   12 kB\nPss:  7 kB\n", "Pss:"), 7);
        assert_eq!(number("", "Pss:"), 0);
    }
}
