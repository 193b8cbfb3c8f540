//! Requests to a pod's eviction responders, and what happens if they do not stop the pod.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use winddown_shared::Grace;

use super::pods::*;
use super::world::*;
use crate::eviction_requests::Responding;
use winddown_api_client::refusal::Refusal;

/// A pod that a live migration would stop.
fn migrating() -> k8s_openapi::api::core::v1::Pod {
    let responders = json!([
        {"name": "example.com/last", "priority": 1}, {"name": "kubevirt.io/move", "priority": 9},
    ]);
    pod("vm", json!({"spec": {"evictionResponders": responders}}))
}

#[tokio::test(start_paused = true)]
async fn responders_that_end_the_pod_in_time_save_its_eviction() {
    for down in [false, true] {
        let (world, core) = World::new([migrating()]).await;
        world.serve_requests(Responding::Pending);
        if down {
            world.set_budgets(json!([]));
            world.set_going_down();
        }
        let stopping = tokio::spawn(async move { stop(&core, "vm", 60).await });
        sleep(Duration::from_millis(4500)).await;
        world.delete_by_others("vm", secs(30));
        let (took, stopped) = stopping.await.unwrap();
        assert_eq!((took, stopped.unwrap().remark), (6, None), "{down}");
        let stop = down.then_some("4: stop uid-vm 56");
        let wanted: Vec<&str> = ["0: request vm"].into_iter().chain(stop).collect();
        assert_eq!(world.log(), wanted, "{down}");
    }
}

#[tokio::test(start_paused = true)]
async fn responders_share_the_time_of_the_budgets_and_the_report_says_that_they_were_late() {
    let (world, core) = World::new([migrating()]).await;
    world.serve_requests(Responding::Pending);
    world.refuse(1000, Refusal::Busy { after: None });
    let (took, stopped) = stop(&core, "vm", 60).await;
    assert_eq!(took, 12);
    assert_eq!(
        stopped.unwrap().remark.as_deref(),
        Some(
            "its eviction responders (kubevirt.io/move, example.com/last) did not terminate it in 10 s: \
             the time for it is over; the disruption budget vm refused for 0 s, and it was deleted \
             without consent"
        )
    );
    assert_eq!(world.log(), ["0: request vm", "10: evict vm 50", "10: delete vm 50"]);
}

#[tokio::test(start_paused = true)]
async fn responders_that_give_up_or_may_not_be_asked_leave_the_rest_of_the_time_to_the_budgets() {
    let failed = Responding::Failed("it is in a group".to_owned());
    for (refuse, became, wanted, why) in [
        (None, failed, ["0: request vm", "1: evict vm 59"], "1 s: it is in a group"),
        (
            Some(Refusal::NotAllowed),
            Responding::Pending,
            ["0: request vm", "0: evict vm 60"],
            "0 s: the API server could not terminate the pod",
        ),
    ] {
        let (world, core) = World::new([migrating()]).await;
        world.serve_requests(became);
        refuse.into_iter().for_each(|refusal| world.state().refuses_request = Some(refusal));
        let remark = stop(&core, "vm", 60).await.1.unwrap().remark.unwrap();
        assert!(remark.ends_with(why), "{remark}");
        assert_eq!(world.log(), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_changes_for_pods_without_responders_and_where_requests_are_not_served() {
    for (responders, served, discoveries) in [(false, true, 0), (true, false, 1)] {
        let all = |name: &str| match responders {
            true => {
                let one = json!([{"name": "example.com/x", "priority": 1}]);
                pod(name, json!({"spec": {"evictionResponders": one}}))
            }
            false => pod(name, json!({})),
        };
        let (world, core) = World::new(["a", "b"].map(all)).await;
        if served {
            world.serve_requests(Responding::Pending);
        }
        let (a, b) = tokio::join!(stop(&core, "a", 30), stop(&core, "b", 30));
        assert_eq!((a.0, a.1.unwrap().remark, b.1.unwrap().remark), (2, None, None));
        assert_eq!(world.log(), ["0: evict a 30", "0: evict b 30"]);
        assert_eq!(world.state().discoveries, discoveries, "asked once for all pods");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_leaves_responders_a_third_of_what_is_left() {
    let (world, core) = World::new([migrating()]).await;
    world.serve_requests(Responding::Pending);
    let begun = Instant::now();
    let (sender, grace) = Grace::until(begun + secs(60));
    let uid = uid("vm");
    let stopping = tokio::spawn(async move { core.stop(&uid, None, grace).await });
    sleep(secs(2)).await;
    sender.shorten_to(begun + secs(8));
    stopping.await.unwrap().unwrap();
    assert_eq!(world.log(), ["0: request vm", "4: evict vm 4"]);
}
