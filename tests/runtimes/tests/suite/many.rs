//! Many pods on a real containerd.

use serde_json::json;
use tokio::time::Instant;

use crate::bed::{Act, POLITE, clean, eventually, pod, run, stop};
use crate::real::set;
use crate::stage::Stage as _;
use crate::stages::container_of;

/// How many pods; more than the default is for measuring.
const PODS: &str = "WINDDOWN_TEST_PODS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_pods_are_asked_to_end_at_once_group_by_group() {
    let Some(stage) = set("many pods are asked to terminate at once").await else { return };
    let count: usize = std::env::var(PODS).ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    let runtime = std::sync::Arc::new(stage.open_now().await);
    let act = Act { stop: "1", ..POLITE };
    let pods: Vec<_> = (0..count)
        .map(|i| pod(&format!("p{i}"), &json!({"containers": [container_of("main", act)]})))
        .collect();
    let began = Instant::now();
    let starts = pods.iter().map(|pod| run(&*runtime, pod));
    futures_util::future::join_all(starts).await;
    println!("{count} pods created in {:?}", began.elapsed());
    for pod in &pods {
        stage.hears(pod).await;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmRSS")).unwrap());
    let (asked, began) = (crate::bed::clock().now(), Instant::now());
    // As in a shutdown: most of them first, the rest when those are gone.
    for group in [&pods[..count * 4 / 5], &pods[count * 4 / 5..]] {
        let stops = group.iter().cloned().map(|pod| {
            let runtime = std::sync::Arc::clone(&runtime);
            tokio::spawn(async move { stop(&*runtime, &pod, 30).await })
        });
        for stopped in futures_util::future::join_all(stops).await {
            assert!(!stopped.unwrap().forced());
        }
        println!("{} pods had terminated after {:?}", group.len(), began.elapsed());
    }
    eventually("all logs are written", || {
        (0..count).all(|i| stage.log(&format!("p{i}"), "main", 0).contains("F asked"))
    })
    .await;
    let heard = |i: usize| -> jiff::SignedDuration {
        let log = stage.log(&format!("p{i}"), "main", 0);
        let line = log.lines().find(|line| line.ends_with("F asked")).unwrap();
        let at: jiff::Timestamp = line.split(' ').next().unwrap().parse().unwrap();
        at.duration_since(asked)
    };
    let mut first: Vec<_> = (0..count * 4 / 5).map(heard).collect();
    let mut second: Vec<_> = (count * 4 / 5..count).map(heard).collect();
    first.sort();
    second.sort();
    println!("SIGTERM heard: first {:?} to {:?}", first[0], first[first.len() - 1]);
    println!("second group: {:?} to {:?}", second[0], second[second.len() - 1]);
    assert!(
        first.last() < second.first(),
        "the second group heard of it before the first had: {second:?}"
    );
    let began = Instant::now();
    let cleans = pods.iter().map(|pod| clean(&*runtime, pod.uid()));
    futures_util::future::join_all(cleans).await;
    println!("cleaned in {:?}", began.elapsed());
}
