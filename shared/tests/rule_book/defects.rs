//! Defects of the kubelet's pod workers that these workers do not have. Those covered by a scenario
//! in `golden` or elsewhere are in the table of `README.md`.

use std::collections::HashSet;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tokio::time::Instant;
use winddown_shared::testing::{FakeRuntime, Script, SyncStep};
use winddown_shared::{
    Event, KillError, KillReason, KillRequest, Lifecycle, Pod, PodKiller, RuntimePod,
    RuntimeSyncer, StatusOverride, UpdateKind,
};

use super::node::{Node, job, node, node_with, with_label};
use super::{
    bench, in_runtime, pod, pod_with, request, secs, settle, static_pod, stop, sync, uid, uids,
};

#[tokio::test(start_paused = true)]
async fn no_caller_of_a_kill_is_forgotten_whatever_becomes_of_the_record() {
    // Finished early, cleaned up unstarted, forgotten unstarted, stray stopped, freed.
    let b = bench();
    let (first, queued) = (static_pod("first", "web"), static_pod("queued", "web"));
    b.create(&first);
    b.create(&queued);
    settle().await;
    b.script(&pod("stray"), Script { stop_takes: secs(5), ..Script::default() });
    b.workers.kill_runtime_pod(&in_runtime(&pod("stray")));
    let begun = Instant::now();
    let kills = ["queued", "stray", "new"].map(|u| {
        let target = if u == "queued" { queued.clone() } else { pod(u) };
        b.workers.kill_pod(target, request())
    });
    let ended = futures_util::future::join_all(kills).await;
    assert!(ended.iter().all(Result::is_ok));
    assert!(begun.elapsed() < secs(3));
    b.workers.sync_known_pods(&HashSet::new());
    b.workers.kill_pod(first, request()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_the_node_ended_stays_failed_with_its_reason_although_it_exited_with_0() {
    let node = node(FakeRuntime::default());
    let web = pod("web");
    node.want(&[&web]).await;
    node.runtime.stops_with(web.uid(), 0);
    let status = StatusOverride::failed("Evicted", "why", Some("why".into()));
    let kill = KillRequest::new(KillReason::Eviction).with_status(Some(status));
    node.workers.kill_pod(web.clone(), kill).await.unwrap();
    tokio::time::sleep(secs(600)).await;
    let said = node.statuses.get(web.uid()).unwrap();
    assert_eq!(said.phase.as_deref(), Some("Failed"));
    assert_eq!(said.reason.as_deref(), Some("Evicted"));
    assert_eq!(said.message.as_deref(), Some("why"));
    let conditions = said.conditions.as_ref().unwrap();
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
    assert!(conditions.iter().all(|c| c.type_ != "Ready" || c.status == "False"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_recreated_under_the_uid_of_one_that_succeeded_starts_again() {
    let node = node(FakeRuntime::default());
    let first = job("job");
    node.want(&[&first]).await;
    node.runtime.exit(first.uid(), 0);
    settle().await;
    assert_eq!(node.phase(&first).as_deref(), Some("Succeeded"));
    node.want(&[]).await;
    tokio::time::sleep(secs(1)).await;
    let second = job("job");
    node.want(&[&second]).await;
    tokio::time::sleep(secs(5)).await;
    assert_eq!(node.phase(&second).as_deref(), Some("Running"));
    assert_eq!(node.starts(&second), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_recreated_while_its_former_self_ends_starts_as_soon_as_that_is_over() {
    let node = node(FakeRuntime::default());
    let first = job("job");
    node.runtime.stop_takes(first.uid(), secs(7));
    node.want(&[&first]).await;
    node.want(&[]).await;
    let second = job("job");
    node.want(&[&second]).await;
    tokio::time::sleep(secs(6)).await;
    assert_eq!(node.restarted(), 0);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(node.restarted(), 1);
    assert_ne!(node.phase(&second).as_deref(), Some("Failed"), "the former self's status is gone");
}

/// A node on which a pod has come back before its former self has ended, which takes 5 s.
async fn a_pod_that_came_back() -> (Node, Pod) {
    let node = node(FakeRuntime::default());
    let web = pod("web");
    node.runtime.stop_takes(web.uid(), secs(5));
    node.want(&[&web]).await;
    node.want(&[]).await;
    node.want(&[&pod("web")]).await;
    (node, web)
}

#[tokio::test(start_paused = true)]
async fn a_restarted_pod_is_admitted_like_a_new_one() {
    let (node, web) = a_pod_that_came_back().await;
    node.refuse(&web);
    tokio::time::sleep(secs(30)).await;
    assert_eq!((node.restarted(), node.active()), (0, 0));
    let said = node.statuses.get(web.uid()).unwrap();
    assert_eq!(said.reason.as_deref(), Some("OutOfcpu"));
    let refusals =
        node.events.events().iter().filter(|e| matches!(e, Event::PodRejected { .. })).count();
    assert_eq!(refusals, 1, "and asked once");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_before_it_starts_again_needs_no_admission() {
    let (node, web) = a_pod_that_came_back().await;
    node.want(&[&super::deleted("web", 30)]).await;
    node.refuse(&web);
    tokio::time::sleep(secs(30)).await;
    assert_eq!(node.lifecycle(&web), Some(Lifecycle::Finished));
    assert_eq!((node.restarted(), node.starts(&web)), (0, 1));
    assert!(!node.events.events().iter().any(|e| matches!(e, Event::PodRejected { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_static_pods_turn_comes_when_the_name_is_free_and_not_at_the_next_look() {
    let b = bench();
    let (one, two) = (static_pod("1", "web"), static_pod("2", "web"));
    b.script(&one, Script { stop_takes: secs(3), ..Script::default() });
    b.create(&one);
    settle().await;
    b.create(&two);
    b.workers.kill_pod(one.clone(), request()).await.unwrap();
    let freed = Instant::now();
    settle().await;
    let started = b.syncer.calls().into_iter().find(|c| c.uid == *two.uid()).unwrap();
    assert_eq!(started.at, freed);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_grace_is_not_lengthened_by_a_kill() {
    let b = bench();
    b.script(&pod("a"), Script { stop_takes: secs(100), ..Script::default() });
    let gone = super::deleted("a", 0);
    let kill = request().with_grace(Some(secs(30)));
    let begun = Instant::now();
    let stopped = b.workers.kill_pod(gone, kill).await.unwrap();
    assert_eq!(begun.elapsed(), secs(1));
    assert!(stopped.forced());
}

#[tokio::test(start_paused = true)]
async fn a_spec_edited_while_its_pod_ends_does_not_stop_the_containers_of_the_old_one() {
    let b = bench();
    b.create(&pod_with("a", "old", |_| {}));
    settle().await;
    b.script(&pod("a"), Script { stop_fails: 2, ..Script::default() });
    b.kill(&pod_with("a", "old", |_| {}));
    b.update(&pod_with("a", "new", |_| {}));
    tokio::time::sleep(secs(10)).await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
    assert!(b.syncer.calls().iter().all(|c| &*c.name == "old"));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_kill_says_what_still_runs_and_is_typed() {
    let b = bench();
    b.script(&pod("a"), Script { stop_fails: 99, ..Script::default() });
    let error = b.workers.kill_pod(pod("a"), request()).await.unwrap_err();
    let KillError::Deadline { still_running, .. } = error else { panic!("{error}") };
    assert_eq!(still_running, ["main"]);
    let workers = b.workers.clone();
    let call = tokio::spawn(async move { workers.kill_pod(pod("a"), request()).await });
    settle().await;
    b.workers.shut_down().await;
    assert!(matches!(call.await.unwrap(), Err(KillError::WorkersGone { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_one_phase_costs_no_second_sync() {
    let b = bench();
    b.create(&pod("a"));
    settle().await;
    b.kill(&pod("a"));
    tokio::time::sleep(secs(600)).await;
    assert_eq!(b.steps(&pod("a")), [sync(UpdateKind::Create), stop(30), SyncStep::Finish]);
}

#[tokio::test(start_paused = true)]
async fn names_that_were_killed_before_they_ran_leave_nothing() {
    let b = bench();
    b.create(&static_pod("first", "web"));
    settle().await;
    for i in 0..1000 {
        let queued = static_pod(&format!("q{i}"), "web");
        b.create(&queued);
        b.kill(&queued);
        b.workers.sync_known_pods(&uids(&[&static_pod("first", "web")]));
    }
    assert_eq!(b.workers.snapshot().len(), 1);
    let last = static_pod("last", "web");
    b.create(&last);
    b.kill(&static_pod("first", "web"));
    settle().await;
    assert_eq!(b.workers.lifecycle(last.uid()), Some(Lifecycle::Syncing));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_step_is_that_pods_failure_and_is_tried_again() {
    let b = bench();
    b.script(&pod("bad"), Script { sync_panics: true, ..Script::default() });
    b.create(&pod("bad"));
    b.create(&pod("good"));
    settle().await;
    b.script(&pod("bad"), Script::default());
    tokio::time::sleep(secs(5)).await;
    assert_eq!(b.steps(&pod("bad")).len(), 2);
    assert_eq!(b.steps(&pod("good")).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_of_one_pod_that_hangs_does_not_delay_another_pods_kill() {
    let b = bench();
    for i in 0..20 {
        let hung = pod(&format!("hung{i}"));
        b.script(&hung, Script { sync_takes: secs(9999), ..Script::default() });
        b.create(&hung);
    }
    settle().await;
    let begun = Instant::now();
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(begun.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_of_pods_that_wait_for_their_name_lets_them_come_back_when_it_is_called_off() {
    let b = bench();
    let (first, queued) = (static_pod("first", "web"), static_pod("queued", "web"));
    b.create(&first);
    b.create(&queued);
    settle().await;
    b.workers.kill_pod(queued.clone(), KillRequest::new(KillReason::Shutdown)).await.unwrap();
    let snapshot = b.workers.snapshot();
    let queued = snapshot.iter().find(|s| s.uid == *queued.uid()).unwrap();
    assert_eq!(
        queued.prior_reason,
        Some(KillReason::Shutdown),
        "whoever reopens the node sees why"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stray_without_a_name_is_ended_all_the_same() {
    let b = bench();
    b.workers.kill_runtime_pod(&RuntimePod::new(uid("odd"), "", "", true));
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("odd")), None);
    assert_eq!(b.syncer.steps(&uid("odd")), [SyncStep::TerminateRuntime]);
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_is_not_failed_for_what_an_update_asks_for() {
    let node = node(FakeRuntime::default());
    node.want(&[&with_label("web", "1")]).await;
    let web = with_label("web", "2");
    node.runtime.refuse(web.uid());
    node.want(&[&web]).await;
    node.want(&[&with_label("web", "3")]).await;
    assert_eq!(node.phase(&web).as_deref(), Some("Running"));
    assert_eq!(node.stops(&web), 0);
    let told = |e: &Event| {
        matches!(e, Event::FieldsIgnored { message, .. }
        if &**message == "spec.volumes: refused as scripted")
    };
    assert_eq!(node.events.events().iter().filter(|e| told(e)).count(), 1, "each change, once");
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_ended_when_its_deadline_is_over_and_says_so_whatever_its_exit_codes_are() {
    let limited = |seconds| {
        pod_with("web", "web", |p| p.spec.as_mut().unwrap().active_deadline_seconds = Some(seconds))
    };
    let first = node(FakeRuntime::default());
    let web = limited(60);
    first.want(&[&web]).await;
    tokio::time::sleep(secs(50)).await;
    assert_eq!(first.phase(&web).as_deref(), Some("Running"));
    assert_eq!(first.stops(&web), 0);
    // An update may shorten it.
    let shorter = limited(55);
    first.want(&[&shorter]).await;
    tokio::time::sleep(secs(4)).await;
    assert_eq!(first.stops(&web), 0);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(first.stops(&web), 1);
    let status = first.statuses.get(web.uid()).unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(status.message.as_deref(), Some(message));
    let conditions = status.conditions.iter().flatten();
    assert_eq!(conditions.filter(|c| c.type_ == "DisruptionTarget").count(), 0);
    tokio::time::sleep(secs(600)).await;
    assert_eq!(first.starts(&web), 1);
    let told = |e: &Event| matches!(e, Event::DeadlineExceeded { .. });
    assert_eq!(first.events.events().iter().filter(|e| told(e)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn resources_that_a_running_container_does_not_get_are_told_once() {
    let node = node(FakeRuntime::default());
    let expected =
        "spec.containers[0].resources: running containers keep theirs until they restart";
    assert_eq!(told_of_a_resize(&node).await, [expected]);
    assert_eq!(node.stops(&with_cpu("200m")), 0);
}

#[tokio::test(start_paused = true)]
async fn beside_a_kubelet_a_resize_is_the_kubelets() {
    let node = node_with(FakeRuntime::default(), RuntimeSyncer::beside_a_kubelet);
    assert_eq!(told_of_a_resize(&node).await, Vec::<String>::new());
}

fn with_cpu(cpu: &str) -> Pod {
    pod_with("web", "web", |p| {
        let cpu = [("cpu".to_owned(), Quantity(cpu.to_owned()))].into();
        let resources = api::ResourceRequirements { requests: Some(cpu), ..Default::default() };
        p.spec.as_mut().unwrap().containers[0].resources = Some(resources);
    })
}

/// What is reported about ignored fields of a pod when its running container is to be resized.
async fn told_of_a_resize(node: &Node) -> Vec<String> {
    for cpu in ["100m", "200m", "200m"] {
        node.want(&[&with_cpu(cpu)]).await;
        node.workers.resync_all();
        settle().await;
    }
    let told = |event: &Event| match event {
        Event::FieldsIgnored { message, .. } => Some(message.to_string()),
        _ => None,
    };
    node.events.events().iter().filter_map(told).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_started_says_at_once_that_it_is_being_made() {
    let runtime = FakeRuntime::default();
    runtime.fail_starts();
    let node = node(runtime);
    let pod = pod_with("a", "a", |p| {
        let container = api::Container { name: "main".into(), ..api::Container::default() };
        p.spec = Some(api::PodSpec { containers: vec![container], ..api::PodSpec::default() });
    });
    node.want(&[&pod]).await;
    let status = node.statuses.get(pod.uid()).expect("a status");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert!(status.start_time.is_some());
    let conditions = status.conditions.iter().flatten();
    let holds: Vec<_> =
        conditions.filter(|c| c.status == "True").map(|c| c.type_.as_str()).collect();
    assert_eq!(holds, ["Initialized", "PodScheduled"]);
    let container = &status.container_statuses.as_ref().expect("containers")[0];
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    assert_eq!(waiting.and_then(|w| w.reason.as_deref()), Some("ContainerCreating"));
}

/// As in the kubelet, which sets the status at the beginning of every sync.
#[tokio::test(start_paused = true)]
async fn a_container_that_exited_is_not_ready_although_its_next_start_fails() {
    let node = node(FakeRuntime::default());
    let web = pod("web");
    node.want(&[&web]).await;
    let shown = || {
        let status = node.statuses.get(web.uid()).unwrap();
        let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready").unwrap();
        let container = &status.container_statuses.as_ref().unwrap()[0];
        (ready.status == "True", container.state.as_ref().unwrap().running.is_some())
    };
    assert_eq!(shown(), (true, true));
    node.runtime.fail_starts();
    node.runtime.exit(web.uid(), 1);
    settle().await;
    assert_eq!(shown(), (false, false));
}
