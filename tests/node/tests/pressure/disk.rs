//! Disk: a pod that fills the node's file system is ended.

use serde_json::Value;
use winddown_node_tests::scenario::TestResult;

use super::bounded::{Bounded, Bounds, Spec};

#[tokio::test]
async fn a_pod_that_fills_the_nodes_disk_with_its_log_is_ended() -> TestResult {
    let test = "a_pod_that_fills_the_nodes_disk_with_its_log_is_ended";
    let bounds = Bounds { disk: Some(200), ..Bounds::default() };
    let config = "evictionHard: {nodefs.available: 100Mi}\ncontainerLogMaxSize: 1Gi\n";
    let web = Spec { name: "web", priority: 0, asks: 0, does: ("hold", 5) };
    let talker = Spec { name: "talker", priority: 0, asks: 0, does: ("log", 10) };
    let Some(bed) = Bounded::start(test, bounds, config, &[web, talker]).await? else {
        return Ok(());
    };
    bed.until("the eviction is told", || bed.evicted().is_ok_and(|e| e == ["talker"])).await?;
    // Its log goes with it, and nobody follows.
    let is_over = |status: &Value| {
        let thresholds = status["pressure"]["thresholds"].as_array();
        thresholds.is_some_and(|all| all.iter().all(|one| one["metForSeconds"].is_null()))
    };
    bed.until("the shortage to be over", || bed.status().is_ok_and(|s| is_over(&s))).await?;
    assert_eq!(bed.asked("web"), None);
    Ok(())
}
