#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;
use winddown_eviction::{
    EvictionController, EvictionParts, MeasureError, PodFigures, Policy, Reclaim, Reclaimable,
    Signal, Signals, Threshold, ThresholdValue, WantedFigures,
};
use winddown_shared::testing::FakeKiller;
use winddown_shared::{AdmissionGate, Freed, MemoryStats, NodeStats, Pod, RuntimeError, WallClock};

use super::*;

const CGROUPS: &str = "/sys/fs/cgroup";
const LIMIT: u64 = 16 << 20;
const LONG: Duration = Duration::from_secs(60);

/// A cgroup of the test's own, with little memory. Dropping it kills the processes in it.
struct Group {
    name: String,
    /// Its directories in the hierarchy that limits memory, and in the unified one, which reports pressure.
    dirs: Vec<PathBuf>,
}

impl Group {
    /// Creates the cgroup; `None`, with a message, if the test may not. `short` is part of the group's name.
    fn make(test: &str, short: &str) -> Option<Self> {
        let name = format!("winddown-stalls-{}-{short}", std::process::id());
        let group = Self { dirs: dirs(&name), name };
        match group.again() {
            Ok(()) if group.dirs[1].join("memory.pressure").exists() => Some(group),
            made => {
                let why =
                    made.err().map_or("no pressure is reported".to_owned(), |e| e.to_string());
                println!("SKIPPED: {test}: {why}");
                assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test}: {why}");
                None
            }
        }
    }

    fn again(&self) -> std::io::Result<()> {
        let [bounding, unified] = &self.dirs[..] else { return Ok(()) };
        fs::create_dir(bounding)?;
        fs::create_dir_all(unified)?;
        let is_v1 = bounding.join("memory.limit_in_bytes").exists();
        let limit = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(bounding.join(limit), LIMIT.to_string())
    }

    fn remove(&self) {
        for dir in &self.dirs {
            for _ in 0..1000 {
                if fs::remove_dir(dir).is_ok() || !dir.exists() {
                    break;
                }
                let left = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                for pid in left.lines() {
                    let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status();
                }
            }
        }
    }

    fn places(&self) -> StallPlaces {
        let (proc, cgroup) = ("/proc".into(), CGROUPS.into());
        StallPlaces { proc, cgroup, node: format!("/{}", self.name) }
    }

    /// Starts programs that repeatedly read a file which does not fit into memory: so many that they wait for each
    /// other's pages even on a fast disk.
    fn thrash(&self) -> Thrasher {
        // On a disk, because a file in memory would not have to be read again.
        let program = std::env::current_exe().unwrap();
        let files = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let big = files.path().join("big");
        fs::write(&big, vec![7; 4 * usize::try_from(LIMIT).unwrap()]).unwrap();
        // Synced first, because a disk that is still writing a build's output takes longer than the test waits.
        fs::File::open(&big).unwrap().sync_all().unwrap();
        let join: Vec<String> = self
            .dirs
            .iter()
            .map(|dir| format!("echo $$ > {}/cgroup.procs", dir.display()))
            .collect();
        // Drops the pages of the write from the page cache: they do not belong to the cgroup.
        let script = format!(
            "{} && dd if={big} iflag=nocache count=0 2> /dev/null \
             && {{ for n in 1 2 3 4 5 6; do while cat {big} > /dev/null; do :; done & done; wait; }}",
            join.join(" && "),
            big = big.display(),
        );
        let program = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn();
        Thrasher { program: program.unwrap(), _files: files }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

struct Thrasher {
    program: Child,
    _files: tempfile::TempDir,
}

impl Drop for Thrasher {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn dirs(name: &str) -> Vec<PathBuf> {
    let root = Path::new(CGROUPS);
    match root.join("cgroup.controllers").exists() {
        true => vec![root.join(name), root.join(name)],
        false => vec![root.join("memory").join(name), root.join("unified").join(name)],
    }
}

/// Watches in a task next to the test.
fn followed(places: StallPlaces) -> UnboundedReceiver<StallEvent> {
    let (tell, told) = unbounded_channel();
    tokio::spawn(follow(places, move |said| drop(tell.send(said))));
    told
}

/// The next place in which the kernel reports pressure.
async fn armed(told: &mut UnboundedReceiver<StallEvent>) -> (PsiPlace, Armed) {
    let next = async {
        loop {
            if let StallEvent::Armed(place, armed) = told.recv().await.expect("it goes on") {
                return (place, armed);
            }
        }
    };
    timeout(LONG, next).await.expect("the kernel tells of nothing")
}

async fn pressed(told: &mut UnboundedReceiver<StallEvent>) {
    let next =
        async { while !matches!(told.recv().await.expect("it goes on"), StallEvent::Pressed) {} };
    timeout(LONG, next).await.expect("nobody was woken");
}

#[tokio::test]
async fn a_cgroup_that_goes_and_comes_back_is_listened_to_again_and_the_machine_meanwhile() {
    let test = "a_cgroup_that_goes_and_comes_back_is_listened_to_again_and_the_machine_meanwhile";
    let Some(group) = Group::make(test, "goes-and-comes-back") else { return };
    let own = PsiPlace::Cgroup(format!("/{}", group.name));
    let mut told = followed(group.places());
    assert_eq!(armed(&mut told).await.0, own);
    group.remove();
    assert_eq!(armed(&mut told).await.0, PsiPlace::Node);
    group.again().unwrap();
    assert_eq!(armed(&mut told).await.0, own, "it is back");
    // Only this place is watched now, and no longer the machine.
    let _thrasher = group.thrash();
    pressed(&mut told).await;
}

#[tokio::test]
async fn the_window_is_the_shortest_that_this_process_may_have() {
    let test = "the_window_is_the_shortest_that_this_process_may_have";
    let Some(group) = Group::make(test, "window") else { return };
    let (_, armed) = armed(&mut followed(group.places())).await;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let sys_resource = u64::from_str_radix(mask.trim(), 16).unwrap() >> 24 & 1 == 1;
    let (stall, window) = if sys_resource { (70, 500) } else { (280, 2000) };
    let expected =
        PsiTrigger { stall: Duration::from_millis(stall), window: Duration::from_millis(window) };
    assert_eq!(armed, Armed { trigger: expected, as_asked: sys_resource });
}

/// A machine with plenty of memory that counts its samples.
#[derive(Default)]
struct Plenty(AtomicUsize);

impl Signals for Plenty {
    async fn node(&self) -> Result<NodeStats, MeasureError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let memory = MemoryStats { available: 8 << 30, ..MemoryStats::default() };
        Ok({
            let mut stats = NodeStats::default();
            stats.memory = Some(memory);
            stats
        })
    }

    async fn pods(&self, _: &[Pod], _: WantedFigures) -> PodFigures {
        PodFigures::UNKNOWN
    }
}

impl Reclaim for Plenty {
    async fn reclaim(&self, _: Reclaimable) -> Result<Freed, RuntimeError> {
        Ok(Freed::default())
    }
}

#[tokio::test]
async fn a_real_stall_wakes_a_loop_that_would_look_again_in_an_hour() {
    let test = "a_real_stall_wakes_a_loop_that_would_look_again_in_an_hour";
    let Some(group) = Group::make(test, "wakes") else { return };
    let threshold = Threshold::new(Signal::MemoryAvailable, ThresholdValue::Share(0.01));
    let (plenty, notify) = (Arc::new(Plenty::default()), Arc::new(Notify::new()));
    let policy = Policy::new(vec![threshold], false);
    let (gate, hour) = (AdmissionGate::new(), Duration::from_secs(3600));
    let wall = WallClock::fixed(winddown_shared::WallTime::UNIX_EPOCH);
    let (killer, signals, reclaim) =
        (Arc::new(FakeKiller::default()), Arc::clone(&plenty), Arc::clone(&plenty));
    let mut parts = EvictionParts::new(killer, signals, reclaim, policy, &gate, wall);
    parts.wake = Arc::clone(&notify);
    (parts.cadence.calm, parts.cadence.near) = (hour, hour);
    let (controller, _view) = EvictionController::new(parts);
    let (places, thrasher) = (group.places(), group.thrash());
    let running = async { tokio::join!(controller.run(), wake(places, &notify)) };
    let looked_again = async {
        while plenty.0.load(Ordering::Relaxed) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = running => panic!("the loop has ended"),
        looked = timeout(LONG, looked_again) => looked.expect("nothing woke the loop"),
    }
    drop(thrasher);
}

#[tokio::test(start_paused = true)]
async fn a_cgroup_that_never_comes_is_tried_ever_more_rarely() {
    let nothing = tempfile::tempdir().unwrap();
    let places = StallPlaces {
        proc: nothing.path().into(),
        cgroup: nothing.path().into(),
        node: "/edge".to_owned(),
    };
    let mut told = followed(places);
    tokio::time::sleep(Duration::from_secs(125)).await;
    let mut tries = 0;
    while let Ok(said) = told.try_recv() {
        assert!(matches!(&said, StallEvent::Unarmed(..)), "{said:?}");
        tries += usize::from(matches!(said, StallEvent::Unarmed(PsiPlace::Cgroup(_), _)));
    }
    // After 1, 3, 7, 15, 31, 61, 91 and 121 s.
    assert_eq!(tries, 9);
}

#[tokio::test]
async fn a_machine_that_tells_nothing_is_not_asked_again() {
    let nothing = tempfile::tempdir().unwrap();
    let root: PathBuf = nothing.path().into();
    let places = StallPlaces { proc: root.clone(), cgroup: root, node: "/".to_owned() };
    timeout(LONG, wake(places, &Notify::new())).await.expect("there is nothing to wait for");
}
