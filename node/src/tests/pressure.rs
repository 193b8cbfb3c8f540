//! Tests of eviction on a node that is measured in a fake file tree, with pods whose usage the test sets.

use std::fs;
use std::rc::Rc;

use winddown_host::UsagePaths;
use winddown_shared::PodStats;

use super::*;

const MIB: u64 = 1 << 20;

struct Pressed {
    b: Bench,
    kernel: tempfile::TempDir,
    change: Rc<dyn Fn(&mut Config)>,
}

/// A node of 1 GiB with 900 MiB available and a threshold of 100 MiB.
fn node(change: impl Fn(&mut Config) + 'static) -> Pressed {
    let kernel = tempfile::tempdir().unwrap();
    let (proc, cgroup) = (kernel.path().join("proc"), kernel.path().join("cgroup"));
    fs::create_dir_all(proc.join("sys/kernel")).unwrap();
    fs::create_dir_all(&cgroup).unwrap();
    fs::write(proc.join("loadavg"), "0.00 0.00 0.00 1/100 4242\n").unwrap();
    fs::write(proc.join("sys/kernel/pid_max"), "32768\n").unwrap();
    fs::write(proc.join("sys/kernel/threads-max"), "100000\n").unwrap();
    memory(&kernel, 900);
    let state = tempfile::tempdir().unwrap();
    let of_bench = (state, boot_clock(), FakeRuntime::default(), held());
    node_on(kernel, of_bench, Rc::new(change))
}

/// An agent of that node, on what an earlier one has left.
fn node_on(
    kernel: tempfile::TempDir,
    (state, clock, runtime, login): (tempfile::TempDir, BootClock, FakeRuntime, FakeInhibitor),
    change: Rc<dyn Fn(&mut Config)>,
) -> Pressed {
    let (proc, cgroup) = (kernel.path().join("proc"), kernel.path().join("cgroup"));
    let places = UsagePaths { proc, cgroup, ..UsagePaths::of_host(state.path()) };
    let b = bench_with(state, clock, runtime, login, |parts| {
        parts.pressure = Some(places);
        let mut config = Config::clone(&parts.configuration.config);
        // No threshold for disks, because the disk is the real one and may be full.
        config.eviction.hard = [("memory.available".into(), "100Mi".into())].into();
        change(&mut config);
        parts.configuration.config = Arc::new(config);
    });
    Pressed { b, kernel, change }
}

/// Sets the available memory, in MiB.
fn memory(kernel: &tempfile::TempDir, available: u64) {
    let kib = available * 1024;
    let text = format!(
        "MemTotal: 1048576 kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\nInactive(file): 0 kB\n"
    );
    fs::write(kernel.path().join("proc/meminfo"), text).unwrap();
}

impl Pressed {
    /// Replaces the agent by another one.
    fn restart(self) -> Self {
        let Self { b, kernel, change } = self;
        node_on(kernel, b.stop(), change)
    }

    fn uses(&self, pod: &Pod, mib: u64) {
        let memory_working_set = Some(mib * MIB);
        let stats = {
            let mut stats = PodStats::default();
            stats.memory_working_set = memory_working_set;
            stats
        };
        self.b.runtime.uses(pod.uid(), stats);
    }

    fn available(&self, mib: u64) {
        memory(&self.kernel, mib);
    }

    /// Waits until `count` pods were requested to stop.
    async fn until_stops(&self, count: usize) {
        for _ in 0..600 {
            if self.b.runtime.stops().len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("never: {:?}", self.b.node.status().decisions);
    }

    fn kinds(&self) -> Vec<String> {
        self.b.node.status().decisions.into_iter().map(|decision| decision.kind).collect()
    }

    fn evictions(&self) -> String {
        let text = self.b.node.metrics();
        let name = "kubelet_evictions{eviction_signal=\"memory.available\"}";
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("none").trim().to_owned()
    }
}

fn best_effort_from_api(name: &str) -> Pod {
    let mut object = kube::Pod::clone(&pod(name, 0, 30));
    object.metadata.annotations = None;
    Pod::new(object).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_node_short_of_memory_ends_the_pod_that_uses_most_and_tells_the_story() {
    let p = node(|_| {});
    let (web, hog) = (pod("web", 0, 30), pod("hog", 0, 30));
    p.b.runtime.stop_takes(hog.uid(), Duration::from_millis(800));
    p.b.want(&[&web, &hog]).await;
    p.uses(&web, 10);
    p.uses(&hog, 700);
    tokio::time::sleep(secs(30)).await;
    assert!(p.b.runtime.stops().is_empty(), "calm");
    let begun = Instant::now();
    p.available(60);
    p.until_stops(1).await;
    // By the clock alone, because no stalls are reported here.
    assert!(begun.elapsed() <= Duration::from_millis(1100), "{:?}", begun.elapsed());
    p.available(760);
    tokio::time::sleep(secs(10)).await;
    assert_eq!(p.b.runtime.stops(), [hog.uid().clone()], "one was enough");
    let status = p.b.node.status();
    let told = status.pods.iter().find(|pod| pod.name == "hog").unwrap();
    assert_eq!((&*told.phase, &*told.reason), ("Failed", "Evicted"));
    assert!(told.message.starts_with("The node was low on resource: memory."), "{told:?}");
    let pressure = status.pressure.unwrap();
    assert_eq!(pressure.conditions, ["MemoryPressure"], "it stays for a while");
    assert_eq!(pressure.thresholds[0].available.as_deref(), Some("760Mi"));
    let kinds = p.kinds();
    let place =
        |kind: &str| kinds.iter().position(|k| k == kind).unwrap_or_else(|| panic!("{kind}"));
    assert!(place("evictionThresholdMet") < place("evictionStarted"), "{kinds:?}");
    assert!(place("evictionStarted") < place("killRequested"), "{kinds:?}");
    assert!(place("killRequested") < place("podEvicted"), "{kinds:?}");
    assert_eq!(p.evictions(), "1");
    let metrics = p.b.node.metrics();
    assert!(
        metrics.contains("winddown_node_pressure{condition=\"MemoryPressure\"} 1"),
        "{metrics}"
    );
    let age = "kubelet_eviction_stats_age_seconds_count{eviction_signal=\"memory.available\"} 1";
    assert!(metrics.contains(age), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_make_it_worse_wait_outside_and_the_evicted_one_comes_back() {
    let p = node(|_| {});
    let hog = pod("hog", 0, 30);
    p.b.runtime.stop_takes(hog.uid(), Duration::from_millis(800));
    p.b.want(&[&hog]).await;
    p.uses(&hog, 700);
    p.available(60);
    p.until_stops(1).await;
    p.available(760);
    let (late, of_manifest) = (best_effort_from_api("late"), pod("of-manifest", 0, 30));
    p.b.want(&[&hog, &late, &of_manifest]).await;
    let rejected = p.b.node.status().rejected;
    let names: Vec<&str> = rejected.iter().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["late", "of-manifest"]);
    for pod in rejected {
        assert_eq!(pod.reason, "Evicted");
        assert_eq!(pod.message, "Pod was rejected: The node had condition: [MemoryPressure]. ");
    }
    assert_eq!(p.b.runtime.starts(), [hog.uid().clone()]);
    assert_eq!(p.b.node.status().pressure.unwrap().pending_readmission[0].name, "hog");
    tokio::time::sleep(secs(6 * 60)).await;
    assert!([&late, &of_manifest].iter().all(|pod| p.b.runtime.starts().contains(pod.uid())));
    let status = p.b.node.status();
    assert!(status.rejected.is_empty());
    let back = status.pods.iter().find(|pod| pod.name == "hog").unwrap();
    assert_eq!((back.state, &*back.reason), (PodState::Syncing, ""));
    let kinds = p.kinds();
    let count = |kind: &str| kinds.iter().filter(|k| *k == kind).count();
    assert_eq!((count("podRestarted"), count("podRejected")), (1, 2), "{kinds:?}");
}

/// It would be evicted again for what it wrote before, without having written a byte.
#[tokio::test(start_paused = true)]
async fn a_pod_with_a_limit_of_its_own_comes_back_without_the_files_that_exceeded_it() {
    let p = node(|config| config.eviction.pressure_transition_period = secs(1));
    let mut object = kube::Pod::clone(&pod("hog", 0, 30));
    let volume = serde_json::json!({"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}});
    let volumes = vec![serde_json::from_value(volume).unwrap()];
    object.spec.as_mut().unwrap().volumes = Some(volumes);
    let (hog, web) = (Pod::new(object).unwrap(), pod("web", 0, 30));
    p.b.want(&[&hog, &web]).await;
    p.b.runtime.forget_fails(1);
    for (evicted, forgotten) in [(&web, &[][..]), (&hog, std::slice::from_ref(hog.uid()))] {
        let stops = p.b.runtime.stops().len();
        p.uses(evicted, 700);
        p.available(60);
        p.until_stops(stops + 1).await;
        p.uses(evicted, 10);
        p.available(760);
        let starts = p.b.runtime.starts().len();
        tokio::time::sleep(secs(12)).await;
        if evicted.uid() == hog.uid() {
            assert_eq!(p.b.runtime.starts().len(), starts, "its files are still there");
            tokio::time::sleep(secs(25)).await;
        }
        assert_eq!(p.b.runtime.starts().last(), Some(evicted.uid()));
        assert_eq!(p.b.runtime.forgotten(), forgotten);
    }
    assert!(p.b.node.status().pods.iter().all(|pod| pod.state == PodState::Syncing));
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_waits_its_time_although_the_pressure_ended_sooner() {
    let p = node(|config| config.eviction.pressure_transition_period = secs(1));
    let hog = pod("hog", 0, 30);
    p.b.runtime.stop_takes(hog.uid(), Duration::from_millis(800));
    p.b.want(&[&hog]).await;
    p.uses(&hog, 700);
    p.available(60);
    p.until_stops(1).await;
    p.available(760);
    tokio::time::sleep(secs(5)).await;
    assert!(p.b.node.status().pressure.unwrap().conditions.is_empty());
    assert_eq!(p.b.node.status().pods[0].reason, "Evicted");
    tokio::time::sleep(secs(10)).await;
    assert_eq!(p.b.node.status().pods[0].state, PodState::Syncing);
}

/// Restarted while the pod terminates, and when it has terminated.
#[tokio::test(start_paused = true)]
async fn an_evicted_pod_comes_back_when_the_pressure_ends_however_often_the_agent_restarts() {
    for moments in [&[300][..], &[5000], &[300, 5000, 9000]] {
        let mut p = node(|config| config.eviction.pressure_transition_period = secs(1));
        let hog = pod("hog", 0, 30);
        p.b.runtime.stop_takes(hog.uid(), Duration::from_millis(800));
        p.b.want(&[&hog]).await;
        p.uses(&hog, 700);
        p.available(60);
        p.until_stops(1).await;
        for moment in moments {
            tokio::time::sleep(Duration::from_millis(*moment)).await;
            p = p.restart();
            p.b.want(&[&hog]).await;
        }
        tokio::time::sleep(secs(60)).await;
        assert_eq!(p.b.runtime.starts().len(), 1, "{moments:?}: the node is short still");
        let status = p.b.node.status();
        assert_eq!((&*status.pods[0].phase, &*status.pods[0].reason), ("Failed", "Evicted"));
        assert_eq!(status.pressure.unwrap().pending_readmission[0].name, "hog");
        p.available(760);
        tokio::time::sleep(secs(30)).await;
        assert_eq!(p.b.runtime.starts().len(), 2, "{moments:?}");
        assert_eq!(p.b.node.status().pods[0].state, PodState::Syncing);
    }
}

/// A directory on a disk that was full may take a while.
#[tokio::test(start_paused = true)]
async fn an_evicted_pod_comes_back_though_its_manifest_is_read_late_after_a_restart() {
    let mut p = node(|config| config.eviction.pressure_transition_period = secs(1));
    let hog = pod("hog", 0, 30);
    p.b.want(&[&hog]).await;
    p.uses(&hog, 700);
    p.available(60);
    p.until_stops(1).await;
    tokio::time::sleep(secs(5)).await;
    p = p.restart();
    p.available(760);
    tokio::time::sleep(secs(20)).await;
    p.b.want(&[&hog]).await;
    let told = p.b.node.status();
    assert_eq!((&*told.pods[0].phase, &*told.pods[0].reason), ("Failed", "Evicted"));
    tokio::time::sleep(secs(60)).await;
    assert_eq!(p.b.runtime.starts().len(), 2);
    assert_eq!(p.b.node.status().pods[0].state, PodState::Syncing);
}

#[tokio::test(start_paused = true)]
async fn no_second_pod_is_evicted_after_a_restart_while_the_first_is_terminating() {
    let p = node(|config| {
        config.eviction.hard = [].into();
        config.eviction.soft = [("memory.available".into(), "100Mi".into())].into();
        config.eviction.soft_grace_period = [("memory.available".into(), secs(1))].into();
        config.eviction.max_pod_grace_period = 30;
    });
    let (web, hog) = (pod("web", 0, 30), pod("hog", 0, 30));
    p.b.runtime.stop_takes(hog.uid(), secs(25));
    p.b.want(&[&web, &hog]).await;
    p.uses(&web, 10);
    p.uses(&hog, 30);
    p.available(60);
    p.until_stops(1).await;
    let p = p.restart();
    p.b.want(&[&web, &hog]).await;
    tokio::time::sleep(secs(15)).await;
    let stopped: std::collections::BTreeSet<_> = p.b.runtime.stops().into_iter().collect();
    assert_eq!(stopped.len(), 1, "{stopped:?}");
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_whose_manifest_is_gone_does_not_come_back() {
    let p = node(|_| {});
    let hog = pod("hog", 0, 30);
    p.b.runtime.stop_takes(hog.uid(), Duration::from_millis(800));
    p.b.want(&[&hog]).await;
    p.uses(&hog, 700);
    p.available(60);
    p.until_stops(1).await;
    p.available(760);
    p.b.want(&[]).await;
    tokio::time::sleep(secs(6 * 60)).await;
    assert_eq!(p.b.runtime.starts(), [hog.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_an_evicted_pod_whose_manifest_changed() {
    let p = node(|_| {});
    let (hog, web) = (pod("hog", 0, 30), pod("web", 0, 30));
    p.b.want(&[&hog, &web]).await;
    p.uses(&hog, 700);
    p.available(60);
    p.until_stops(1).await;
    p.b.want(&[&hog, &web]).await;
    let kept = || std::fs::read_dir(p.b.state.path().join("kills")).unwrap().count();
    assert_eq!(kept(), 1, "it does not start yet");
    p.b.want(&[&web]).await;
    assert_eq!(kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_evicted_while_the_node_is_drained() {
    let p = node(|_| {});
    let hog = pod("hog", 0, 60);
    p.b.runtime.stop_takes(hog.uid(), secs(8));
    p.b.want(&[&hog]).await;
    p.uses(&hog, 700);
    let mut drained = p.b.node.drain(DrainRequest::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    p.available(60);
    while drained.recv().await.is_some() {}
    assert!(!p.kinds().contains(&"evictionStarted".to_owned()));
    assert_eq!(p.evictions(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_only_watches_says_what_it_would_do_and_a_reload_makes_it_act() {
    let p = node(|config| config.eviction.shadow = true);
    let hog = pod("hog", 0, 30);
    p.b.runtime.stop_takes(hog.uid(), Duration::from_millis(800));
    p.b.want(&[&hog]).await;
    p.uses(&hog, 700);
    p.available(60);
    tokio::time::sleep(secs(5)).await;
    assert!(p.b.runtime.stops().is_empty());
    assert!(p.kinds().contains(&"evictionShadowed".to_owned()), "{:?}", p.kinds());
    assert!(p.b.node.status().pressure.unwrap().conditions.is_empty());
    let mut configuration = p.b.configured.configuration();
    let mut config = Config::clone(&configuration.config);
    config.eviction.shadow = false;
    configuration.config = Arc::new(config);
    p.b.configured.replace(configuration);
    p.until_stops(1).await;
    assert_eq!(p.b.runtime.stops(), [hog.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn the_plan_ranks_the_pods_for_what_is_nearest_or_asked_for_and_keeps_the_history() {
    let p = node(|_| {});
    let (web, hog, dns) = (pod("web", 0, 30), pod("hog", 0, 30), pod("dns", 2_000_000_000, 30));
    p.b.runtime.stop_takes(hog.uid(), Duration::from_millis(800));
    p.b.want(&[&web, &hog, &dns]).await;
    p.uses(&hog, 300);
    p.uses(&web, 10);
    p.uses(&dns, 400);
    tokio::time::sleep(secs(2)).await;
    let plan = p.b.node.eviction_plan(None).await.unwrap();
    assert_eq!(plan.signal.as_deref(), Some("memory.available"));
    let verdicts: Vec<(&str, &str)> =
        plan.pods.iter().map(|pod| (&*pod.name, &*pod.verdict)).collect();
    assert!(verdicts.contains(&("hog", "chosen")), "{verdicts:?}");
    assert!(verdicts.contains(&("web", "notNeeded")), "{verdicts:?}");
    assert!(verdicts.contains(&("dns", "critical")), "{verdicts:?}");
    let other = p.b.node.eviction_plan(Some("pid.available")).await.unwrap_err();
    assert_eq!(other.code, ErrorCode::NotFound, "it has no threshold: {other}");
    p.available(60);
    p.until_stops(1).await;
    p.available(760);
    tokio::time::sleep(secs(5)).await;
    let plan = p.b.node.eviction_plan(None).await.unwrap();
    let last = plan.history.last().unwrap();
    assert_eq!(last.victim.as_deref(), Some("default/hog"));
    assert!(last.outcome.to_string().starts_with("terminated in "), "{last:?}");
    // The JSON can be read back.
    let text = serde_json::to_string(&plan).unwrap();
    let read: winddown_control::api::EvictionPlan = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_evicts_no_pod_and_says_so_when_asked() {
    let b = bench(FakeRuntime::default(), held());
    assert_eq!(b.node.eviction_plan(None).await.unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(b.node.status().pressure, None);
}
