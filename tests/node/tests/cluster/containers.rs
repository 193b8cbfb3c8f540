//! The same with containers of containerd.

use serde_json::json;
use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{SOON, TestResult, seven_pods};

use crate::cluster::bed::{Bed, is};
use crate::cluster::power_off::DOWN;

#[tokio::test]
async fn containers_of_the_api_outlive_a_killed_agent_and_their_ends_are_known_before_power_off()
-> TestResult {
    let test =
        "containers_of_the_api_outlive_a_killed_agent_and_their_ends_are_known_before_power_off";
    let Some(mut bed) = Bed::joined_with_containerd(test, seven_pods()).await? else {
        return Ok(());
    };
    bed.node_is("told by what its pods run", |node| {
        let runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str();
        let images = node["status"]["images"].as_array();
        runtime.is_some_and(|version| version.starts_with("containerd://1."))
            && images.is_some_and(|all| all[0]["sizeBytes"].as_i64() > Some(0))
    })
    .await?;
    bed.bind_all()?;
    bed.pods_run(&bed.scenario.pods).await?;
    let before = bed.scenario.node.containers().await?;
    assert_eq!(before.len(), 14, "a container and a sandbox for each pod: {before:?}");

    bed.kill_agent().await?;
    let late = TestPod::new("late", 0, 100).in_container();
    bed.bind(&late)?;
    bed.pods_run(&[late]).await?;
    bed.server.delete("pods/default/late", None)?;
    bed.pod_is_gone("late").await?;
    bed.scenario.untouched_pids().await?;
    let node = &bed.scenario.node;
    let as_before = async || node.containers().await.is_ok_and(|now| now == before);
    node.wait_until("the late pod's sandbox to be gone, and no other", SOON, as_before).await?;

    bed.scenario.power_off().await?;
    bed.scenario.node.wait_off(DOWN).await?;
    bed.assert_all_terminated()?;
    assert!(is(&*bed.node()?, "Ready", "False"));
    let (_, last_exit) = bed.scenario.assert_ended_in_order()?;
    bed.scenario.lock_outlived(last_exit).await?;
    assert_eq!(bed.scenario.newest_report()?["outcome"], "clean");
    Ok(())
}

#[tokio::test]
async fn after_a_power_loss_a_pod_fails_with_the_exit_that_containerd_has_of_it() -> TestResult {
    let test = "after_a_power_loss_a_pod_fails_with_the_exit_that_containerd_has_of_it";
    let once = TestPod::new("once", 0, 100).in_container();
    let Some(mut bed) = Bed::joined_with_containerd(test, vec![once.clone()]).await? else {
        return Ok(());
    };
    bed.bind_with(&once, &json!({"restartPolicy": "Never"}))?;
    bed.pods_run(&[once]).await?;
    bed.scenario.node.run(&["sync"]).await?;

    bed.scenario.node.kill();
    bed.scenario.node.start().await?;
    bed.scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    bed.connect().await?;
    let failed = bed.server.within(SOON * 2, "the pod to fail", |all| {
        let pod = all.get("pods/default/once")?;
        (pod["status"]["phase"] == "Failed").then(|| pod["status"].clone())
    });
    let status = failed.await?;
    let exit = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&exit["exitCode"], &exit["reason"]),
        (&json!(255), &json!("Unknown")),
        "{status:#}"
    );
    assert!(status["reason"].is_null() && status["message"].is_null(), "{status:#}");
    assert_eq!(bed.scenario.logs()["once"].starts.len(), 1);
    Ok(())
}
