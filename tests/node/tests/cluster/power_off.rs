//! The end of a node, as the cluster hears of it.

use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{GROUPS, TestResult, seven_pods};

use crate::cluster::bed::{Bed, is};

/// More than the pods need, and less than systemd's own patience.
pub(crate) const DOWN: Duration = Duration::from_secs(40);

#[tokio::test]
async fn the_cluster_knows_every_end_before_the_node_is_off() -> TestResult {
    let test = "the_cluster_knows_every_end_before_the_node_is_off";
    let Some(mut bed) = Bed::joined(test, seven_pods()).await? else { return Ok(()) };
    bed.bind_all()?;
    bed.pods_run(&seven_pods()).await?;
    bed.scenario.untouched_pids().await?;

    bed.scenario.power_off().await?;
    bed.scenario.node.wait_off(DOWN).await?;
    // Nothing comes from a node that is off, so this is what came before.
    bed.assert_all_terminated()?;
    let node = bed.node()?;
    assert!(is(&node, "Ready", "False"), "{node:#}");
    assert!(is(&node, "GracefulNodeShutdownInProgress", "True"), "{node:#}");
    assert_eq!(node["spec"]["unschedulable"], true, "{node:#}");

    let (_, last_exit) = bed.scenario.assert_ended_in_order()?;
    bed.scenario.lock_outlived(last_exit).await?;
    bed.scenario.assert_systemd_killed_nothing().await?;
    let report = bed.scenario.newest_report()?;
    assert_eq!(report["outcome"], "clean", "{report}");
    Ok(())
}

#[tokio::test]
async fn a_node_that_was_cut_off_at_its_end_tells_it_after_the_boot_and_starts_nothing_again()
-> TestResult {
    let test =
        "a_node_that_was_cut_off_at_its_end_tells_it_after_the_boot_and_starts_nothing_again";
    let Some(mut bed) = Bed::joined(test, seven_pods()).await? else { return Ok(()) };
    bed.bind_all()?;
    bed.pods_run(&seven_pods()).await?;
    bed.scenario.untouched_pids().await?;

    bed.cut_off().await;
    bed.scenario.power_off().await?;
    bed.scenario.node.wait_off(DOWN).await?;
    bed.scenario.assert_ended_in_order()?;
    for pod in &bed.scenario.pods {
        assert_eq!(bed.pod(&pod.name)?["status"]["phase"], "Running", "nobody could tell");
    }
    let report = bed.scenario.newest_report()?;
    assert_eq!(report["outcome"], "clean", "{report}");
    let untold = report["unsentStatuses"].as_array().map_or(0, Vec::len);
    assert_eq!(untold, 7, "{report}");

    back_after_a_boot(&mut bed).await
}

#[tokio::test]
async fn a_node_that_is_cut_off_between_its_groups_tells_the_rest_after_the_boot() -> TestResult {
    let test = "a_node_that_is_cut_off_between_its_groups_tells_the_rest_after_the_boot";
    let mut pods = seven_pods();
    for pod in pods.iter_mut().filter(|pod| pod.priority == GROUPS[1]) {
        // So the first group's ends are told while this one is ending.
        pod.stop_ms = 3000;
    }
    let Some(mut bed) = Bed::joined(test, pods.clone()).await? else { return Ok(()) };
    bed.bind_all()?;
    bed.pods_run(&pods).await?;
    bed.scenario.untouched_pids().await?;
    let (first, rest): (Vec<_>, Vec<_>) =
        pods.into_iter().partition(|pod| pod.priority == GROUPS[0]);

    bed.scenario.power_off().await?;
    bed.pods_are(&first, "Failed").await?;
    bed.cut_off().await;
    bed.scenario.node.wait_off(DOWN).await?;
    bed.scenario.assert_ended_in_order()?;
    for pod in &rest {
        assert_eq!(bed.pod(&pod.name)?["status"]["phase"], "Running", "nobody could tell");
    }
    let report = bed.scenario.newest_report()?;
    let untold = report["unsentStatuses"].as_array().cloned().unwrap_or_default();
    let mut untold: Vec<_> = untold.iter().filter_map(Value::as_str).collect();
    untold.sort_unstable();
    assert_eq!(untold, ["default/agent-0", "default/queue-0", "default/queue-1"], "{report}");
    back_after_a_boot(&mut bed).await
}

/// Boots the node with the API server in reach, and fails unless it tells what was left to say, takes
/// pods again and starts none of the old ones.
async fn back_after_a_boot(bed: &mut Bed) -> TestResult {
    bed.scenario.node.start().await?;
    bed.scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    bed.scenario.lock_is_back().await?;
    bed.connect().await?;
    bed.pods_are(&bed.scenario.pods, "Failed").await?;
    bed.assert_all_terminated()?;
    bed.node_is("back", |node| {
        is(node, "Ready", "True")
            && node["spec"]["unschedulable"] != true
            && !is(node, "GracefulNodeShutdownInProgress", "True")
            && !is(node, "DrainInProgress", "True")
    })
    .await?;

    // The node takes work again; when it does that, it has long decided about the old pods.
    let late = TestPod::new("late", 0, 100);
    bed.bind(&late)?;
    bed.pods_run(&[late]).await?;
    bed.assert_started_once();
    bed.assert_all_terminated()?;
    bed.server.delete("pods/default/late", None)?;
    bed.pod_is_gone("late").await?;
    bed.assert_started_once();
    Ok(())
}
