//! The memory hog of the pressure tests, with earlyoom in place of winddown.
//!
//! `beside-earlyoom EARLYOOM [RUNS]`, as root: the path of its program, from Debian's package. It runs in
//! namespaces of its own, where it sees the pods and nothing else, and where `/proc/meminfo` tells of
//! a control group of 600 MiB. Prints how long after less than 100 MiB were left the hog had SIGTERM.

use std::error::Error;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

const MIB: u64 = 1 << 20;
const NODE: u64 = 600;
const LEAST: u64 = 100;

/// What runs in the namespaces: the same pods as in the tests, and earlyoom with the same threshold.
const INNER: &str = r#"echo 0 > "$GROUP/cgroup.procs" && mount --bind "$MEMINFO" /proc/meminfo || exit
"$EARLYOOM" -M 102400,51200 -r 0 &
"$POD" "$LOGS/db" hold 60 &
"$POD" "$LOGS/vip" hold 90 &
"$POD" "$LOGS/web" hold 5 &
sleep 1
"$POD" "$LOGS/hog" memory 150
"#;

struct Run {
    child: Child,
    group: PathBuf,
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
    let group = Path::new("/sys/fs/cgroup/memory").join(format!("beside-{}", std::process::id()));
    fs::create_dir(&group)?;
    fs::write(group.join("memory.limit_in_bytes"), (NODE * MIB).to_string())?;
    let meminfo = dir.path().join("meminfo");
    let file = fs::File::create(&meminfo)?;
    file.write_all_at(told(NODE * MIB).as_bytes(), 0)?;
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL"])
        .args(["--mount-proc", "sh", "-c", INNER])
        .env("GROUP", &group)
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
        let left = run.left().ok_or("the control group cannot be read")?;
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

impl Run {
    fn left(&self) -> Option<u64> {
        let usage = fs::read_to_string(self.group.join("memory.usage_in_bytes")).ok()?;
        let stat = fs::read_to_string(self.group.join("memory.stat")).ok()?;
        let part = |name: &str| -> u64 {
            let line = stat.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
        };
        let cache = part("total_inactive_file ") + part("total_active_file ");
        let used = usage.trim().parse::<u64>().ok()?.saturating_sub(cache);
        Some((NODE * MIB).saturating_sub(used))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The first process of the namespace takes all others with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for _ in 0..100 {
            let text = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
            for pid in text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}
