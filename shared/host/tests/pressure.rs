//! Real memory pressure, in a small cgroup of the test's own.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use winddown_host::{NodeUsage, PsiPlace, PsiTrigger, PsiWatch, UsagePaths};

const CGROUPS: &str = "/sys/fs/cgroup";
const LIMIT: u64 = 16 << 20;

/// A cgroup with little memory, and a program that repeatedly reads a file larger than that.
struct Thrasher {
    name: String,
    cgroup: PathBuf,
    /// The same in the unified hierarchy, the only one that reports pressure.
    unified: PathBuf,
    program: Option<Child>,
    _files: tempfile::TempDir,
}

impl Thrasher {
    /// Returns none, and skips the test with the reason, if no cgroup can be created.
    fn start(test: &str) -> Option<Self> {
        let name = format!("winddown-host-test-{}-{test}", std::process::id());
        let is_v2 = Path::new(CGROUPS).join("cgroup.controllers").exists();
        let at = |root: &str| Path::new(CGROUPS).join(root).join(&name);
        let (cgroup, limit, unified) = match is_v2 {
            true => (at(""), "memory.max", at("")),
            false => (at("memory"), "memory.limit_in_bytes", at("unified")),
        };
        let made = fs::create_dir(&cgroup)
            .and_then(|()| fs::write(cgroup.join(limit), LIMIT.to_string()))
            .and_then(|()| fs::create_dir_all(&unified));
        if let Err(error) = made {
            skip(test, &format!("cannot make {}: {error}", cgroup.display()));
            let _ = fs::remove_dir(&cgroup);
            return None;
        }
        // On a disk: a file in memory need not be read again. The build directory is on a disk.
        let files = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(files.path().join("big"), vec![7; 4 * usize::try_from(LIMIT).unwrap()]).unwrap();
        // Drops the page cache of the write, which is not charged to the cgroup.
        let script = format!(
            "echo $$ > {}/cgroup.procs && echo $$ > {}/cgroup.procs && sync {big} && dd if={big} iflag=nocache count=0 2> /dev/null \
             && while cat {big} > /dev/null; do :; done",
            cgroup.display(),
            unified.display(),
            big = files.path().join("big").display(),
        );
        let program =
            Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap();
        Some(Self { name, cgroup, unified, program: Some(program), _files: files })
    }
}

impl Drop for Thrasher {
    fn drop(&mut self) {
        if let Some(mut program) = self.program.take() {
            let _ = program.kill();
            let _ = program.wait();
        }
        // `cat` only exits at the end of its file, and keeps the cgroup busy until then.
        for cgroup in [&self.cgroup, &self.unified] {
            for _ in 0..1000 {
                if fs::remove_dir(cgroup).is_ok() || !cgroup.exists() {
                    break;
                }
                let left = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
                for pid in left.lines() {
                    let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status();
                }
            }
        }
    }
}

fn skip(test: &str, why: &str) {
    println!("SKIPPED: {test}: {why}");
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} was skipped: {why}");
}

#[tokio::test]
async fn a_trigger_wakes_when_programs_wait_for_memory() {
    let Some(thrasher) = Thrasher::start("trigger") else { return };
    let trigger = PsiTrigger { stall: Duration::from_millis(1), ..PsiTrigger::default() };
    let place = PsiPlace::Cgroup(format!("/{}", thrasher.name));
    let started = PsiWatch::start(Path::new("/proc"), Path::new(CGROUPS), &place, trigger);
    let (watch, armed) = match started {
        Ok(started) => started,
        Err(why) => return skip("trigger", &format!("no trigger: {why}")),
    };
    let began = tokio::time::Instant::now();
    let alarm = tokio::time::timeout(Duration::from_secs(60), watch.stalled()).await;
    println!("woken after {:?}, {armed:?}", began.elapsed());
    drop(thrasher);
    assert!(alarm.expect("the trigger did not fire"));
    let gone = tokio::time::timeout(Duration::from_secs(60), async {
        // Earlier alarms come first.
        while watch.stalled().await {}
    });
    gone.await.expect("the cgroup's end was not told");
}

#[tokio::test]
async fn page_cache_that_fills_a_bounded_node_is_available_by_what_can_be_given_back() {
    let Some(thrasher) = Thrasher::start("page-cache") else { return };
    let places =
        UsagePaths { node_cgroup: format!("/{}", thrasher.name), ..UsagePaths::of_host("/") };
    let mut usage = NodeUsage::new(&places);
    let filled = async {
        loop {
            let memory = usage.read_kernel().stats.memory.unwrap();
            let is_full = fs::read_to_string(thrasher.cgroup.join("memory.usage_in_bytes"))
                .or_else(|_| fs::read_to_string(thrasher.cgroup.join("memory.current")))
                .is_ok_and(|text| text.trim().parse::<u64>().unwrap() > LIMIT / 10 * 9);
            if is_full {
                return memory;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let memory = tokio::time::timeout(Duration::from_secs(60), filled).await.unwrap();
    let available = memory.mem_available.unwrap();
    println!("available {} by working set, {available} by what can be had", memory.available);
    assert!(available > LIMIT / 2, "{memory:?}");
    assert!(memory.available <= LIMIT);
}
