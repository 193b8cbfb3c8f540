//! Resource usage of processes: memory, CPU time, wake-ups.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What processes use while they are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The CPU time of all threads together.
    pub cpu: Duration,
    /// How often a thread went to sleep voluntarily, which is how often it was woken.
    pub wake_ups: u64,
}

/// Sums up what the threads of some processes use. The kernel keeps these numbers per thread and drops them with the
/// thread, so they must be sampled repeatedly.
#[derive(Debug)]
pub struct Watch {
    pids: Vec<u32>,
    last: HashMap<u32, Used>,
    sum: Used,
}

impl Watch {
    /// Starts to watch `pids`.
    pub fn new(pids: Vec<u32>) -> Self {
        let mut watch = Self { pids, last: HashMap::new(), sum: Used::default() };
        watch.look();
        watch.sum = Used::default();
        watch
    }

    /// Adds what was used since the last sample.
    pub fn look(&mut self) {
        let now: HashMap<u32, Used> = self.pids.iter().copied().flat_map(threads).collect();
        for (thread, used) in &now {
            let before = self.last.get(thread).copied().unwrap_or_default();
            self.sum.cpu += used.cpu.saturating_sub(before.cpu);
            self.sum.wake_ups += used.wake_ups.saturating_sub(before.wake_ups);
        }
        self.last = now;
    }

    /// The usage between the start and the last sample.
    pub fn used(&self) -> Used {
        self.sum
    }
}

/// The usage of a process's current threads since they were started.
pub fn since_start(pid: u32) -> Used {
    let mut sum = Used::default();
    for (_, used) in threads(pid) {
        sum.cpu += used.cpu;
        sum.wake_ups += used.wake_ups;
    }
    sum
}

/// The usage of each thread of a process since its start; empty for a process that is gone.
fn threads(pid: u32) -> Vec<(u32, Used)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| {
            let read = |name| fs::read_to_string(thread.path().join(name)).ok();
            // The first number is the CPU time in nanoseconds; /proc/PID/stat would round it to hundredths of a second.
            let cpu = read("schedstat")?.split(' ').next()?.parse().ok()?;
            let wake_ups = number(&read("status")?, "voluntary_ctxt_switches:");
            let id = thread.file_name().to_str()?.parse().ok()?;
            Some((id, Used { cpu: Duration::from_nanos(cpu), wake_ups }))
        })
        .collect()
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The resident memory, with shared pages counted in full.
    pub resident: u64,
    /// The proportional share: a page shared by n processes counts 1/n.
    pub share: u64,
    /// The resident pages that belong to no file: heap, stacks, relocated data.
    pub anonymous: u64,
    /// The resident pages that were used since [`forget_touched`], or ever.
    pub touched: u64,
}

/// Reads the memory of a process; zero for one that is gone.
pub fn memory(pid: u32) -> Memory {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let bytes = |field| number(&rollup, field) * 1024;
    Memory {
        resident: bytes("Rss:"),
        share: bytes("Pss:"),
        anonymous: bytes("Anonymous:"),
        touched: bytes("Referenced:"),
    }
}

/// Resets what [`Memory::touched`] counts. Not every kernel supports this; then it keeps counting.
///
/// # Errors
/// An error of the operating system.
pub fn forget_touched(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "1")
}

/// The resident memory of this process, in bytes.
pub fn own_memory() -> u64 {
    memory(std::process::id()).resident
}

/// All running processes of the given program whose first argument is `command`.
pub fn running(program: &Path, command: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let is_it = line.split('\0').nth(1) == Some(command)
            && fs::read_link(entry.path().join("exe")).ok()? == program;
        is_it.then_some(pid)
    })
    .collect()
}

fn number(text: &str, field: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(field));
    value.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The number of processors of this machine, as the agent counts them: this process may be restricted to fewer.
///
/// # Errors
/// `/proc/cpuinfo` cannot be read.
pub fn processors() -> io::Result<usize> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    Ok(text.lines().filter(|line| line.starts_with("processor")).count())
}

#[cfg(test)]
mod tests {
    use super::{Watch, memory, number};

    #[test]
    fn a_thread_that_comes_and_goes_takes_nothing_away() {
        let mut watch = Watch::new(vec![std::process::id()]);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv().is_ok());
        watch.look();
        let with_it = watch.used();
        end.send(()).unwrap();
        assert!(thread.join().unwrap());
        watch.look();
        assert!(watch.used().cpu >= with_it.cpu);
        assert!(watch.used().wake_ups >= with_it.wake_ups);
        assert!(watch.used().cpu.as_nanos() > 0);
    }

    #[test]
    fn our_own_memory_is_at_least_our_share() {
        let memory = memory(std::process::id());
        assert!(memory.share > 0 && memory.resident >= memory.share);
        assert!(memory.anonymous > 0 && memory.resident > memory.anonymous);
    }

    #[test]
    fn a_field_is_read_without_its_unit() {
        assert_eq!(number("Rss:   12 kB\nPss:  7 kB\n", "Pss:"), 7);
        assert_eq!(number("", "Pss:"), 0);
    }
}
