//! Pods come, run, change and go, and the agent starts again beside them.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::pods::harness::{Cluster, once, path, pod};

#[tokio::test]
async fn t1_with_a_runtime_that_tells_and_with_one_that_is_asked() {
    for polling in [false, true] {
        let cluster = Cluster::new().await;
        let running = if polling { cluster.start_polling().await } else { cluster.start().await };
        let running = running.ready().await;
        cluster.server.apply(pod("a")).unwrap();
        cluster.until_phase("a", "Running").await;
        let began = Instant::now();
        cluster.server.delete(&path("a"), Some(600)).unwrap();
        cluster.until_gone("a").await;
        assert!(began.elapsed() < Duration::from_secs(60), "not after its grace");
        cluster.until_given(0).await;
        // Its last word was taken before its object went.
        let requests = cluster.server.requests();
        let of = |verb: &str| requests.iter().rposition(|r| r.right.verb == verb).unwrap();
        assert!(of("patch") < of("delete"), "{polling}");
        running.stop().await;
    }
}

#[tokio::test]
async fn a_pod_that_ends_by_itself_is_told_and_stays() {
    let cluster = Cluster::new().await;
    let running = cluster.start().await.ready().await;
    cluster.server.apply(once("a")).unwrap();
    cluster.until_phase("a", "Running").await;
    cluster.node.exit("a", 1);
    cluster.until_phase("a", "Failed").await;
    let status = cluster.server.get(&path("a")).unwrap()["status"].clone();
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 1);
    running.stop().await;
    assert!(cluster.server.get(&path("a")).is_some());
}

#[tokio::test]
async fn t8_t21_a_new_image_reaches_the_node_and_labels_of_others_stay() {
    let cluster = Cluster::new().await;
    let running = cluster.start().await.ready().await;
    cluster.server.apply(pod("a")).unwrap();
    cluster.until_phase("a", "Running").await;
    let edit = json!({
        "metadata": {"labels": {"by": "somebody"}},
        "spec": {"containers": [{"name": "main", "image": "newer"}]},
    });
    cluster.server.patch(&path("a"), &edit).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let pods = cluster.node.pods();
        if pods[0].spec.as_ref().unwrap().containers[0].image.as_deref() == Some("newer") {
            break;
        }
        assert!(Instant::now() < end, "the image never arrived");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let object = cluster.server.get(&path("a")).unwrap();
    assert_eq!(object["metadata"]["labels"]["by"], "somebody");
    running.stop().await;
}

#[tokio::test]
async fn a_restart_leaves_what_runs_alone_tells_what_ended_and_starts_nothing_twice() {
    let cluster = Cluster::new().await;
    let first = cluster.start().await.ready().await;
    for object in [pod("runs"), once("ends")] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        cluster.server.apply(object).unwrap();
        cluster.until_phase(&name, "Running").await;
    }
    first.stop().await;
    // While no agent is there, one pod ends, one is deleted, and one is made.
    cluster.node.exit("ends", 0);
    cluster.server.apply(pod("new")).unwrap();
    cluster.server.forget_requests();
    let second = cluster.start_polling().await.ready().await;
    cluster.until_phase("new", "Running").await;
    cluster.until_phase("ends", "Succeeded").await;
    cluster.until_given(3).await;
    assert_eq!(cluster.server.count("delete", "pods"), 0);
    cluster.server.delete(&path("ends"), Some(30)).unwrap();
    cluster.until_gone("ends").await;
    cluster.until_given(2).await;
    second.stop().await;
}

#[tokio::test]
async fn t4_what_only_the_node_has_is_ended_and_what_another_node_has_is_not_touched() {
    let cluster = Cluster::new().await;
    let first = cluster.start().await.ready().await;
    for name in ["stays", "vanishes"] {
        cluster.server.apply(pod(name)).unwrap();
        cluster.until_phase(name, "Running").await;
    }
    first.stop().await;
    cluster.server.remove(&path("vanishes"));
    let mut other = pod("other");
    other["spec"]["nodeName"] = json!("node-2");
    cluster.server.apply(other).unwrap();
    let second = cluster.start_polling().await.ready().await;
    cluster.until_given(1).await;
    assert_eq!(cluster.node.pods()[0].name().as_ref(), "stays");
    assert!(cluster.server.get(&path("other")).unwrap()["status"]["phase"] == "Pending");
    second.stop().await;
}

/// Throughput only: nothing is asserted about the figure, which other work on the machine decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t9_how_many_pods_are_created_in_a_second() {
    const PODS: usize = 200;
    let cluster = Cluster::new().await;
    let running = cluster.start().await.ready().await;
    let began = Instant::now();
    for n in 0..PODS {
        cluster.server.apply(pod(&format!("p{n}"))).unwrap();
    }
    cluster.until_given(PODS).await;
    let created = began.elapsed();
    for n in 0..PODS {
        cluster.until_phase(&format!("p{n}"), "Running").await;
    }
    let told = began.elapsed();
    let rate = |time: Duration| f64::from(u32::try_from(PODS).unwrap()) / time.as_secs_f64();
    println!(
        "T9: {PODS} pods: {:.0} created a second, {:.0} told as Running a second",
        rate(created),
        rate(told)
    );
    running.stop().await;
}
