//! Tests from the kernel's files to the eviction of a pod, on a fake machine of files with cgroup v2 only.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use winddown_eviction::{
    DecisionOutcome, PressureRule, PressureScope, Signal, Threshold, ThresholdValue,
};
use winddown_host::{CgroupMemory, cgroup_number};
use winddown_shared::testing::{FakeKiller, pod};
use winddown_shared::{
    AdmissionGate, ContainerStats, Freed, Garbage, MemoryFigure, PodStats, PodUid, RuntimeError,
    RuntimePlaces, WallClock, WallTime,
};

use super::*;

const MIB: u64 = 1 << 20;
const PODS: [&str; 3] = ["small", "middle", "large"];

/// Long enough for a sample and for a pod to end.
const A_WHILE: Duration = Duration::from_secs(3);

/// The files of a machine of 4 GiB, whose node is a slice of 1000 MiB and 500 tasks.
struct Machine(tempfile::TempDir);

/// A runtime that reads the usage of pods from their cgroups.
struct Files(PathBuf);

struct World {
    machine: Arc<Machine>,
    killer: FakeKiller,
    view: EvictionView,
    _kept: (watch::Sender<Arc<Policy>>, AdmissionGate),
    _task: JoinHandle<()>,
}

// === impl Machine ===

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write(
            "proc/meminfo",
            "MemTotal: 4096000 kB\nMemFree: 3000000 kB\nMemAvailable: 3500000 kB\n",
        );
        machine.write("proc/loadavg", "0.1 0.1 0.1 1/200 77\n");
        machine.write("proc/sys/kernel/pid_max", "32768\n");
        machine.write("proc/sys/kernel/threads-max", "30000\n");
        machine.write("proc/self/mountinfo", "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        machine.write("cgroup/cgroup.controllers", "cpu io memory pids\n");
        machine.write("cgroup/memory.stat", "anon 1\nfile 2\ninactive_file 3\n");
        machine.write("cgroup/edge.slice/memory.max", "1048576000\n");
        machine.write("cgroup/edge.slice/pids.max", "500\n");
        machine.cgroup("edge.slice", 400);
        machine.tasks(100);
        machine.kills(0);
        machine.stalls(0);
        for (uid, mib) in PODS.iter().zip([40, 90, 200]) {
            machine.cgroup(&format!("edge.slice/pods/pod-{uid}"), mib);
            machine.write(&format!("cgroup/edge.slice/pods/pod-{uid}/pids.current"), "3\n");
        }
        machine.cgroup("edge.slice/pods", 330);
        machine.write("cgroup/edge.slice/pods/memory.max", "max\n");
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Sets a cgroup to `mib` MiB in use and 100 MiB more of file cache.
    fn cgroup(&self, path: &str, mib: u64) {
        let cache = 50 * MIB;
        self.write(
            &format!("cgroup/{path}/memory.current"),
            &format!("{}\n", mib * MIB + 2 * cache),
        );
        self.write(
            &format!("cgroup/{path}/memory.stat"),
            &format!(
                "anon {}\ninactive_file {cache}\nactive_file {cache}\nslab_reclaimable 0\n",
                mib * MIB
            ),
        );
    }

    fn tasks(&self, tasks: u64) {
        self.write("cgroup/edge.slice/pids.current", &format!("{tasks}\n"));
    }

    fn kills(&self, kills: u64) {
        let text = format!("low 0\nhigh 0\nmax 12\noom {kills}\noom_kill {kills}\n");
        self.write("cgroup/edge.slice/memory.events", &text);
    }

    /// Sets the pressure: tasks have stalled for so many seconds in all, up to ten of them within the last ten.
    fn stalls(&self, seconds: u64) {
        let (share, total) = (seconds.min(10) * 10, seconds * 1_000_000);
        let line = format!("avg10={share}.00 avg60=0.00 avg300=0.00 total={total}\n");
        self.write("cgroup/edge.slice/pods/memory.pressure", &format!("some {line}full {line}"));
    }

    fn places(&self) -> UsagePaths {
        UsagePaths {
            proc: self.0.path().join("proc"),
            cgroup: self.0.path().join("cgroup"),
            node_cgroup: "/edge.slice".to_owned(),
            ..UsagePaths::of_host(self.0.path())
        }
    }
}

// === impl EvictionRuntime for Files ===

impl Files {
    fn of(&self, uid: &str) -> Option<PodStats> {
        let read = |file: &str| fs::read(self.0.join(format!("pod-{uid}/{file}"))).ok();
        let memory = CgroupMemory::parse(&read("memory.current")?, &read("memory.stat")?, None)?
            .working_set();
        let main = ContainerStats {
            name: "main".into(),
            memory_working_set: Some(memory),
            ..ContainerStats::default()
        };
        Some({
            let mut stats = PodStats::default();
            stats.memory_working_set = Some(memory);
            stats.tasks = cgroup_number(&read("pids.current")?);
            stats.containers = vec![main];
            stats
        })
    }
}

impl EvictionRuntime for Files {
    fn figures(
        &self,
        _: Option<Duration>,
    ) -> BoxFuture<'_, Result<Option<Vec<(PodUid, PodStats)>>, RuntimeError>> {
        let all = PODS.iter().filter_map(|uid| Some((PodUid::new(*uid), self.of(uid)?)));
        ready(Ok(Some(all.collect()))).boxed()
    }

    fn where_to_measure(&self) -> BoxFuture<'_, Result<RuntimePlaces, RuntimeError>> {
        let mut places = RuntimePlaces::default();
        places.pods_cgroup = Some("/edge.slice/pods".to_owned());
        ready(Ok(places)).boxed()
    }

    fn collect(&self, _: Garbage) -> BoxFuture<'_, Result<Freed, RuntimeError>> {
        ready(Ok(Freed::default())).boxed()
    }

    fn take_back<'a>(
        &'a self,
        _: &'a PodUid,
        _: MemoryFigure,
        _: u64,
        _: Duration,
    ) -> BoxFuture<'a, Result<Freed, RuntimeError>> {
        ready(Ok(Freed::default())).boxed()
    }
}

// === impl World ===

impl World {
    async fn new(policy: Policy) -> Self {
        let machine = Arc::new(Machine::new());
        let runtime = Arc::new(Files(machine.0.path().join("cgroup/edge.slice/pods")));
        let places = MeasuredPlaces::new(machine.places(), runtime.clone());
        let policy = watch::Sender::new(Arc::new(policy));
        let signals = Measured::new(&places, runtime.clone(), policy.subscribe());
        places.find().await;
        let killer = FakeKiller::with(PODS.map(pod));
        for uid in PODS {
            killer.takes(&PodUid::new(uid), Duration::from_millis(900));
        }
        let reclaim =
            Arc::new(GiveBack { runtime, image_age: watch::Sender::default().subscribe() });
        let (shared, signals) = (Arc::new(killer.clone()), Arc::new(signals));
        let (first, wall) =
            (Policy::clone(&policy.borrow()), WallClock::fixed(WallTime::UNIX_EPOCH));
        let gate = AdmissionGate::new();
        let mut parts = EvictionParts::new(shared, signals, reclaim, first, &gate, wall);
        parts.policy = policy.subscribe();
        let (controller, view) = EvictionController::new(parts);
        let task = tokio::spawn(controller.run());
        let world = Self { machine, killer, view, _kept: (policy, gate), _task: task };
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(world.ended(), [""; 0], "it is calm");
        world
    }

    fn ended(&self) -> Vec<String> {
        self.killer.calls().iter().map(|call| call.pod.uid().to_string()).collect()
    }

    /// Waits until so many pods were requested to stop.
    async fn until_asked(&self, pods: usize) {
        let asked = async {
            while self.killer.calls().len() < pods {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asked).await.expect("nobody was asked");
    }

    fn said(&self, place: usize) -> String {
        self.killer.calls()[place].request.status.as_ref().unwrap().message.to_string()
    }

    fn conditions(&self) -> Vec<String> {
        self.view.conditions().borrow().iter().map(|condition| condition.to_string()).collect()
    }
}

fn hard(signal: Signal, least: &str) -> Threshold {
    let value = ThresholdValue::Quantity(least.parse().unwrap());
    Threshold::new(signal, value)
}

#[tokio::test(start_paused = true)]
async fn on_version_2_a_node_short_of_memory_ends_the_largest_pod_and_no_other() {
    let policy = Policy::new(vec![hard(Signal::MemoryAvailable, "100Mi")], true);
    let world = World::new(policy).await;
    // 930 of 1000 MiB are in use; all file cache can be reclaimed.
    world.machine.cgroup("edge.slice", 930);
    world.until_asked(1).await;
    world.machine.cgroup("edge.slice", 700);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(world.ended(), ["large"]);
    assert_eq!(
        world.said(0),
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 70Mi. \
         Container main was using 250Mi, request is 0, has larger consumption of memory. "
    );
    assert_eq!(world.conditions(), ["MemoryPressure"]);
    tokio::time::sleep(Duration::from_secs(6 * 60)).await;
    assert_eq!((world.ended().len(), world.conditions()), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn on_version_2_file_cache_is_no_shortage() {
    let policy = Policy::new(vec![hard(Signal::MemoryAvailable, "100Mi")], true);
    let world = World::new(policy).await;
    // 950 of 1000 MiB are in use, including 100 of file cache.
    world.machine.cgroup("edge.slice", 850);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.ended(), [""; 0]);
    assert_eq!(world.conditions(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn on_version_2_pods_that_wait_for_memory_are_relieved_of_one() {
    let mut policy = Policy::new(Vec::new(), false);
    let scope = PressureScope::Pods;
    policy.memory_pressure = Some(PressureRule { scope, ..PressureRule::default() });
    let world = World::new(policy).await;
    // A node with less than a tenth of its memory left, whose tasks stall for more and more of the time.
    world.machine.cgroup("edge.slice", 920);
    for second in 1..=6 {
        world.machine.stalls(second);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.ended(), ["large"]);
    let history = world.view.history();
    assert_eq!(history[0].signal.as_str(), "memoryPressure");
}

#[tokio::test(start_paused = true)]
async fn on_version_2_a_node_short_of_tasks_ends_the_pod_with_the_most() {
    let policy = Policy::new(vec![hard(Signal::PidAvailable, "100")], false);
    let world = World::new(policy).await;
    world.machine.write("cgroup/edge.slice/pods/pod-middle/pids.current", "300\n");
    world.machine.tasks(450);
    world.until_asked(1).await;
    world.machine.tasks(150);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(world.ended(), ["middle"]);
    assert_eq!(
        world.said(0),
        "The node was low on resource: pids. Threshold quantity: 100, available: 50. "
    );
    assert_eq!(world.conditions(), ["PIDPressure"]);
}

#[tokio::test(start_paused = true)]
async fn on_version_2_what_the_kernel_has_killed_is_in_the_history() {
    let policy = Policy::new(vec![hard(Signal::MemoryAvailable, "100Mi")], true);
    let world = World::new(policy).await;
    world.machine.kills(3);
    tokio::time::sleep(A_WHILE).await;
    let outcomes: Vec<DecisionOutcome> =
        world.view.history().into_iter().map(|r| r.outcome).collect();
    assert_eq!(outcomes, [DecisionOutcome::KilledByKernel { processes: 3 }]);
    assert_eq!(world.ended(), [""; 0]);
}
