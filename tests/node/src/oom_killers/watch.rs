//! Watches the pods in the node: when each is asked to stop, and when it is gone.

use std::error::Error;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{FEW_TASKS, LOGS, SHORT_MIB};

const LOOK: Duration = Duration::from_millis(20);
/// How long to watch the culprit once something is short, and, below, the others after the culprit is gone.
const PATIENCE: Duration = Duration::from_secs(45);
const AFTER: Duration = Duration::from_secs(3);
/// The number of additional tasks that may be started: a fork bomb reaches it before it has used up the memory.
const MORE_TASKS: u64 = 600;
const MOST_TASKS: &str = "/proc/sys/kernel/threads-max";
/// The longest time to wait for a shortage.
const LIMIT: Duration = Duration::from_secs(150);

/// The process of a pod.
#[derive(Debug)]
struct Seen<'a> {
    name: &'a str,
    pid: Option<u32>,
    /// When it was first seen to have been asked to stop or to be gone, and which of both.
    acted: Option<(Instant, &'static str)>,
    gone: Option<Instant>,
}

/// Watches until the culprit is gone or the time is over, and returns what happened as JSON. The other pods must be
/// running; the culprit may not have started yet.
///
/// # Errors
/// A file of `/proc` cannot be read.
pub fn watch(culprit: &str, others: &[String]) -> Result<Value, Box<dyn Error>> {
    let most = fs::read_to_string(MOST_TASKS)?;
    fs::write(MOST_TASKS, (tasks()? + MORE_TASKS).to_string())?;
    let seen = look(culprit, others);
    // Without free tasks, the result could not be sent to the host.
    fs::write(MOST_TASKS, most)?;
    seen
}

fn look(culprit: &str, others: &[String]) -> Result<Value, Box<dyn Error>> {
    let names = std::iter::once(culprit).chain(others.iter().map(String::as_str));
    let mut pods: Vec<Seen<'_>> =
        names.map(|name| Seen { name, pid: None, acted: None, gone: None }).collect();
    let (start, stalled, kernel) = (Instant::now(), stalled_us()?, killed_by_kernel()?);
    let (mut short, mut least, mut kernel_was_first) = (None, u64::MAX, false);
    loop {
        let now = Instant::now();
        let mib = meminfo("MemAvailable:")? / 1024;
        least = least.min(mib);
        if short.is_none() && (mib < SHORT_MIB || tasks_left()? < FEW_TASKS) {
            short = Some(now);
        }
        let none_has_acted = pods.iter().all(|pod| pod.acted.is_none());
        pods.iter_mut().for_each(|pod| pod.look(now));
        if none_has_acted && pods.iter().any(|pod| pod.acted.is_some()) {
            kernel_was_first = killed_by_kernel()? > kernel;
        }
        let is_over = |since: Option<Instant>, long| since.is_some_and(|since| now >= since + long);
        if is_over(pods[0].gone, AFTER) || is_over(short, PATIENCE) || now > start + LIMIT {
            break;
        }
        std::thread::park_timeout(LOOK);
    }
    let since_short = |at: Option<Instant>| {
        at.map(|at| match short {
            Some(short) if at >= short => {
                i128::try_from((at - short).as_millis()).unwrap_or(i128::MAX)
            }
            Some(short) => -i128::try_from((short - at).as_millis()).unwrap_or(i128::MAX),
            None => 0,
        })
        .and_then(|ms| i64::try_from(ms).ok())
    };
    let told = pods.iter().map(|pod| {
        json!({
            "name": pod.name,
            "found": pod.pid.is_some(),
            "how": pod.acted.map(|(_, how)| how),
            "actedMs": since_short(pod.acted.map(|(at, _)| at)),
            "goneMs": since_short(pod.gone),
        })
    });
    Ok(json!({
        "wasShort": short.is_some(),
        "leastMib": least,
        "stalledMs": (stalled_us()? - stalled) / 1000,
        "killedByKernel": killed_by_kernel()? - kernel,
        "kernelWasFirst": kernel_was_first,
        "pods": told.collect::<Vec<_>>(),
    }))
}

impl Seen<'_> {
    fn look(&mut self, now: Instant) {
        let log = format!("{LOGS}/{}", self.name);
        self.pid = self.pid.or_else(|| process_with(&log));
        let Some(pid) = self.pid else { return };
        if self.gone.is_none() && is_gone(pid) {
            self.gone = Some(now);
        }
        if self.acted.is_some() {
            return;
        }
        let asked = fs::read_to_string(&log).is_ok_and(|text| text.contains("term "));
        let how = if asked { "SIGTERM" } else { "SIGKILL" };
        self.acted = (asked || self.gone.is_some()).then_some((now, how));
    }
}

/// The process that was started with `word` as its first argument.
fn process_with(word: &str) -> Option<u32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        (line.split(|byte| *byte == 0).nth(1) == Some(word.as_bytes())).then_some(pid)
    })
}

fn is_gone(pid: u32) -> bool {
    // The name may contain brackets; the state follows the last one.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// A value of `/proc/meminfo` in KiB.
fn meminfo(name: &str) -> Result<u64, Box<dyn Error>> {
    number_after(&fs::read_to_string("/proc/meminfo")?, name)
}

/// How long tasks have waited for memory since boot, in microseconds.
fn stalled_us() -> Result<u64, Box<dyn Error>> {
    number_after(&fs::read_to_string("/proc/pressure/memory")?, "total=")
}

fn killed_by_kernel() -> Result<u64, Box<dyn Error>> {
    number_after(&fs::read_to_string("/proc/vmstat")?, "\noom_kill ")
}

fn tasks_left() -> Result<u64, Box<dyn Error>> {
    let most: u64 = fs::read_to_string(MOST_TASKS)?.trim().parse()?;
    Ok(most.saturating_sub(tasks()?))
}

fn tasks() -> Result<u64, Box<dyn Error>> {
    number_after(&fs::read_to_string("/proc/loadavg")?, "/")
}

/// The number after the first `name` in the text.
fn number_after(text: &str, name: &str) -> Result<u64, Box<dyn Error>> {
    let (_, rest) = text.split_once(name).ok_or_else(|| format!("there is no '{name}'"))?;
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    Ok(digits.parse()?)
}

#[cfg(test)]
mod tests {
    use super::number_after;

    #[test]
    fn the_first_number_of_that_name_is_read() {
        let pressure =
            "some avg10=0.50 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=9\n";
        assert_eq!(number_after(pressure, "total=").unwrap(), 1234);
        assert_eq!(number_after("0.1 0.2 0.3 2/345 99\n", "/").unwrap(), 345);
        assert_eq!(number_after("a 1\noom_kill 3\n", "\noom_kill ").unwrap(), 3);
        assert!(number_after("MemTotal: x kB", "MemTotal:").is_err());
        assert!(number_after("", "total=").is_err());
    }
}
