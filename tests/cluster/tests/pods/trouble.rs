//! An API server that is away, slow or confused: everything here goes on.

use serde_json::json;
use winddown_apiserver::Fault;

use crate::pods::harness::{Cluster, Running, once, path, pod};

async fn with_two_running_pods() -> (Cluster, Running) {
    let cluster = Cluster::new().await;
    let running = cluster.start().await.ready().await;
    for name in ["a", "b"] {
        cluster.server.apply(once(name)).unwrap();
        cluster.until_phase(name, "Running").await;
    }
    (cluster, running)
}

#[tokio::test]
async fn lists_that_fail_or_break_off_end_nothing() {
    let (cluster, running) = with_two_running_pods().await;
    for fault in [
        Fault::on("list", "pods").times(2).status(500),
        Fault::on("list", "pods").times(1).garble(),
        Fault::on("list", "pods").times(1).close(),
        Fault::on("list", "pods").times(1).status(403),
    ] {
        cluster.server.fault(fault);
        cluster.server.compact();
        cluster.server.drop_watches("pods");
        let name = format!("after-{}", cluster.server.requests().len());
        cluster.server.apply(pod(&name)).unwrap();
        cluster.until_phase(&name, "Running").await;
    }
    cluster.until_given(6).await;
    assert_eq!(cluster.server.count("delete", "pods"), 0);
    running.stop().await;
}

#[tokio::test]
async fn a_foreign_status_is_put_right_and_foreign_labels_stay() {
    let (cluster, running) = with_two_running_pods().await;
    // What node-lifecycle does to the pods of a node that was silent.
    let unready = json!({
        "metadata": {"labels": {"by": "somebody"}},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    });
    cluster.server.patch(&path("a"), &unready).unwrap();
    let ready = |o: &winddown_apiserver::Objects<'_>| {
        let pod = o.get(&path("a"))?;
        let conditions = pod["status"]["conditions"].as_array()?;
        let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
        (ready["status"] == "True" && pod["metadata"]["labels"]["by"] == "somebody").then_some(())
    };
    cluster.server.until("it is ready again", ready).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn where_a_pod_may_not_be_read_it_is_listed_before_it_is_ended() {
    // The node authorizer forbids to read a pod that is not bound to the node, as one that is gone.
    let (cluster, running) = with_two_running_pods().await;
    cluster.server.deny("get", "pods");
    cluster.server.pause_watches(true);
    cluster.server.remove(&path("a"));
    cluster.server.compact();
    cluster.server.drop_watches("pods");
    cluster.server.pause_watches(false);
    cluster.until_given(1).await;
    running.stop().await;
}
