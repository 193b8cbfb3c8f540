//! Limits of a pod's own on disks, and a disk without inodes.

use winddown_node_tests::scenario::TestResult;

use super::stage::{DATA, Stage, Taker};

#[tokio::test]
async fn containers_over_their_own_limits_on_disks_are_ended_and_others_are_not() -> TestResult {
    let test = "containers_over_their_own_limits_on_disks_are_ended_and_others_are_not";
    let pods = [
        Taker {
            name: "a-volume",
            does: ("put", 30, DATA),
            data: Some(Some("10Mi")),
            ..Taker::default()
        },
        Taker {
            name: "b-container",
            does: ("put", 30, "/tmp"),
            ephemeral: Some("10Mi"),
            beside: Some("100Mi"),
            ..Taker::default()
        },
        Taker {
            name: "c-pod",
            does: ("put", 30, DATA),
            data: Some(None),
            ephemeral: Some("10Mi"),
            ..Taker::default()
        },
        Taker {
            name: "within",
            does: ("put", 30, DATA),
            data: Some(Some("100Mi")),
            ephemeral: Some("100Mi"),
            ..Taker::default()
        },
    ];
    let config = "evictionHard: {memory.available: 50Mi}\n";
    let Some(stage) = Stage::set(test, config, &pods).await? else { return Ok(()) };
    // Writable layers count against a container where they are on the file system of its logs.
    stage.small_disks(&[("size=800m", &["/var/lib/winddown", "/var/lib/containerd"])]).await?;
    stage.start().await?;
    let evicted = stage.until_evicted(&["a-volume", "b-container", "c-pod"]).await?;
    let messages: Vec<&str> = evicted.iter().map(|(_, message)| &**message).collect();
    assert_eq!(
        messages,
        [
            "Usage of EmptyDir volume \"data\" exceeds the limit \"10Mi\". ",
            "Container main exceeded its local ephemeral storage limit \"10Mi\". ",
            "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
        ]
    );
    assert_eq!(stage.asked("within"), None);
    Ok(())
}

#[tokio::test]
async fn a_container_that_eats_the_inodes_of_the_nodes_disk_is_ended() -> TestResult {
    let test = "a_container_that_eats_the_inodes_of_the_nodes_disk_is_ended";
    let pods = [
        Taker { name: "web", does: ("put", 5, DATA), data: Some(None), ..Taker::default() },
        Taker { name: "eater", does: ("files", 1000, DATA), data: Some(None), ..Taker::default() },
    ];
    let config = "evictionHard: {nodefs.inodesFree: '10000'}\n";
    let Some(stage) = Stage::set(test, config, &pods).await? else { return Ok(()) };
    stage.small_disks(&[("size=200m,nr_inodes=30000", &["/var/lib/winddown"])]).await?;
    stage.start().await?;
    let evicted = stage.until_evicted(&["eater"]).await?;
    let said = "The node was low on resource: inodes. Threshold quantity: 10k, available: ";
    assert!(evicted[0].1.starts_with(said), "{evicted:?}");
    stage.until_relieved().await?;
    assert_eq!(stage.asked("web"), None);
    let status = stage.scenario.status().await?;
    assert_eq!(status["pressure"]["conditions"], serde_json::json!(["DiskPressure"]));
    Ok(())
}
