//! The memory hog of the pressure tests, with earlyoom in place of winddown.
//!
//! `beside-earlyoom EARLYOOM [RUNS]`, as root: the path of its program, from Debian's package. It runs in
//! namespaces of its own, where it sees the pods and nothing else, and where `/proc/meminfo` tells of
//! a control group of 600 MiB. Prints how long after less than 100 MiB were left the hog had SIGTERM.

use std::error::Error;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use winddown_node_tests::cgroup::Group;

const MIB: u64 = 1 << 20;
const NODE: u64 = 600;
const LEAST: u64 = 100;

/// What runs in the namespaces: the same pods as in the tests, and earlyoom with the same threshold.
const INNER: &str = r#"for group in $PLACES; do echo 0 > "$group/cgroup.procs" || exit; done
mount --bind "$MEMINFO" /proc/meminfo || exit
"$EARLYOOM" -M 102400,51200 -r 0 &
"$POD" "$LOGS/db" hold 60 &
"$POD" "$LOGS/vip" hold 90 &
"$POD" "$LOGS/web" hold 5 &
sleep 1
"$POD" "$LOGS/hog" memory 150
"#;

struct Run {
    child: Child,
    group: Group,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let earlyoom = args.next().ok_or("usage: beside-earlyoom EARLYOOM [RUNS]")?;
    let runs: u32 = args.next().map_or(Ok(5), |n| n.parse())?;
    let mut took = Vec::new();
    for _ in 0..runs {
        took.push(once(&earlyoom)?);
    }
    took.sort_unstable();
    println!("earlyoom, crossing to SIGTERM in ms, {runs} runs: {took:?}");
    Ok(())
}

/// From the crossing to the hog's SIGTERM, in ms.
fn once(earlyoom: &str) -> Result<i128, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let group = Group::make(&format!("beside-{}", std::process::id()))?;
    let group = group.ok_or("there are no control groups with memory and pids to be made")?;
    group.bound_memory(NODE * MIB)?;
    let meminfo = dir.path().join("meminfo");
    let file = fs::File::create(&meminfo)?;
    file.write_all_at(told(NODE * MIB).as_bytes(), 0)?;
    let places: Vec<String> = group.places().iter().map(|dir| dir.display().to_string()).collect();
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL"])
        .args(["--mount-proc", "sh", "-c", INNER])
        .env("PLACES", places.join(" "))
        .env("MEMINFO", &meminfo)
        .env("EARLYOOM", earlyoom)
        .env("POD", std::env::current_exe()?.with_file_name("pressure-pod"))
        .env("LOGS", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let run = Run { child, group };
    let mut crossed = None;
    for _ in 0..30_000 {
        let left = run.group.memory_left().ok_or("the control group cannot be read")?;
        file.write_all_at(told(left).as_bytes(), 0)?;
        if left < LEAST * MIB && crossed.is_none() {
            crossed = Some(monotonic());
        }
        let log = fs::read_to_string(dir.path().join("hog")).unwrap_or_default();
        let asked = log.lines().find_map(|line| line.strip_prefix("term ")?.parse::<i128>().ok());
        if let (Some(crossed), Some(asked)) = (crossed, asked) {
            return Ok((asked - crossed) / 1_000_000);
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Err("the hog was not asked to stop".into())
}

/// A text of one length, so that it is never seen half written.
fn told(left: u64) -> String {
    let (total, left) = (NODE * 1024, left / 1024);
    let anon = total.saturating_sub(left);
    let line = |name: &str, kib: u64| format!("{name} {kib:>12} kB\n");
    [
        line("MemTotal:", total),
        line("MemFree:", left),
        line("MemAvailable:", left),
        line("SwapCached:", 0),
        line("AnonPages:", anon),
        line("SwapTotal:", 0),
        line("SwapFree:", 0),
    ]
    .concat()
}

fn monotonic() -> i128 {
    let now = clock_gettime(ClockId::Monotonic);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

impl Drop for Run {
    fn drop(&mut self) {
        // The first process of the namespace takes all others with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
