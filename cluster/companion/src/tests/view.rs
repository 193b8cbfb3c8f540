//! What is known about pods.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use winddown_shared::{ContainerKind, ContainerState};

use super::super::facts;
use super::pods::*;
use super::world::*;

async fn settled() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_changes_is_told_to_its_worker_and_leaves_what_is_desired_as_it_is() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    let mut desired = core.known.desired();
    let first = desired.borrow_and_update().clone().unwrap();
    assert!(first.complete);
    let mut changes = core.known.changes();
    world.apply(pod("web", json!({"status": {"containerStatuses": [terminated(1)]}})));
    assert_eq!(changes.recv().await.unwrap(), uid("web"));
    settled().await;
    assert!(!desired.has_changed().unwrap());
    let status = core.known.status(&uid("web")).unwrap();
    assert!(
        matches!(&status.containers[0].state, ContainerState::Exited(exit) if exit.exit_code == 1)
    );

    world.apply(pod("web", json!({"metadata": {"labels": {"a": "b"}}})));
    settled().await;
    assert!(desired.has_changed().unwrap());
    let second = desired.borrow_and_update().clone().unwrap();
    assert!(!second.pods[0].is_same_object(&first.pods[0]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_is_not_desired_and_is_remembered_while_it_is_asked_for() {
    let (world, core) = World::new([pod("web", json!({})), pod("db", json!({}))]).await;
    world.remove("web");
    settled().await;
    let desired = core.known.desired().borrow().clone().unwrap();
    assert_eq!(desired.pods.iter().map(|pod| &**pod.name()).collect::<Vec<_>>(), ["db"]);
    assert_eq!(core.known.list().len(), 1);
    assert!(!core.known.status(&uid("web")).unwrap().any_running());
    core.known.forget(&uid("db"));
    assert!(core.known.status(&uid("db")).is_some(), "it is there");
    core.known.forget(&uid("web"));
    assert!(core.known.status(&uid("web")).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_forbids_to_watch_the_pods_is_quoted_and_not_called_unavailable() {
    const WHY: &str = "pods is forbidden: User \"system:node:n1\" cannot watch resource \"pods\" in API group \"\"";
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.forbid_watches(Some(WHY));
    sleep(secs(100)).await;
    let trouble = core.trouble().unwrap();
    assert!(trouble.ends_with(WHY), "{trouble}");
    assert!(!trouble.contains("unavailable"), "{trouble}");
    assert!(!core.outage.fails());
    assert!(core.known.is_refused());
    world.forbid_watches(None);
    sleep(secs(100)).await;
    assert_eq!(core.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn an_outage_leaves_the_pods_as_they_were_and_a_new_list_tells_what_is_gone() {
    let (world, core) = World::new([pod("web", json!({})), pod("db", json!({}))]).await;
    world.set_api_away(true);
    sleep(secs(100)).await;
    assert!(core.outage.fails());
    assert!(core.trouble().is_some() && !core.known.is_refused(), "it is merely away");
    assert_eq!(core.known.list().len(), 2);
    world.remove("web");
    world.set_api_away(false);
    sleep(secs(20)).await;
    assert!(!core.outage.fails());
    assert_eq!(core.known.list().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_pod_of_this_agent_is_none_of_its_business() {
    let pods = [pod("winddown", json!({})), pod("web", json!({}))];
    let (_, core) = World::with(pods, |config| config.own_pod = Some(uid("winddown"))).await;
    assert_eq!(core.known.list().len(), 1);
    assert_eq!(stop(&core, "winddown", 30).await.1.unwrap(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn the_mirror_pod_of_an_agent_that_a_manifest_runs_is_none_of_its_business_either() {
    let own = |more: &str| {
        let marks = json!({
            "kubernetes.io/config.mirror": "uid-own", "kubernetes.io/config.hash": "uid-own",
            "more": more,
        });
        pod("winddown", json!({"metadata": {"annotations": marks}}))
    };
    let pods = [own("a"), pod("web", json!({}))];
    let (world, core) = World::with(pods, |config| config.own_pod = Some(uid("own"))).await;
    world.apply(own("b"));
    settled().await;
    assert_eq!(core.known.list().len(), 1);
    assert_eq!(core.known.desired().borrow().as_ref().unwrap().pods.len(), 1);
}

#[test]
fn pods_of_manifests_are_planned_last() {
    let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "h"}});
    for (metadata, priority, wanted) in [
        (json!({}), None, None),
        (json!({}), Some(7), Some(7)),
        (mirror.clone(), None, Some(2_000_001_000)),
        (mirror.clone(), Some(7), Some(2_000_001_000)),
        (mirror, Some(2_000_001_001), Some(2_000_001_001)),
    ] {
        let mut object = pod("x", json!({"metadata": metadata}));
        object.spec.as_mut().unwrap().priority = priority;
        assert_eq!(facts::planned(object).spec.unwrap().priority, wanted);
    }
}

#[test]
fn all_kinds_of_containers_are_shown_as_the_kubelet_says_they_are() {
    let object = pod(
        "web",
        json!({
            "spec": {"initContainers": [
                {"name": "init", "image": "x"}, {"name": "side", "image": "x", "restartPolicy": "Always"},
            ]},
            "status": {
                "podIPs": [{"ip": "10.1.2.3"}],
                "initContainerStatuses": [{
                    "name": "side", "image": "x", "imageID": "", "ready": true, "restartCount": 3,
                    "state": {"running": {}},
                }],
            },
        }),
    );
    let status = facts::status(&object, false);
    let kinds: Vec<_> = status.containers.iter().map(|one| (one.kind, one.restart_count)).collect();
    let wanted =
        [(ContainerKind::Init, 0), (ContainerKind::Sidecar, 3), (ContainerKind::Regular, 0)];
    assert_eq!(kinds, wanted);
    assert!(matches!(status.containers[0].state, ContainerState::Waiting { .. }));
    assert_eq!(status.ips, ["10.1.2.3"]);
    assert_eq!(status.running().count(), 2);
    let ended = facts::status(&object, true);
    assert!(!ended.any_running());
    assert!(matches!(
        &ended.containers[2].state,
        ContainerState::Exited(exit) if &*exit.reason == "ContainerStatusUnknown"
    ));
}

#[test]
fn what_is_left_of_a_deletions_grace_is_never_more_than_the_whole_of_it() {
    let deleted = |at: &str| {
        pod(
            "web",
            json!({"metadata": {
                "deletionTimestamp": at, "deletionGracePeriodSeconds": 30,
            }}),
        )
    };
    let now = "2030-01-01T00:00:00Z".parse().unwrap();
    for (at, wanted) in
        [("2030-01-01T00:00:20Z", 20), ("2029-12-31T23:59:00Z", 0), ("2030-01-01T05:00:00Z", 30)]
    {
        assert_eq!(facts::deletion_left(&deleted(at), now), Some(secs(wanted)), "{at}");
    }
    assert_eq!(facts::deletion_left(&pod("web", json!({})), now), None);
}

#[test]
fn what_of_drivers_a_pod_has_is_in_its_spec() {
    let holds = |spec: serde_json::Value| {
        let pod = pod("web", json!({"spec": spec}));
        (facts::has_volumes(&pod), facts::has_claims(&pod))
    };
    let volume = |of: serde_json::Value| {
        let mut volume = of;
        volume["name"] = json!("v");
        json!({"containers": [], "volumes": [{"name": "plain", "emptyDir": {}}, volume]})
    };
    assert_eq!(holds(volume(json!({"hostPath": {"path": "/"}}))), (false, false));
    assert_eq!(holds(volume(json!({"persistentVolumeClaim": {"claimName": "c"}}))), (true, false));
    assert_eq!(holds(volume(json!({"emptyDir": {"medium": "Memory"}}))), (false, false));
    assert_eq!(holds(volume(json!({"csi": {"driver": "d"}}))), (true, false));
    assert_eq!(holds(volume(json!({"flexVolume": {"driver": "example/lvm"}}))), (true, false));
    let iscsi = json!({"iscsi": {"iqn": "iqn.x", "lun": 0, "targetPortal": "10.0.0.1"}});
    assert_eq!(holds(volume(iscsi)), (true, false));
    assert_eq!(holds(volume(json!({"ephemeral": {}}))), (true, false));
    let claims = json!({"containers": [], "resourceClaims": [{"name": "gpu"}]});
    assert_eq!(holds(claims), (false, true));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_stopped_stays_so_until_another_container_of_it_runs() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    core.known.stopped(&uid("web"));
    let runs = async |more| {
        world.apply(pod("web", more));
        settled().await;
        core.known.status(&uid("web")).unwrap().any_running()
    };
    assert!(!runs(json!({"metadata": {"labels": {"late": "yes"}}})).await);
    let mut another = running();
    another["containerID"] = json!("containerd://2");
    assert!(runs(json!({"status": {"containerStatuses": [another]}})).await);
}
