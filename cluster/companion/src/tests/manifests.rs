//! Pods of manifests, which only the kubelet controls, and which are stopped after the kubelet.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};
use winddown_shared::KillReason;

use super::pods::*;
use super::world::*;

#[tokio::test(start_paused = true)]
async fn pods_of_manifests_end_after_those_that_need_the_kubelet() {
    let mirror = json!({"metadata": {"annotations": {
        "kubernetes.io/config.mirror": "hash", "kubernetes.io/config.hash": "hash",
        "kubernetes.io/config.source": "file",
    }}});
    let (world, core) = World::new([pod("etcd", mirror), pod("web", json!({}))]).await;
    world.runs_inside("hash");
    world.state().takes = secs(4);
    world.set_going_down();
    let both = tokio::join!(stop(&core, "etcd", 30), stop(&core, "web", 30));
    assert_eq!((both.0.0, both.1.0), (8, 4));
    let wanted =
        ["0: evict web 30", "0: stop uid-web 30", "4: stop the kubelet", "4: stop hash 26"];
    assert_eq!(world.log(), wanted);
}

/// One that has not reported a pod after two seconds reports none of the others in time; its stop takes a second.
#[tokio::test(start_paused = true)]
async fn a_kubelet_that_is_late_with_its_reports_is_stopped_while_the_last_pods_terminate() {
    let hook = json!({"spec": {"containers": [
        {"name": "a", "image": "x", "lifecycle": {"preStop": {"sleep": {"seconds": 8}}}},
    ]}});
    for (reports_after, last, stopped_at) in
        [(1, json!({}), 12), (60, json!({}), 8), (60, hook, 12)]
    {
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
        let pods = [pod("etcd", mirror), pod("web", json!({})), pod("last", last)];
        let (world, core) = World::new(pods).await;
        world.state().takes = secs(6);
        world.state().tells_after = secs(reports_after);
        world.set_going_down();
        let last = async {
            sleep(secs(6)).await;
            stop(&core, "last", 30).await
        };
        let (etcd, ..) = tokio::join!(stop(&core, "etcd", 60), stop(&core, "web", 30), last);
        etcd.1.unwrap();
        let stopped = format!("{stopped_at}: stop the kubelet");
        assert!(world.log().contains(&stopped), "{reports_after} {:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_is_not_stopped_before_it_has_unmounted_what_its_pods_had() {
    // A volume that is never unmounted delays it by half of the grace period.
    for (unmounts_after, stopped_at) in [(3, 5), (1000, 15)] {
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
        let (world, core) = World::new([pod("etcd", mirror), pod("web", json!({}))]).await;
        world.state().unmounts_after = secs(unmounts_after);
        world.set_going_down();
        let _ = tokio::join!(stop(&core, "etcd", 30), stop(&core, "web", 30));
        let stopped = format!("{stopped_at}: stop the kubelet");
        assert!(world.log().contains(&stopped), "{:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_manifests_end_after_the_others_without_a_kubelet_too_and_wait_for_no_unmount() {
    type Way = fn(&World);
    let ways: [(&str, bool, Way); 4] = [
        ("the API server was never there", true, |_| ()),
        ("the API server is unavailable", false, |world| world.set_api_away(true)),
        ("the API server is silent", false, |world| world.state().silent = true),
        ("the kubelet is killed", false, World::kill_kubelet),
    ];
    for (way, never_there, begin) in ways {
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
        let pods = [pod("etcd", mirror), pod("web", json!({}))];
        let (world, core) = match never_there {
            true => World::without_api(pods),
            false => World::new(pods).await,
        };
        sleep(secs(2)).await;
        // No kubelet unmounts its volume.
        world.end_in_kernel("web");
        world.state().unmounts_after = secs(1000);
        begin(&world);
        world.set_going_down();
        let (etcd, web) = tokio::join!(stop(&core, "etcd", 30), stop(&core, "web", 30));
        etcd.1.unwrap();
        assert_eq!(etcd.0, web.0 + 2, "{way}: {:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn looks_at_what_the_kubelet_holds_of_a_hundred_pods_do_not_add_up() {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
    let names: Vec<String> = (0..100).map(|n| format!("web-{n}")).collect();
    let pods = names.iter().map(|name| pod(name, json!({})));
    let (world, core) = World::new(pods.chain([pod("etcd", mirror)])).await;
    world.set_going_down();
    join_all(names.iter().map(|name| stop(&core, name, 30))).await;
    world.state().held_takes = secs(1);
    for name in &names[..50] {
        assert_eq!(core.held(&uid(name)).await.unwrap(), [""; 0]);
    }
    // Pods that were seen to be free are not checked again; the others are checked all at once.
    assert_eq!(stop(&core, "etcd", 30).await.0, 3);
    let mut another = running();
    another["containerID"] = json!("containerd://another");
    world.apply(pod("web-0", json!({"status": {"containerStatuses": [another]}})));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(core.known.not_free().len(), 1, "what runs again is not free");
}

#[tokio::test(start_paused = true)]
async fn the_pod_of_a_manifest_is_stopped_under_its_own_uid_and_only_when_the_node_goes_down() {
    let mirror = json!({"metadata": {"annotations": {
        "kubernetes.io/config.mirror": "hash", "kubernetes.io/config.hash": "hash",
        "kubernetes.io/config.source": "file",
    }}});
    let (world, core) = World::new([pod("etcd", mirror)]).await;
    world.runs_inside("hash");
    let (took, stopped) = stop(&core, "etcd", 30).await;
    assert_eq!(took, 15, "a shutdown may resume");
    let error = stopped.unwrap_err().to_string();
    let wanted = "pod default/etcd is left as it is: the kubelet runs it from a manifest file, \
                  and only removing that file terminates it while the node stays up";
    assert_eq!(error, wanted);

    world.set_going_down();
    let (took, stopped) = stop(&core, "etcd", 30).await;
    stopped.unwrap();
    assert_eq!(
        (took, world.log()),
        (2, vec!["15: stop the kubelet".to_owned(), "15: stop hash 30".to_owned()])
    );

    world.state().runtime_away = true;
    world.apply(pod(
        "other",
        json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "h"}}}),
    ));
    sleep(Duration::from_millis(1)).await;
    let error = stop(&core, "other", 30).await.1.unwrap_err().to_string();
    assert!(
        error.ends_with("from a manifest file, and the container runtime: no socket"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_says_it_is_a_mirror_of_another_ends_nothing_of_it() {
    let mirror = |hash: &str| {
        json!({"metadata": {"annotations": {
            "kubernetes.io/config.mirror": hash, "kubernetes.io/config.hash": hash,
            "kubernetes.io/config.source": "file",
        }}})
    };
    let (world, core) = World::new([pod("etcd", mirror("static"))]).await;
    world.runs_inside("static");
    core.prove().await.unwrap();
    for name in ["forged", "vague", "stated"] {
        world.runs_inside(uid(name).as_str());
    }
    // It names the sandbox of another pod; it even knows the UID of the node's object.
    world.apply(pod("forged", mirror("static")));
    // It names none.
    world.apply(pod("vague", mirror("nothing")));
    // It says only what a mirror pod does not need.
    let source = json!({"annotations": {"kubernetes.io/config.source": "file"}});
    world.apply(pod("stated", json!({"metadata": source})));
    sleep(secs(1)).await;
    let planned = |name: &str| {
        let desired = core.known.desired().borrow().clone().unwrap();
        desired.pods.iter().find(|pod| **pod.name() == *name).unwrap().clone()
    };
    assert_eq!(planned("etcd").priority(), Some(2_000_001_000));
    for name in ["forged", "vague", "stated"] {
        let pod = planned(name);
        assert_eq!(pod.priority(), None, "{name}");
        assert!(!pod.is_mirror() && !pod.is_static() && !pod.is_critical(), "{name}");
        assert_eq!(core.refuses_stop(&uid(name), KillReason::Drain), None, "{name}");
    }
    world.set_going_down();
    for name in ["forged", "vague", "stated"] {
        assert_eq!(stop(&core, name, 30).await.0, 2, "{name}");
    }
    let wanted = ["1: evict forged 30", "3: evict vague 30", "5: evict stated 30"];
    let evictions = || world.log().into_iter().filter(|line| line.contains("evict"));
    assert_eq!(evictions().collect::<Vec<_>>(), wanted);
    assert!(world.state().running.contains(&winddown_shared::PodUid::new("static")));
    stop(&core, "etcd", 30).await.1.unwrap();
    assert_eq!(world.log()[6..], ["7: stop the kubelet", "7: stop static 30"]);
}

#[tokio::test(start_paused = true)]
async fn from_the_first_list_on_the_pods_of_manifests_come_last_if_the_runtime_knows_them() {
    for (away, priority) in [(false, Some(2_000_001_000)), (true, None)] {
        let mirror = json!({"metadata": {"annotations": {
            "kubernetes.io/config.mirror": "static", "kubernetes.io/config.hash": "static",
        }}});
        let (world, core) = World::starting([pod("etcd", mirror), pod("web", json!({}))]);
        world.state().runtime_away = away;
        let begun = Instant::now();
        let mut desired = core.known.desired();
        let first = desired.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO, "a runtime that is away holds up nothing");
        let etcd = first.pods.iter().find(|pod| **pod.name() == *"etcd").unwrap();
        assert_eq!(etcd.priority(), priority);
        assert!(first.complete && first.pods.len() == 2);
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_runtime_is_silent_a_mirror_pod_is_neither_evicted_nor_counted_as_ended() {
    let mirror = json!({"metadata": {"annotations": {
        "kubernetes.io/config.mirror": "static", "kubernetes.io/config.hash": "static",
    }}});
    let (world, core) = World::new([]).await;
    world.state().runtime_away = true;
    world.runs_inside("static");
    world.apply(pod("etcd", mirror));
    sleep(secs(1)).await;
    assert!(core.refuses_stop(&uid("etcd"), KillReason::Drain).is_some());
    world.set_going_down();
    let error = stop(&core, "etcd", 4).await.1.unwrap_err().to_string();
    assert!(error.ends_with("the container runtime: no socket"), "{error}");
    world.state().runtime_away = false;
    stop(&core, "etcd", 30).await.1.unwrap();
    assert!(world.log().iter().any(|line| line.ends_with(": stop static 30")), "{:?}", world.log());
    assert!(world.log().iter().all(|line| !line.contains("evict")), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_refused_the_pod_of_a_manifest_and_a_shutdown_is_not() {
    use KillReason::{Drain, Operator, Removed, Shutdown};
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
    let etcd = pod("etcd", mirror);
    let (world, core) = World::new([etcd.clone(), pod("web", json!({}))]).await;
    let why = "the kubelet runs it from a manifest file, and only removing that file terminates \
               it while the node stays up";
    for (reason, going_down, refused) in [
        (Drain, false, true),
        (Operator, false, true),
        (Removed, false, true),
        (Shutdown, false, false),
        (Drain, true, false),
        (Operator, true, false),
        (Removed, true, false),
        (Shutdown, true, false),
    ] {
        if going_down {
            world.set_going_down();
        } else {
            world.set_staying_up();
        }
        let said = core.refuses_stop(&uid("etcd"), reason);
        assert_eq!(said.as_deref(), refused.then_some(why), "{reason:?}, {going_down}");
        let is_refused = core.refuses_stop(&uid("web"), reason).is_some();
        assert_eq!(is_refused, reason == Removed, "the API server wants it");
    }
    world.set_staying_up();

    // What has ended or is gone is no longer the kubelet's to keep.
    let is_refused = async || {
        sleep(Duration::from_millis(1)).await;
        core.refuses_stop(&uid("etcd"), Drain).is_some()
    };
    let mut ended = etcd.clone();
    let status = ended.status.as_mut().unwrap();
    (status.phase, status.container_statuses) = (Some("Succeeded".to_owned()), None);
    world.apply(ended);
    assert!(!is_refused().await);
    world.apply(etcd);
    assert!(is_refused().await);
    world.remove("etcd");
    assert!(!is_refused().await);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_pod_that_the_kubelet_has_replaced_is_over_and_nothing_is_stopped_for_it() {
    let mirror = |uid: &str| {
        let of = json!({
            "kubernetes.io/config.mirror": "uid-etcd", "kubernetes.io/config.hash": "uid-etcd",
        });
        pod("etcd", json!({"metadata": {"uid": uid, "annotations": of}}))
    };
    let settled = async || sleep(Duration::from_millis(1)).await;
    let (world, core) = World::new([mirror("uid-etcd")]).await;
    world.remove("etcd");
    settled().await;
    let error = stop(&core, "etcd", 30).await.1.unwrap_err().to_string();
    assert!(error.ends_with("while the node stays up"), "only its mirror pod is gone: {error}");
    world.apply(mirror("another"));
    settled().await;
    assert!(stop(&core, "etcd", 30).await.1.unwrap().containers.is_empty());
    assert_eq!(core.held(&uid("etcd")).await.unwrap(), [""; 0], "the other one has its network");
    assert!(world.has_running("etcd"));
    assert_eq!(world.log(), [""; 0]);

    // Its manifest was changed or removed.
    let (world, core) = World::new([mirror("uid-etcd")]).await;
    world.remove("etcd");
    world.state().running.remove(&uid("etcd"));
    settled().await;
    stop(&core, "etcd", 30).await.1.unwrap();
    assert_eq!(world.log(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_called_off_while_a_manifests_pod_waits_leaves_it_and_the_kubelet_alone() {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
    let (world, core) = World::new([pod("etcd", mirror), pod("web", json!({}))]).await;
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "etcd", 30).await });
    sleep(secs(5)).await;
    world.set_staying_up();
    let error = stopping.await.unwrap().1.unwrap_err().to_string();
    assert!(error.ends_with("while the node stays up"), "{error}");
    assert_eq!(world.log(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_manifests_do_not_wait_for_what_the_kubelet_has_still_to_tell() {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
    let (world, core) = World::new([pod("etcd", mirror), pod("web", json!({}))]).await;
    world.state().tells_after = secs(10);
    world.set_going_down();
    let etcd = {
        let core = core.clone();
        tokio::spawn(async move { stop(&core, "etcd", 60).await })
    };
    stop(&core, "web", 30).await.1.unwrap();
    world.apply(pod("web", json!({"metadata": {"labels": {"late": "yes"}}})));
    assert_eq!(etcd.await.unwrap().0, 4);
}
