//! The same with containers of containerd.

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
