//! The kubelet's own tests of its eviction manager, as scenarios.

use std::time::Duration;

use serde_json::json;
use winddown_shared::{AdmitHandler, FsLayout, FsStats, LimitStats, OtherPods, PressureCondition};

use super::*;
use crate::Reclaimable;
use crate::tests::{disk, inodes, tasks};

const NEVER: [&str; 3] = ["guaranteed", "burstable", "best-effort"];

fn hard_and_soft(signal: &str, hard: &str, soft: &str) -> Policy {
    policy(json!({
        "evictionHard": {signal: hard},
        "evictionSoft": {signal: soft},
        "evictionSoftGracePeriod": {signal: "2m"},
    }))
}

/// Which of a Guaranteed, a Burstable and a BestEffort pod are admitted.
fn admitted(world: &World) -> [bool; 3] {
    let gate = world.view.gate();
    let memory = [("cpu", "1"), ("memory", "1Gi")];
    let guaranteed = changed(NEVER[0], 0, &[], |object| {
        object.spec.as_mut().unwrap().containers = vec![container("main", &memory, &memory)];
    });
    [guaranteed, pod(NEVER[1], 0, &memory), pod(NEVER[2], 0, &[])]
        .map(|pod| gate.admit(&pod, &OtherPods::new(Vec::new)).is_ok())
}

/// The values for a scenario that takes one condition through all its stages.
struct Script {
    condition: PressureCondition,
    healthy: NodeStats,
    soft: NodeStats,
    hard: NodeStats,
    pods: Vec<(Pod, PodStats)>,
    victim: &'static str,
    /// Which pods are admitted while the condition holds.
    admits: [bool; 3],
}

async fn run(policy: Policy, script: Script) -> World {
    let Script { condition, healthy, soft, hard, pods, victim, admits } = script;
    let (again, used) = pods.iter().find(|(pod, _)| &**pod.name() == victim).cloned().unwrap();
    let world = World::new(policy, pods);
    world.is(healthy, MINUTE).await;
    assert!(!world.has(condition), "healthy");
    assert_eq!(admitted(&world), [true; 3]);

    world.helps(victim, healthy);
    world.is(soft, MINUTE).await;
    assert!(world.has(condition), "the soft threshold is met");
    assert_eq!(world.killed(), [], "its grace is not over");

    world.is(soft, MINUTE + secs(6)).await;
    assert_eq!(world.killed(), [(victim.to_owned(), Some(5))], "its grace is over");

    world.is(healthy, 20 * MINUTE).await;
    assert!(!world.has(condition), "healthy for long");

    world.add(
        winddown_shared::testing::pod_with("again", victim, |object| {
            *object = {
                let mut object = again.object().clone();
                object.metadata.uid = Some("again".to_owned());
                object
            }
        }),
        used,
    );
    world.helps("again", healthy);
    world.is(hard, MINUTE).await;
    assert!(world.has(condition));
    assert_eq!(world.killed()[1..], [(victim.to_owned(), Some(1))], "at once, with a second");
    assert_eq!(admitted(&world), admits);

    world.is(healthy, MINUTE).await;
    assert!(world.has(condition), "it is kept for a while");
    assert_eq!(world.killed().len(), 2);
    assert_eq!(admitted(&world), admits);

    world.is(healthy, 5 * MINUTE).await;
    assert!(!world.has(condition));
    assert_eq!(admitted(&world), [true; 3]);
    world
}

#[tokio::test(start_paused = true)]
async fn memory_pressure() {
    let world = run(
        hard_and_soft("memory.available", "1Gi", "2Gi"),
        Script {
            condition: PressureCondition::Memory,
            healthy: left("3Gi"),
            soft: left("1500Mi"),
            hard: left("500Mi"),
            pods: memory_pods(),
            victim: LOWEST,
            admits: [true, true, false],
        },
    )
    .await;
    assert!(world.node.state().reclaimed.is_empty(), "nothing on disks helps");
}

#[tokio::test(start_paused = true)]
async fn pid_pressure() {
    let running = |running| {
        let mut stats = left("8Gi");
        stats.tasks = Some(LimitStats { at: None, max: 2000, used: running });
        stats
    };
    let pods = vec![
        (pod("high-priority", 1, &[]), tasks(600)),
        (pod("fewer", -1, &[]), tasks(100)),
        (pod("victim", -1, &[]), tasks(600)),
    ];
    run(
        hard_and_soft("pid.available", "1200", "1500"),
        Script {
            condition: PressureCondition::Pid,
            healthy: running(300),
            soft: running(700),
            hard: running(1200),
            pods,
            victim: "victim",
            admits: [false; 3],
        },
    )
    .await;
}

fn fs(available: &str, inodes_free: &str) -> FsStats {
    FsStats {
        at: None,
        capacity_bytes: Some(bytes("100Gi")),
        available_bytes: Some(bytes(available)),
        inodes: Some(bytes("4Mi")),
        inodes_free: Some(bytes(inodes_free)),
        ..FsStats::default()
    }
}

/// A shortage on the file system that holds the writable layers in this `layout`.
fn short(layout: FsLayout, fs: FsStats, healthy: FsStats) -> NodeStats {
    let (nodefs, imagefs, containerfs) = match layout {
        FsLayout::One => (fs, fs, fs),
        FsLayout::ImageFs => (healthy, fs, fs),
        FsLayout::Split => (fs, healthy, fs),
    };
    {
        let mut stats = left("8Gi");
        stats.nodefs = Some(nodefs);
        stats.imagefs = Some(imagefs);
        stats.containerfs = Some(containerfs);
        stats.layout = Some(layout);
        stats
    }
}

async fn disk_script(signal: &str, hard: &str, soft: &str, of: impl Fn(&str) -> FsStats) {
    let is_inodes = signal.ends_with("inodesFree");
    for layout in [FsLayout::One, FsLayout::ImageFs, FsLayout::Split] {
        let healthy = of("3Gi");
        let used = |much: u64, little: &str| match is_inodes {
            true => inodes(much),
            false => disk(little, "0"),
        };
        let pods = vec![
            (pod("high-priority", 1, &[]), used(900_000, "900Mi")),
            (pod("less", -1, &[]), used(100_000, "100Mi")),
            (pod("victim", -1, &[]), used(900_000, "900Mi")),
        ];
        let file_system = if layout == FsLayout::ImageFs { "imagefs" } else { "nodefs" };
        let world = run(
            hard_and_soft(&format!("{file_system}.{signal}"), hard, soft),
            Script {
                condition: PressureCondition::Disk,
                healthy: short(layout, healthy, healthy),
                soft: short(layout, of("1.5Gi"), healthy),
                hard: short(layout, of("750Mi"), healthy),
                pods,
                victim: "victim",
                admits: [false; 3],
            },
        )
        .await;
        assert!(!world.node.state().reclaimed.is_empty(), "{layout:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn disk_pressure_node_fs() {
    disk_script("available", "1Gi", "2Gi", |available| fs(available, "3Mi")).await;
}

#[tokio::test(start_paused = true)]
async fn inode_pressure_fs_inodes() {
    let of = |available: &str| match available {
        "3Gi" => fs("50Gi", "3Mi"),
        "1.5Gi" => fs("50Gi", "1.5Mi"),
        _ => fs("50Gi", "0.5Mi"),
    };
    disk_script("inodesFree", "1Mi", "2Mi", of).await;
}

#[tokio::test(start_paused = true)]
async fn allocatable_memory_pressure() {
    let policy = policy(json!({"evictionHard": {"allocatableMemory.available": "1Gi"}}));
    let pods_left = |quantity: &str| {
        let mut stats = left("8Gi");
        stats.pods_memory = left(quantity).memory;
        stats.memory = None;
        stats
    };
    let world = World::new(policy, memory_pods());
    world.is(pods_left("4Gi"), MINUTE).await;
    assert!(!world.has(PressureCondition::Memory));
    world.helps(LOWEST, pods_left("2Gi"));
    world.is(pods_left("500Mi"), secs(30)).await;
    assert_eq!(world.killed(), [(LOWEST.to_owned(), Some(1))]);
    assert_eq!(admitted(&world), [true, true, false]);
    world.is(pods_left("2Gi"), MINUTE).await;
    assert!(world.has(PressureCondition::Memory));
    world.is(pods_left("2Gi"), 5 * MINUTE).await;
    assert!(!world.has(PressureCondition::Memory));
}

#[tokio::test(start_paused = true)]
async fn memory_pressure_verify_pod_status() {
    let policy = policy(json!({"evictionHard": {"memory.available": "2Gi"}}));
    let world = World::new(policy, vec![(pod("below", 0, &[]), memory("500Mi"))]);
    world.helps("below", left("4Gi"));
    world.is(left("1500Mi"), secs(3)).await;
    let text = "The node was low on resource: memory. Threshold quantity: 2Gi, available: 1500Mi. ";
    let calls = world.killer.calls();
    let status = calls[0].request.status.as_ref().unwrap();
    assert_eq!((&*status.reason, &*status.message), ("Evicted", text));
    assert_eq!(status.disruption_message.as_deref(), Some(text));
    assert!(calls[0].request.evict);
}

#[tokio::test(start_paused = true)]
async fn pid_pressure_verify_pod_status() {
    let policy = policy(json!({"evictionHard": {"pid.available": "1200"}}));
    let world = World::new(policy, vec![(pod("p", 0, &[]), tasks(500))]);
    let tasks = Some(LimitStats { at: None, max: 1500, used: 1000 });
    world
        .is(
            {
                let mut stats = left("8Gi");
                stats.tasks = tasks;
                stats
            },
            Duration::from_millis(1100),
        )
        .await;
    let text = "The node was low on resource: pids. Threshold quantity: 1200, available: 500. ";
    assert_eq!(world.message(0), text);
}

#[tokio::test(start_paused = true)]
async fn disk_pressure_node_fs_verify_pod_status() {
    let cases = [
        (FsLayout::One, "nodefs.available", "2Gi", "1.5Gi", "1536Mi"),
        (FsLayout::ImageFs, "imagefs.available", "50Gi", "10Gi", "10Gi"),
        (FsLayout::Split, "nodefs.available", "50Gi", "10Gi", "10Gi"),
    ];
    for (layout, signal, threshold, available, shown) in cases {
        let policy = policy(json!({"evictionHard": {signal: threshold}}));
        let request = [("ephemeral-storage", "100Mi")];
        let world = World::new(policy, vec![(pod("p", 0, &request), disk("600Mi", "100Mi"))]);
        let stats = short(layout, fs(available, "3Mi"), fs("80Gi", "3Mi"));
        world.is(stats, secs(3)).await;
        assert_eq!(
            world.message(0),
            format!(
                "The node was low on resource: ephemeral-storage. Threshold quantity: {threshold}, \
                 available: {shown}. Container main was using 700Mi, request is 100Mi, has larger \
                 consumption of ephemeral-storage. "
            )
        );
    }
}

#[tokio::test(start_paused = true)]
async fn min_reclaim() {
    let policy = policy(json!({
        "evictionHard": {"memory.available": "1Gi"},
        "evictionMinimumReclaim": {"memory.available": "500Mi"},
    }));
    let world = World::new(policy, memory_pods());
    world.is(left("8Gi"), MINUTE).await;
    world.helps(LOWEST, left("1.2Gi"));
    world.helps("best-effort-high-priority-high-usage", left("2Gi"));
    world.helps("burstable-above-requests", left("1.2Gi"));
    world.is(left("500Mi"), MINUTE).await;
    let names: Vec<String> = world.killed().into_iter().map(|(name, _)| name).collect();
    let all = [LOWEST, "burstable-above-requests", "best-effort-high-priority-high-usage"];
    assert_eq!(names, all, "until as much is regained as is wanted");
    assert!(world.has(PressureCondition::Memory));
    world.is(left("2Gi"), 5 * MINUTE).await;
    assert!(!world.has(PressureCondition::Memory));
    assert_eq!(world.killed().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn node_reclaim_funcs() {
    use Reclaimable::{DeadContainers, RotatedLogs, UnusedImages};
    let cases: [(FsLayout, &str, &[Reclaimable]); 4] = [
        (FsLayout::One, "nodefs.available", &[DeadContainers, RotatedLogs, UnusedImages]),
        (FsLayout::ImageFs, "imagefs.available", &[DeadContainers, UnusedImages]),
        (FsLayout::Split, "nodefs.available", &[DeadContainers, RotatedLogs]),
        (FsLayout::Split, "imagefs.available", &[UnusedImages]),
    ];
    for (layout, signal, kinds) in cases {
        let policy = policy(json!({
            "evictionHard": {signal: "1Gi"},
            "evictionMinimumReclaim": {signal: "500Mi"},
        }));
        let pods = vec![
            (pod("high-priority", 1, &[]), disk("900Mi", "0")),
            (pod("victim", -1, &[]), disk("900Mi", "0")),
        ];
        let of = |available: &str| {
            let (fs, healthy) = (fs(available, "3Mi"), fs("50Gi", "3Mi"));
            let mut stats = short(layout, fs, healthy);
            if signal.starts_with("imagefs") && layout == FsLayout::Split {
                (stats.nodefs, stats.imagefs, stats.containerfs) =
                    (Some(healthy), Some(fs), Some(healthy));
            }
            stats
        };
        let world = World::new(policy, pods);
        world.is(of("16Gi"), MINUTE).await;
        assert_eq!(world.node.state().reclaimed, [], "{layout:?}: it is healthy");

        world.node.state().after_reclaim = Some(of("3Gi"));
        world.is(of("0.5Gi"), MINUTE).await;
        assert_eq!(world.node.state().reclaimed, kinds, "{layout:?}");
        assert!(world.has(PressureCondition::Disk), "{layout:?}");
        assert_eq!(world.killed(), [], "{layout:?}: it was enough");

        world.node.state().after_reclaim = Some(of("1.1Gi"));
        world.helps("victim", of("16Gi"));
        world.is(of("0.5Gi"), MINUTE).await;
        let victim = [("victim".to_owned(), Some(1))];
        assert_eq!(world.killed(), victim, "{layout:?}: less than was to be regained");
    }
}

#[tokio::test(start_paused = true)]
async fn static_critical_pods_are_not_evicted() {
    let hog = |priority| {
        changed("static", 0, &[], |object| {
            let source = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
            object.metadata.annotations = Some([source].into());
            object.spec.as_mut().unwrap().priority = priority;
        })
    };
    for priority in [Some(2_000_000_000), None] {
        let policy = hard_and_soft("memory.available", "1Gi", "2Gi");
        let world = World::new(policy, vec![(hog(priority), memory("800Mi"))]);
        world.is(left("2Gi"), MINUTE).await;
        assert!(!world.has(PressureCondition::Memory));
        world.is(left("1500Mi"), 4 * MINUTE).await;
        assert!(world.has(PressureCondition::Memory));
        world.is(left("500Mi"), MINUTE).await;
        assert_eq!(world.killed(), []);
        world.is(left("2Gi"), 6 * MINUTE).await;
        assert!(!world.has(PressureCondition::Memory));
    }
}
