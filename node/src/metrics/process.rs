//! The resource usage of the agent itself, as Prometheus clients usually report it.

use std::fs;
use std::path::PathBuf;

use winddown_host::{ProcStat, kernel};

/// The current resource usage of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUsage {
    /// User and system CPU time since the start, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Virtual memory, in bytes.
    pub virtual_bytes: u64,
    /// The number of open file descriptors; `None` if they cannot be counted.
    pub open_fds: Option<u64>,
    /// The limit of open file descriptors; `None` if there is no limit.
    pub max_fds: Option<u64>,
    /// When the agent started, in seconds since 1970; `None` if the boot time is unknown.
    pub started_at: Option<f64>,
}

/// Reads [`ProcessUsage`] from the proc file system.
#[derive(Clone, Debug)]
pub struct ProcessReader {
    proc: PathBuf,
    ticks_per_second: f64,
    page_bytes: u64,
    /// When the machine was booted, in seconds since 1970.
    booted_at: Option<u64>,
}

impl ProcessReader {
    /// A reader of the proc file system mounted at `proc`.
    pub fn new(proc: impl Into<PathBuf>) -> Self {
        let proc = proc.into();
        // Read once: it does not change, and the file is long on a machine with many CPUs.
        let booted_at =
            kernel::read_to_string(proc.join("stat")).ok().as_deref().and_then(boot_time);
        Self {
            proc,
            ticks_per_second: u32::try_from(rustix::param::clock_ticks_per_second())
                .map_or(100.0, f64::from),
            page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
            booted_at,
        }
    }

    /// Reads the usage of this process; `None` without a proc file system.
    pub fn read(&self) -> Option<ProcessUsage> {
        let text = kernel::read_to_string(self.proc.join("self/stat")).ok()?;
        let stat = Stat::parse(&text)?;
        let ticks = |ticks: u64| seconds(ticks) / self.ticks_per_second;
        Some(ProcessUsage {
            cpu_seconds: ticks(stat.cpu_ticks),
            resident_bytes: stat.resident_pages.saturating_mul(self.page_bytes),
            virtual_bytes: stat.virtual_bytes,
            open_fds: self.open_fds(),
            max_fds: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            started_at: self.booted_at.map(|boot| seconds(boot) + ticks(stat.start_ticks)),
        })
    }

    fn open_fds(&self) -> Option<u64> {
        let entries = fs::read_dir(self.proc.join("self/fd")).ok()?;
        // The listing includes the descriptor that reads the directory.
        u64::try_from(entries.count()).ok().map(|n| n.saturating_sub(1))
    }
}

/// The fields needed from `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        let stat = ProcStat::new(text)?;
        Some(Self {
            cpu_ticks: stat.field::<u64>(14)?.saturating_add(stat.field(15)?),
            start_ticks: stat.field(22)?,
            virtual_bytes: stat.field(23)?,
            resident_pages: stat.field(24)?,
        })
    }
}

fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Exact below 2^53, which is far beyond any value measured here.
#[allow(clippy::cast_precision_loss, reason = "there is no other way from u64 to f64")]
fn seconds(whole: u64) -> f64 {
    whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4242 (wind) down) S 1 4242 4242 0 -1 4194304 1 2 3 4 150 50 7 8 20 0 9 0 \
        12345 99999744 2560 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0";

    #[test]
    fn the_fields_are_found_behind_a_name_with_parentheses_and_spaces() {
        let expected = Stat {
            cpu_ticks: 200,
            start_ticks: 12345,
            virtual_bytes: 99_999_744,
            resident_pages: 2560,
        };
        assert_eq!(Stat::parse(STAT), Some(expected));
    }

    #[test]
    fn a_file_that_is_cut_off_or_something_else_gives_nothing() {
        for text in
            ["", "1 (a) S 1 2", "no name", "1 (a) S x x x x x x x x x x x x x x x x x x x x x x x"]
        {
            assert_eq!(Stat::parse(text), None, "{text:?}");
        }
        assert_eq!(boot_time("cpu 1 2\nbtime x\n"), None);
    }

    #[test]
    fn usage_is_put_together_from_what_is_there() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(ProcessReader::new(proc.path()).read(), None, "no proc file system");
        fs::create_dir_all(proc.path().join("self/fd")).unwrap();
        fs::write(proc.path().join("self/stat"), STAT).unwrap();
        for fd in ["0", "1", "2", "3"] {
            fs::write(proc.path().join("self/fd").join(fd), "").unwrap();
        }
        let usage = ProcessReader::new(proc.path()).read().unwrap();
        assert_eq!(usage.started_at, None, "the boot time is not known");
        fs::write(proc.path().join("stat"), "cpu 1 2\nbtime 1000000\nprocesses 3\n").unwrap();
        let mut reader = ProcessReader::new(proc.path());
        (reader.ticks_per_second, reader.page_bytes) = (100.0, 4096);
        let usage = ProcessUsage { max_fds: None, ..reader.read().unwrap() };
        let expected = ProcessUsage {
            cpu_seconds: 2.0,
            resident_bytes: 2560 * 4096,
            virtual_bytes: 99_999_744,
            open_fds: Some(3),
            max_fds: None,
            started_at: Some(1_000_123.45),
        };
        assert_eq!(usage, expected);
    }

    #[test]
    fn this_process_can_be_read() {
        let usage = ProcessReader::new("/proc").read().unwrap();
        assert!(usage.resident_bytes > 100_000 && usage.virtual_bytes >= usage.resident_bytes);
        assert!(usage.open_fds.is_some_and(|n| n >= 3));
        assert!(usage.started_at.is_some_and(|at| at > 1_500_000_000.0));
    }
}
