//! Tests of the usage of the node and its pods, as metrics-server and the API server read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};
use winddown_shared::{
    ContainerStats, DiskUse, FsStats, LimitStats, MemoryStats, NodeStats, PodStats, PodUid,
    RuntimeError, VolumeStats,
};

use super::Bench;
use super::clients::Client;
use crate::figures::{NodeUsageStats, SharedMeasurement, StatsProvider};

/// A fake whose every measurement reports one more second of CPU time than the previous one.
#[derive(Default)]
pub(super) struct Measures {
    taken: AtomicU64,
    fails: bool,
    /// Whether files are left that could not be counted.
    is_partial: bool,
}

impl StatsProvider for Measures {
    fn measure(&self, disks: bool) -> BoxFuture<'_, Result<NodeUsageStats, RuntimeError>> {
        async move {
            let used = Duration::from_secs(self.taken.fetch_add(1, Ordering::Relaxed) + 1);
            // Concurrent requests wait for this measurement.
            tokio::time::sleep(Duration::from_millis(10)).await;
            if self.fails {
                let what = "no runtime".to_owned();
                return Err(RuntimeError::Failed { what, source: None });
            }
            let main = ContainerStats {
                name: "main".into(),
                memory_working_set: Some(3000),
                cpu_time: Some(used / 2),
                logs: disks.then_some(DiskUse { bytes: 70, inodes: 2, is_partial: false }),
                ..ContainerStats::default()
            };
            let pod = {
                let mut stats = PodStats::default();
                stats.memory_working_set = Some(4000);
                stats.cpu_time = Some(used);
                stats.tasks = Some(5);
                stats.containers = vec![main];
                stats.volumes = vec![VolumeStats {
                    name: "data".into(),
                    used: DiskUse { bytes: 9, inodes: 1, is_partial: self.is_partial },
                }];
                stats.ephemeral =
                    disks.then_some(DiskUse { bytes: 79, inodes: 3, is_partial: false });
                stats
            };
            let fs = FsStats {
                capacity_bytes: Some(1000),
                available_bytes: Some(400),
                used_bytes: Some(550),
                inodes: Some(100),
                inodes_free: Some(60),
                ..FsStats::default()
            };
            let memory = MemoryStats { working_set: 5000, available: 6000, ..Default::default() };
            let node = {
                let mut stats = NodeStats::default();
                stats.memory = Some(memory);
                stats.tasks = Some(LimitStats { at: None, max: 32768, used: 99 });
                stats.nodefs = disks.then_some(fs);
                stats
            };
            let gone = (PodUid::new("gone"), PodStats::default());
            Ok(NodeUsageStats {
                node,
                cpu_time: Some(used * 3),
                booted_at: Some("2025-12-31T00:00:00.5Z".parse().unwrap()),
                pods: vec![(PodUid::new("u1"), pod), gone],
            })
        }
        .boxed()
    }
}

fn bench(measures: Measures) -> (Bench, Arc<Measures>) {
    let mut bench = Bench::new();
    let measures = Arc::new(measures);
    let context = Arc::get_mut(&mut bench.context).unwrap();
    context.figures = SharedMeasurement::new(Arc::clone(&measures) as _, context.node.clone());
    let pod = bench.pod(Ok(0));
    let status: PodStatus = serde_json::from_value(json!({
        "startTime": "2025-12-31T23:00:00Z",
        "containerStatuses": [{
            "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2025-12-31T23:00:01Z"}},
        }],
    }))
    .unwrap();
    bench.statuses.set(pod, status);
    (bench, measures)
}

async fn get(bench: &Bench, path: &str) -> (u16, String) {
    Client::new(bench, None).await.get(path, Some("figures")).await.unwrap()
}

#[tokio::test]
async fn metrics_server_reads_what_it_reads_of_a_kubelet() {
    let (bench, _) = bench(Measures::default());
    let (status, text) = get(&bench, "/metrics/resource").await;
    assert_eq!(status, 200);
    let wanted = r#"# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="ns",pod="web"} 0.5 1767225600000
# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="main",namespace="ns",pod="web"} 3000 1767225600000
# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="main",namespace="ns",pod="web"} 1767222001
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 3 1767225600000
# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 5000 1767225600000
# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="ns",pod="web"} 1 1767225600000
# HELP pod_memory_working_set_bytes [STABLE] Current working set of the pod in bytes
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="ns",pod="web"} 4000 1767225600000
# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
"#;
    assert_eq!(text, wanted);
}

#[tokio::test]
async fn a_summary_has_the_kubelets_fields() {
    let (bench, _) = bench(Measures::default());
    let (status, text) = get(&bench, "/stats/summary").await;
    let at = "2026-01-01T00:00:00Z";
    let disk = |used: u64, inodes: u64| {
        json!({"time": at, "availableBytes": 400, "capacityBytes": 1000, "usedBytes": used,
            "inodesFree": 60, "inodes": 100, "inodesUsed": inodes})
    };
    let mut volume = disk(9, 1);
    volume["name"] = json!("data");
    let wanted = json!({
        "node": {
            "nodeName": "n1", "startTime": "2025-12-31T00:00:00Z",
            "cpu": {"time": at, "usageCoreNanoSeconds": 3_000_000_000_u64},
            "memory": {"time": at, "availableBytes": 6000, "workingSetBytes": 5000},
            // Root keeps 50 bytes for itself, which are not used.
            "fs": disk(550, 40),
            "rlimit": {"time": at, "maxpid": 32768, "curproc": 99},
        },
        "pods": [{
            "podRef": {"name": "web", "namespace": "ns", "uid": "u1"},
            "startTime": "2025-12-31T23:00:00Z",
            "containers": [{
                "name": "main", "startTime": "2025-12-31T23:00:01Z",
                "cpu": {"time": at, "usageCoreNanoSeconds": 500_000_000},
                "memory": {"time": at, "workingSetBytes": 3000},
                "logs": disk(70, 2),
            }],
            "cpu": {"time": at, "usageCoreNanoSeconds": 1_000_000_000},
            "memory": {"time": at, "workingSetBytes": 4000},
            "volume": [volume],
            "ephemeral-storage": disk(79, 3),
            "process_stats": {"process_count": 5},
        }],
    });
    assert_eq!((status, serde_json::from_str::<Value>(&text).unwrap()), (200, wanted));
    let (_, text) = get(&bench, "/stats/summary?only_cpu_and_memory=true").await;
    let summary: Value = serde_json::from_str(&text).unwrap();
    assert!(summary["node"]["cpu"].is_object() && summary["node"]["fs"].is_null(), "{text}");
}

#[tokio::test]
async fn a_volume_of_which_only_a_part_could_be_counted_has_no_usage_in_the_summary() {
    let (bench, _) = bench(Measures { is_partial: true, ..Measures::default() });
    let (_, text) = get(&bench, "/stats/summary").await;
    let summary: Value = serde_json::from_str(&text).unwrap();
    let volume = &summary["pods"][0]["volume"][0];
    assert!(volume["name"] == "data" && volume["capacityBytes"] == 1000, "{text}");
    assert!(volume["usedBytes"].is_null() && volume["inodesUsed"].is_null(), "{text}");
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_cost_one_measurement_and_the_next_tells_what_is_used_per_second() {
    let (bench, measures) = bench(Measures::default());
    let figures = &bench.context.figures;
    let all = join_all((0..100).map(|_| figures.get(false))).await;
    assert!(all.iter().all(|taken| taken.as_ref().is_ok_and(|taken| taken.node_rate.is_none())));
    figures.get(false).await.unwrap();
    assert_eq!(measures.taken.load(Ordering::Relaxed), 1);
    tokio::time::sleep(Duration::from_millis(9_990)).await;
    let taken = figures.get(false).await.unwrap();
    assert_eq!(measures.taken.load(Ordering::Relaxed), 2);
    let rates = &taken.rates[&PodUid::new("u1")];
    assert_eq!(taken.node_rate, Some(Duration::from_millis(300)));
    assert_eq!(rates.pod, Some(Duration::from_millis(100)));
    assert_eq!(rates.containers["main"], Duration::from_millis(50));
}

#[tokio::test]
async fn what_cannot_be_measured_is_an_error_and_not_nothing() {
    let (bench, _) = bench(Measures { fails: true, ..Measures::default() });
    assert_eq!(get(&bench, "/stats/summary").await, (500, "no runtime\n".to_owned()));
    let (status, text) = get(&bench, "/metrics/resource").await;
    assert_eq!((status, text.lines().last()), (200, Some("resource_scrape_error 1")));
    assert_eq!(text.lines().count(), 3);
}
