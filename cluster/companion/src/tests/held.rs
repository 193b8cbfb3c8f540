//! What a pod holds after its containers have stopped: its network and volumes.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::pods::*;
use super::world::*;

#[tokio::test(start_paused = true)]
async fn a_network_is_given_back_by_the_kubelet_and_without_one_through_the_container_runtime() {
    for held in [false, true] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.state().takes_down_after = secs(5);
        world.set_going_down();
        stop(&core, "web", 30).await.1.unwrap();
        assert_eq!(core.held(&uid("web")).await.unwrap(), ["its network"]);
        if held {
            core.kubelet.hold().await;
        }
        core.give_network_back(&uid("web")).await.unwrap();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(core.held(&uid("web")).await.unwrap().is_empty(), held);
        sleep(secs(6)).await;
        assert_eq!(core.held(&uid("web")).await.unwrap(), Vec::<String>::new());
    }
    let on_host = pod("web", json!({"spec": {"hostNetwork": true}}));
    let (_, core) = World::new([on_host]).await;
    assert_eq!(core.held(&uid("web")).await.unwrap(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_network_that_the_container_runtime_does_not_show_is_unknown_and_given_back_once_it_does()
{
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().takes_down_after = secs(5);
    world.set_going_down();
    stop(&core, "web", 30).await.1.unwrap();
    core.kubelet.hold().await;
    sleep(Duration::from_millis(1)).await;
    world.state().runtime_away = true;
    assert_eq!(core.held(&uid("web")).await.unwrap_err().to_string(), "no socket");
    assert!(core.give_network_back(&uid("web")).await.is_err());
    world.state().runtime_away = false;
    sleep(secs(1)).await;
    core.give_network_back(&uid("web")).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(core.held(&uid("web")).await.unwrap(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_no_pod_had_when_a_pods_end_began_is_waited_for_ten_seconds_by_all_together()
{
    let claimed =
        json!({"spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}});
    let pods = ["first", "second", "plain"]
        .map(|name| pod(name, if name == "plain" { json!({}) } else { claimed.clone() }));
    let (world, core) = World::new(pods).await;
    world.state().unused_volumes = vec!["/stale".to_owned()];
    world.set_going_down();
    let held = async |name| core.held(&uid(name)).await.unwrap();
    stop(&core, "plain", 30).await.1.unwrap();
    assert_eq!(held("plain").await, [""; 0], "it has no volumes");
    stop(&core, "first", 30).await.1.unwrap();
    assert_eq!(
        held("first").await,
        ["/stale"],
        "an agent that was started again may have missed its use"
    );
    sleep(secs(8)).await;
    assert_eq!(held("first").await, [""; 0]);
    stop(&core, "second", 30).await.1.unwrap();
    assert_eq!(held("second").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_look_at_volumes_on_a_disk_that_hangs_delays_no_pods_end() {
    let claim = json!({"spec": {"volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]}});
    let (world, core) = World::new([pod("web", claim)]).await;
    world.state().unused_take = secs(600);
    world.set_going_down();
    assert_eq!(stop(&core, "web", 30).await.0, 2);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_became_unused_while_a_pod_ended_may_be_its_and_is_waited_for() {
    let claimed =
        json!({"spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}});
    let (world, core) = World::new([pod("web", claimed)]).await;
    world.set_going_down();
    stop(&core, "web", 30).await.1.unwrap();
    world.state().unused_volumes = vec!["/own".to_owned()];
    for _ in 0..3 {
        assert_eq!(core.held(&uid("web")).await.unwrap(), ["/own"]);
        sleep(secs(30)).await;
    }
}
