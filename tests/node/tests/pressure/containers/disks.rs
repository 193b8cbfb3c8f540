//! Full disks: what no pod misses is given back first, and a pod ends only when that is not enough.

use winddown_node_tests::in_long_form;
use winddown_node_tests::scenario::TestResult;

use super::stage::{Stage, Taker};

/// An image of 100 MiB that nothing uses.
const UNUSED: &str = r#"
mkdir -p /tmp/image && cd /tmp/image && head -c 100M /dev/urandom >big && tar cf layer.tar big && rm big
id=$(sha256sum layer.tar | cut -d' ' -f1)
printf '{"architecture":"amd64","os":"linux","config":{"Cmd":["/none"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$id" >config.json
printf '[{"Config":"config.json","RepoTags":["winddown.test/unused:1"],"Layers":["layer.tar"]}]' >manifest.json
tar cf /tmp/unused.tar config.json manifest.json layer.tar && rm -r /tmp/image
ctr --namespace=k8s.io images import /tmp/unused.tar && rm /tmp/unused.tar
"#;

/// Images are given back when they were there for so many seconds, of which the agent is told.
const OLD: f64 = 5.0;

#[tokio::test]
async fn a_full_disk_of_images_is_relieved_of_unused_ones_before_a_container_is_ended() -> TestResult
{
    let test = "a_full_disk_of_images_is_relieved_of_unused_ones_before_a_container_is_ended";
    if !in_long_form(test, "takes a minute, and a full disk of everything is tried") {
        return Ok(());
    }
    let disks: [(&str, &[&str]); 2] =
        [("size=300m", &["/var/lib/winddown"]), ("size=800m", &["/var/lib/containerd"])];
    gives_back_first(test, "imagefs.available", &disks).await
}

#[tokio::test]
async fn a_full_disk_of_everything_is_relieved_of_images_before_a_container_is_ended() -> TestResult
{
    let test = "a_full_disk_of_everything_is_relieved_of_images_before_a_container_is_ended";
    let disks: [(&str, &[&str]); 1] =
        [("size=800m", &["/var/lib/winddown", "/var/lib/containerd"])];
    gives_back_first(test, "nodefs.available", &disks).await
}

async fn gives_back_first(test: &str, signal: &str, disks: &[(&str, &[&str])]) -> TestResult {
    let pods = [
        Taker { name: "web", does: ("put", 20, "/tmp"), ..Taker::default() },
        Taker { name: "again", does: ("leave", 60, "/tmp"), ..Taker::default() },
        Taker { name: "filler", does: ("fill-later", 10, "/tmp"), ..Taker::default() },
    ];
    let config = format!("evictionHard: {{{signal}: 200Mi}}\nimageMinimumGCAge: {OLD}s\n");
    let Some(stage) = Stage::set(test, &config, &pods).await? else { return Ok(()) };
    stage.small_disks(disks).await?;
    stage.node().run(&["sh", "-c", UNUSED]).await?;
    stage.start().await?;
    let again = || stage.log("again").lines().count() > 1;
    stage.until("the second container of a pod to run", async || again()).await?;
    stage
        .until("images to be old enough", async || {
            let status = stage.scenario.status_from_outside().await.unwrap_or_default();
            status["node"]["uptimeSeconds"].as_f64().is_some_and(|seconds| seconds > OLD)
        })
        .await?;
    assert!(images(&stage).await?.contains("unused"), "nothing is given back without need");
    stage.node().run(&["touch", "/var/log/pods-under-test/go"]).await?;

    stage
        .until("the image to be given back", async || {
            images(&stage).await.is_ok_and(|images| !images.contains("unused"))
        })
        .await?;
    assert_eq!(stage.evicted().await?, [], "it was enough");
    // The disk fills on.
    let evicted = stage.until_evicted(&["filler"]).await?;
    let said = "The node was low on resource: ephemeral-storage. Threshold quantity: 200Mi, ";
    assert!(evicted[0].1.starts_with(said), "{evicted:?}");
    let mut history = Vec::new();
    stage
        .until("the filler's end", async || {
            history = stage.history().await.unwrap_or_default();
            history.iter().any(|(_, outcome)| outcome.starts_with("terminated in"))
        })
        .await?;
    println!("{test}: {history:?}");
    // What containers write is on the same disk, and may cross its own threshold first.
    let is_of_disk = |of: &str| of == signal || of == "containerfs.available";
    assert!(history.iter().all(|(of, _)| is_of_disk(of)), "{history:?}");
    // The image, and another that no pod has. The dead container of a pod that runs stays, for its `lastState`.
    assert!(history[0].1.starts_with("gave back 2 items, "), "{history:?}");
    let ended = history.iter().position(|(_, outcome)| outcome.starts_with("terminated in"));
    let before = &history[..ended.ok_or("it has ended")?];
    assert!(before.iter().all(|(_, outcome)| outcome.starts_with("gave back")), "{history:?}");
    // containerd removes what the filler had written when its garbage collector runs next.
    stage.until_relieved().await?;
    for other in ["web", "again"] {
        assert_eq!(stage.asked(other), None, "{other}");
    }
    Ok(())
}

async fn images(stage: &Stage) -> TestResult<String> {
    Ok(stage.node().run(&["ctr", "--namespace=k8s.io", "images", "list", "-q"]).await?)
}
