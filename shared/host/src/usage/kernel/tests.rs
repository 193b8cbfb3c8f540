use std::fs;
use std::path::Path;

use super::*;

const MEMINFO: &str = "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 800 kB\n\
    Inactive(file): 200 kB\n";
const KIB: u64 = 1024;

/// A fake machine in a directory tree.
struct Tree {
    folder: tempfile::TempDir,
    places: UsagePaths,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut places = UsagePaths::of_host(folder.path());
        places.proc = folder.path().join("proc");
        places.cgroup = folder.path().join("cgroup");
        let tree = Self { folder, places };
        tree.write("proc/meminfo", MEMINFO);
        tree.write("proc/loadavg", "1.90 4.09 6.45 2/126 6270\n");
        tree.write("proc/sys/kernel/pid_max", "4194304\n");
        tree.write("proc/sys/kernel/threads-max", "5000\n");
        fs::create_dir_all(&tree.places.cgroup).unwrap();
        tree
    }

    /// Version 2 alone: the root has statistics but no usage.
    fn v2() -> Self {
        let tree = Self::new();
        tree.write("cgroup/cgroup.controllers", "cpu memory pids\n");
        let stat = "anon 358400\nfile 153600\nkernel 92160\ninactive_anon 0\nactive_anon 358400\n\
            inactive_file 102400\nactive_file 51200\n";
        tree.write("cgroup/memory.stat", stat);
        tree
    }

    /// Version 1 next to an empty version 2.
    fn hybrid() -> Self {
        let tree = Self::new();
        tree.write("cgroup/unified/cgroup.controllers", "\n");
        tree.write("cgroup/memory/memory.usage_in_bytes", "716800\n");
        tree.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let stat = "inactive_file 0\ntotal_inactive_file 102400\ntotal_active_file 51200\n";
        tree.write("cgroup/memory/memory.stat", stat);
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self) -> Reading {
        let mut reading = Reading::default();
        KernelUsage::new(&self.places).read(&mut reading);
        reading
    }

    fn v2_cgroup(&self, path: &str, limit: &str) {
        self.write(&format!("cgroup/{path}/memory.current"), "409600\n");
        self.write(&format!("cgroup/{path}/memory.max"), limit);
        let stat = "inactive_file 102400\nactive_file 51200\nslab_reclaimable 10240\n";
        self.write(&format!("cgroup/{path}/memory.stat"), stat);
    }
}

/// Working set, available, MemAvailable, in KiB.
fn kib(memory: Option<MemoryStats>) -> (u64, u64, Option<u64>) {
    let memory = memory.unwrap();
    assert!(memory.at.is_some());
    (memory.working_set / KIB, memory.available / KIB, memory.mem_available.map(|b| b / KIB))
}

#[tokio::test]
async fn on_version_2_huge_pages_and_the_kernels_memory_are_not_in_the_working_set() {
    // 350 KiB anonymous, 150 of page cache, 100 of them idle; 200 more are not free.
    let reading = Tree::v2().read();
    assert_eq!(kib(reading.stats.memory), (400, 600, Some(800)));
    assert!(reading.problems.is_empty(), "{:?}", reading.problems);
}

#[tokio::test]
async fn on_version_1_the_root_cgroup_is_the_node() {
    let reading = Tree::hybrid().read();
    assert_eq!(kib(reading.stats.memory), (600, 400, Some(800)));
    assert!(reading.problems.is_empty(), "{:?}", reading.problems);
}

#[tokio::test]
async fn without_cgroups_the_machines_own_numbers_stand_in() {
    let tree = Tree::new();
    assert_eq!(kib(tree.read().stats.memory), (500, 500, Some(800)));
    tree.write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 300 kB\n");
    let reading = tree.read();
    assert_eq!(reading.stats.memory, None);
    assert!(reading.problems[0].to_string().contains("Inactive(file)"), "{:?}", reading.problems);
}

#[tokio::test]
async fn a_node_that_is_bounded_by_a_cgroup_has_what_that_may_use() {
    let mut tree = Tree::v2();
    tree.v2_cgroup("node", "512000\n");
    tree.places.node_cgroup = "/node".to_owned();
    // 400 KiB used, 100 idle cache, 50 busy cache, 10 slab; 500 KiB allowed.
    assert_eq!(kib(tree.read().stats.memory), (300, 200, Some(260)));
    tree.v2_cgroup("node", "99999999\n");
    assert_eq!(kib(tree.read().stats.memory), (300, 700, Some(800)), "the machine is smaller");
}

#[tokio::test]
async fn a_node_that_is_bounded_by_a_cgroup_stalls_when_that_does() {
    let stalls = |avg10: &str| {
        let share = format!("avg10={avg10} avg60=0.00 avg300=0.00 total=0");
        format!("some {share}\nfull {share}\n")
    };
    let mut tree = Tree::v2();
    tree.write("proc/pressure/memory", &stalls("40.00"));
    tree.write("cgroup/node/memory.pressure", &stalls("7.00"));
    let some = |tree: &Tree| tree.read().stats.memory_pressure.map(|stalls| stalls.some_avg10);
    assert_eq!(some(&tree), Some(40.0));
    tree.places.node_cgroup = "/node".to_owned();
    assert_eq!(some(&tree), Some(7.0), "not its neighbours'");
    let mut hybrid = Tree::hybrid();
    hybrid.write("proc/pressure/memory", &stalls("40.00"));
    hybrid.places.node_cgroup = "/node".to_owned();
    assert_eq!(some(&hybrid), Some(40.0), "version 1 tells of the machine alone");
}

#[tokio::test]
async fn what_the_kernel_killed_is_counted_where_the_node_or_the_pods_are_bounded() {
    let mut tree = Tree::v2();
    let kills = |tree: &Tree| tree.read().stats.oom_kills;
    assert_eq!(kills(&tree), None, "the root does not tell");
    tree.places.pods_cgroup = Some("/pods".to_owned());
    assert_eq!(kills(&tree), None, "there are no pods");
    tree.write("cgroup/pods/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n");
    assert_eq!(kills(&tree), Some(3));
    tree.places.node_cgroup = "/node".to_owned();
    tree.write("cgroup/node/memory.events", "oom_kill 5\n");
    assert_eq!(kills(&tree), Some(5));
    let mut hybrid = Tree::hybrid();
    hybrid.places.pods_cgroup = Some("/pods".to_owned());
    assert_eq!(kills(&hybrid), None, "version 1 counts each cgroup by itself");
}

#[tokio::test]
async fn the_pods_cgroup_is_measured_on_both_versions_once_it_is_there() {
    let mut tree = Tree::v2();
    tree.places.pods_cgroup = Some("/pods".to_owned());
    let reading = tree.read();
    assert_eq!(reading.stats.pods_memory, None);
    assert!(reading.problems.is_empty(), "it comes with the first pod: {:?}", reading.problems);
    tree.write("cgroup/pods/memory.current", "many\n");
    let problems = tree.read().problems;
    assert!(problems[0].to_string().contains("pods/memory.current: contains no number"));
    tree.v2_cgroup("pods", "max\n");
    assert_eq!(kib(tree.read().stats.pods_memory), (300, 700, Some(800)));
    let mut tree = Tree::hybrid();
    tree.places.pods_cgroup = Some("/pods".to_owned());
    tree.write("cgroup/memory/pods/memory.usage_in_bytes", "409600");
    tree.write("cgroup/memory/pods/memory.limit_in_bytes", "512000");
    tree.write("cgroup/memory/pods/memory.stat", "total_inactive_file 102400\n");
    assert_eq!(kib(tree.read().stats.pods_memory), (300, 200, Some(200)));
}

#[tokio::test]
async fn tasks_are_counted_against_the_lower_limit() {
    let tasks = |tree: &Tree| tree.read().stats.tasks.map(|tasks| (tasks.used, tasks.max));
    let tree = Tree::v2();
    assert_eq!(tasks(&tree), Some((126, 5000)));
    tree.write("proc/sys/kernel/pid_max", "1000\n");
    assert_eq!(tasks(&tree), Some((126, 1000)));
    fs::remove_file(tree.places.proc.join("sys/kernel/pid_max")).unwrap();
    assert_eq!(tasks(&tree), Some((126, 5000)));
    fs::remove_file(tree.places.proc.join("sys/kernel/threads-max")).unwrap();
    assert_eq!(tasks(&tree), None);
}

#[tokio::test]
async fn a_cgroup_around_the_node_counts_when_its_own_limit_of_tasks_is_nearer() {
    let mut tree = Tree::hybrid();
    tree.places.node_cgroup = "/node".to_owned();
    tree.write("cgroup/pids/node/pids.current", "40\n");
    tree.write("cgroup/pids/node/pids.max", "max\n");
    let tasks = |tree: &Tree| tree.read().stats.tasks.map(|tasks| (tasks.used, tasks.max));
    assert_eq!(tasks(&tree), Some((126, 5000)));
    tree.write("cgroup/pids/node/pids.max", "64\n");
    assert_eq!(tasks(&tree), Some((40, 64)));
    tree.write("cgroup/pids/node/pids.max", "60000\n");
    assert_eq!(tasks(&tree), Some((126, 5000)));
}

#[tokio::test]
async fn pressure_is_told_of_the_node_and_of_the_pods_where_the_kernel_has_it() {
    let mut tree = Tree::hybrid();
    tree.places.pods_cgroup = Some("/pods".to_owned());
    let reading = tree.read();
    assert_eq!(reading.stats.memory_pressure, None);
    let text = "some avg10=1.50 avg60=0.00 avg300=0.00 total=77\n\
        full avg10=0.25 avg60=0.00 avg300=0.00 total=7\n";
    tree.write("proc/pressure/memory", text);
    tree.write("cgroup/unified/pods/memory.pressure", text);
    let stats = tree.read().stats;
    for pressure in [stats.memory_pressure, stats.pods_memory_pressure] {
        let pressure = pressure.unwrap();
        assert_eq!((pressure.some_avg10, pressure.full_avg10), (1.5, 0.25));
        assert_eq!((pressure.some_total_us, pressure.full_total_us), (77, 7));
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_costs_only_its_own_numbers() {
    let tree = Tree::hybrid();
    tree.write("proc/loadavg", "nonsense\n");
    tree.write("cgroup/memory/memory.stat", "cache 3\n");
    let reading = tree.read();
    assert_eq!((reading.stats.memory, reading.stats.tasks), (None, None));
    let problems: Vec<String> = reading.problems.iter().map(ToString::to_string).collect();
    assert!(problems[0].contains("memory.stat: has no line inactive_file"), "{problems:?}");
    assert!(problems[1].contains("loadavg: does not have the number of tasks"), "{problems:?}");
    let gone = KernelUsage::new(&UsagePaths {
        proc: "/nowhere".into(),
        ..UsagePaths::of_host("/nowhere")
    });
    let mut reading = Reading::default();
    { gone }.read(&mut reading);
    assert!(reading.stats.memory.is_none() && reading.problems.len() == 2);
}

#[tokio::test]
async fn a_file_that_is_replaced_while_it_is_open_is_read_anew_or_as_it_was() {
    let tree = Tree::v2();
    let mut usage = KernelUsage::new(&tree.places);
    let mut reading = Reading::default();
    usage.read(&mut reading);
    tree.write("proc/meminfo", "MemTotal: 1200 kB\nMemFree: 100 kB\nMemAvailable: 300 kB\n");
    usage.read(&mut reading);
    assert_eq!(kib(reading.stats.memory), (400, 800, Some(300)));
}

#[tokio::test]
async fn this_machine_can_be_read() {
    let mut reading = Reading::default();
    KernelUsage::new(&UsagePaths::of_host("/")).read(&mut reading);
    let memory = reading.stats.memory.unwrap();
    assert!(memory.working_set > 0 && memory.available > 0);
    let tasks = reading.stats.tasks.unwrap();
    assert!(tasks.used > 0 && tasks.max > tasks.used);
    assert!(reading.problems.is_empty(), "{:?}", reading.problems);
    assert!(Path::new("/proc/pressure").exists() == reading.stats.memory_pressure.is_some());
}

#[tokio::test]
async fn swap_is_the_machines_as_far_as_the_nodes_cgroup_may_use_it() {
    let mut tree = Tree::v2();
    assert_eq!(tree.read().stats.swap, None, "a kernel that does not tell");
    let swap = "SwapTotal: 400 kB\nSwapFree: 300 kB\nZswap: 2 kB\nZswapped: 8 kB\n";
    tree.write("proc/meminfo", &format!("{MEMINFO}{swap}"));
    let all = SwapStats {
        total: 400 * KIB,
        free: 300 * KIB,
        zswap: Some(2 * KIB),
        zswapped: Some(8 * KIB),
    };
    assert_eq!(tree.read().stats.swap, Some(all));
    tree.v2_cgroup("node", "512000\n");
    tree.places.node_cgroup = "/node".to_owned();
    tree.write("cgroup/node/memory.swap.current", "10240\n");
    tree.write("cgroup/node/memory.swap.max", "max\n");
    assert_eq!(tree.read().stats.swap, Some(all));
    tree.write("cgroup/node/memory.swap.max", "51200\n");
    assert_eq!(tree.read().stats.swap, Some(SwapStats { total: 50 * KIB, free: 40 * KIB, ..all }));
    tree.write("cgroup/node/memory.swap.max", "0\n");
    assert_eq!(tree.read().stats.swap.map(|swap| swap.free), Some(0));
}
