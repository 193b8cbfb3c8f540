//! Which pods count as active, which are admitted, and what is left behind.

use winddown_shared::testing::FakeRuntime;
use winddown_shared::{
    KillReason, KillRequest, Lifecycle, Pod, PodKiller, Runtime, StatusOverride,
};

use super::node::{job, node};
use super::{deleted, in_phase, pod, request, secs, settle};

#[tokio::test(start_paused = true)]
async fn pods_that_still_hold_a_place_are_active_and_the_others_are_not() {
    let node = node(FakeRuntime::default());
    let leaving = pod("leaving");
    let (running, ending, done, refused, ended) =
        (pod("running"), pod("ending"), job("done"), pod("refused"), pod("ended"));
    node.refuse(&refused);
    node.runtime.stop_takes(leaving.uid(), secs(20));
    node.runtime.stop_takes(ending.uid(), secs(20));
    let all = [&leaving, &running, &ending, &done, &refused, &ended];
    node.want(&all).await;
    let (failed, succeeded) = (in_phase("failed", "Failed"), in_phase("done-before", "Succeeded"));
    let going = deleted("leaving", 30);
    let now = [&going, &running, &ending, &done, &refused, &ended, &failed, &succeeded];
    node.want(&now).await;
    node.runtime.exit(done.uid(), 0);
    node.workers.kill_pod(ended.clone(), request()).await.unwrap();
    // Failed according to its source, while its containers still stop.
    node.workers.request_kill(in_phase("ending", "Failed"), &request());
    settle().await;
    let mut active: Vec<_> =
        node.workers.running().pods.iter().map(|p| p.uid().to_string()).collect();
    active.sort();
    assert_eq!(active, ["ending", "leaving", "running"]);
}

#[tokio::test(start_paused = true)]
async fn five_hundred_pods_that_cannot_run_here_all_fail_and_leave_nothing_behind() {
    let node = node(FakeRuntime::default());
    let pods: Vec<Pod> = (0..500).map(|i| pod(&format!("p{i}"))).collect();
    for pod in &pods {
        node.runtime.refuse(pod.uid());
    }
    node.want(&pods.iter().collect::<Vec<_>>()).await;
    tokio::time::sleep(secs(5)).await;
    for pod in &pods {
        assert_eq!(node.phase(pod).as_deref(), Some("Failed"));
        assert_eq!(node.lifecycle(pod), Some(Lifecycle::Finished));
    }
    assert_eq!(node.active(), 0);
    node.want(&[]).await;
    tokio::time::sleep(secs(5)).await;
    assert!(node.statuses.all().is_empty());
    assert!(node.workers.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_ended_before_the_sources_have_been_read() {
    let runtime = FakeRuntime::default();
    let stray = pod("stray");
    runtime.sync_pod(&stray).await.unwrap();
    let node = node(runtime);
    tokio::time::sleep(secs(3600)).await;
    assert_eq!(node.stops(&stray), 0);
    assert_eq!(node.runtime.lists(), 1, "and nothing is done in the meantime");
    node.want(&[]).await;
    tokio::time::sleep(secs(5)).await;
    assert_eq!(node.stops(&stray), 1);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_pod_goes_when_it_is_not_desired_any_more() {
    let node = node(FakeRuntime::default());
    let (web, refused) = (pod("web"), pod("refused"));
    node.refuse(&refused);
    node.want(&[&web, &refused]).await;
    assert_eq!(node.statuses.all().len(), 2);
    node.want(&[]).await;
    tokio::time::sleep(secs(5)).await;
    assert!(node.statuses.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_remains_of_a_pod_go_only_when_it_is_stopped_and_not_desired() {
    let node = node(FakeRuntime::default());
    let (kept, gone) = (job("kept"), pod("gone"));
    node.runtime.stop_takes(gone.uid(), secs(10));
    node.want(&[&kept, &gone]).await;
    node.runtime.exit(kept.uid(), 0);
    node.want(&[&kept]).await;
    tokio::time::sleep(secs(9)).await;
    assert!(node.runtime.runs(gone.uid()) && !node.forgotten(&gone));
    tokio::time::sleep(secs(5)).await;
    assert!(node.forgotten(&gone));
    assert_eq!(node.lifecycle(&kept), Some(Lifecycle::Finished));
    tokio::time::sleep(secs(900)).await;
    assert!(!node.forgotten(&kept), "terminated, but desired");
}

#[tokio::test(start_paused = true)]
async fn remains_that_cannot_be_removed_are_tried_again_until_they_are_gone() {
    let node = node(FakeRuntime::default());
    let gone = pod("gone");
    node.runtime.forget_fails(5);
    node.want(&[&gone]).await;
    node.want(&[]).await;
    tokio::time::sleep(secs(20)).await;
    assert!(!node.forgotten(&gone));
    tokio::time::sleep(secs(200)).await;
    assert!(node.forgotten(&gone));
}

#[tokio::test(start_paused = true)]
async fn a_changed_pod_reaches_its_worker_in_whatever_phase_it_is() {
    let node = node(FakeRuntime::default());
    node.want(&[&pod("a")]).await;
    assert!(!node.workers.is_termination_requested(pod("a").uid()));
    node.want(&[&in_phase("a", "Failed")]).await;
    assert!(node.workers.is_termination_requested(pod("a").uid()));
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_failed_and_an_admitted_one_runs() {
    let node = node(FakeRuntime::default());
    let (fits, refused) = (pod("fits"), pod("refused"));
    node.refuse(&refused);
    node.want(&[&fits, &refused]).await;
    assert_eq!(node.phase(&fits).as_deref(), Some("Running"));
    let status = node.statuses.get(refused.uid()).unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(node.lifecycle(&refused), None, "no worker knows it");
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_kill_lands_in_the_pods_status() {
    let node = node(FakeRuntime::default());
    let web = pod("web");
    node.want(&[&web]).await;
    let status = StatusOverride::failed("Evicted", "because", None);
    let kill = KillRequest::new(KillReason::Eviction).with_status(Some(status));
    node.workers.kill_pod(web.clone(), kill).await.unwrap();
    let said = node.statuses.get(web.uid()).unwrap();
    assert_eq!(said.phase.as_deref(), Some("Failed"));
    assert_eq!(said.reason.as_deref(), Some("Evicted"));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_hangs_while_it_is_listed_holds_up_new_pods_for_ten_seconds_at_most() {
    let runtime = FakeRuntime::default();
    let node = node(runtime);
    node.want(&[&pod("a")]).await;
    node.runtime.hang_lists(true);
    node.runtime.announce(pod("unknown").uid());
    tokio::time::sleep(secs(1)).await;
    node.want(&[&pod("a"), &pod("b")]).await;
    tokio::time::sleep(secs(10)).await;
    assert_eq!(node.starts(&pod("b")), 1);
    node.want(&[&pod("b")]).await;
    tokio::time::sleep(secs(30)).await;
    assert!(node.forgotten(&pod("a")));
}
