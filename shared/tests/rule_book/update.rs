//! Updates: which are coalesced, which are dropped, and which begin a termination.

use winddown_shared::testing::{Script, SyncStep};
use winddown_shared::{Lifecycle, RuntimeView, UpdateKind};

use super::{
    Bench, bench, deleted, evict, in_phase, in_runtime, pod, pod_with, secs, settle, static_pod,
    stop, sync, uid,
};

async fn finished(b: &Bench, name: &str) -> bool {
    tokio::time::sleep(secs(120)).await;
    b.workers.lifecycle(&uid(name)) == Some(Lifecycle::Finished)
}

#[tokio::test(start_paused = true)]
async fn every_pod_of_many_ends_up_with_the_last_update_it_was_sent() {
    let b = bench();
    for j in 0..20 {
        for i in 0..=j {
            let name = format!("v{i}");
            b.create(&pod_with(&format!("p{j}"), &name, |_| {}));
            if (i + j) % 3 == 0 {
                settle().await;
            }
        }
    }
    settle().await;
    for j in 0..20 {
        let calls: Vec<_> =
            b.syncer.calls().into_iter().filter(|c| c.uid == uid(&format!("p{j}"))).collect();
        assert!((1..=j + 1).contains(&calls.len()), "{}", calls.len());
        assert_eq!(&*calls[calls.len() - 1].name, format!("v{j}").as_str());
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_waits_until_its_worker_starts_it() {
    let b = bench();
    b.create(&pod("a"));
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Waiting));
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Syncing));
    assert_eq!(b.steps(&pod("a")), [sync(UpdateKind::Create)]);
}

#[tokio::test(start_paused = true)]
async fn a_create_behind_a_queued_kill_asks_for_a_restart_and_the_kill_completes() {
    let b = bench();
    b.create(&pod("a"));
    b.kill(&pod("a"));
    b.create(&pod_with("a", "second", |_| {}));
    assert!(b.workers.has_restart_requests());
    settle().await;
    assert_eq!(b.steps(&pod("a")), [stop(30), SyncStep::Finish]);
    assert!(b.syncer.calls().iter().all(|c| &*c.name == "a"), "the newer spec was not stored");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_ends_the_pod_with_its_grace() {
    // Less than its own grace, and more.
    for seconds in [15, 100] {
        let b = bench();
        b.update(&deleted("a", seconds));
        assert!(finished(&b, "a").await);
        let grace = seconds.unsigned_abs();
        assert_eq!(b.steps(&pod("a")), [stop(grace), SyncStep::Finish]);
        assert!(b.workers.should_content_be_removed(&uid("a")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_of_a_pod_never_seen_ends_it_with_its_own_grace() {
    let b = bench();
    b.workers.request_kill(pod("a"), &evict());
    assert!(finished(&b, "a").await);
    assert_eq!(b.steps(&pod("a")), [stop(30), SyncStep::Finish]);
    assert!(b.workers.should_content_be_removed(&uid("a")), "evicted");
}

#[tokio::test(start_paused = true)]
async fn a_pod_first_seen_when_it_is_over_is_stopped_to_be_sure_if_what_runs_is_unknown() {
    for view in [RuntimeView::NotYetKnown, RuntimeView::Running] {
        let b = bench();
        b.syncer.set_runtime_view(&uid("a"), view);
        b.create(&in_phase("a", "Succeeded"));
        assert_eq!(b.workers.runs(&uid("a")), Some(true));
        assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Terminating));
        assert!(finished(&b, "a").await);
        assert_eq!(b.steps(&pod("a")), [stop(30), SyncStep::Finish], "{view:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_first_seen_when_it_is_over_and_nothing_runs_is_only_freed() {
    let b = bench();
    b.create(&in_phase("a", "Failed"));
    assert!(b.workers.is_known_terminated(&uid("a")), "before any task ran");
    assert_ne!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
    assert!(finished(&b, "a").await);
    assert!(!b.workers.has_restart_requests());
    assert_eq!(b.steps(&pod("a")), [SyncStep::Finish]);
}

#[tokio::test(start_paused = true)]
async fn a_kill_of_a_pod_first_seen_when_it_is_over_returns_and_frees_it() {
    let b = bench();
    b.kill(&in_phase("a", "Failed"));
    assert!(finished(&b, "a").await);
    assert_eq!(b.steps(&pod("a")), [SyncStep::Finish]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_gets_a_final_phase_while_it_is_known_is_stopped() {
    let b = bench();
    b.create(&pod("a"));
    settle().await;
    b.update(&in_phase("a", "Failed"));
    assert!(finished(&b, "a").await);
    assert_eq!(b.steps(&pod("a"))[1..], [stop(30), SyncStep::Finish]);
}

#[tokio::test(start_paused = true)]
async fn a_stray_leaves_no_record_once_it_is_stopped() {
    let b = bench();
    b.workers.kill_runtime_pod(&in_runtime(&pod("stray")));
    assert_eq!(b.workers.lifecycle(&uid("stray")), Some(Lifecycle::Terminating));
    settle().await;
    assert_eq!(b.steps(&pod("stray")), [SyncStep::TerminateRuntime], "once");
    assert_eq!(b.workers.lifecycle(&uid("stray")), None);
    assert!(!b.workers.is_known_terminated(&uid("stray")));
}

#[tokio::test(start_paused = true)]
async fn a_stray_of_a_pod_that_is_being_freed_is_ignored() {
    let b = bench();
    b.script(&pod("a"), Script { finish_fails: 5, ..Script::default() });
    b.kill(&pod("a"));
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Terminated));
    let before = b.steps(&pod("a")).len();
    b.workers.kill_runtime_pod(&in_runtime(&pod("a")));
    settle().await;
    assert_eq!(b.steps(&pod("a")).len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_kill_is_not_forgotten_behind_an_update() {
    let b = bench();
    for i in 0..20 {
        let pod = pod(&format!("p{i}"));
        b.create(&pod);
        if i % 2 == 0 {
            settle().await;
        }
        b.kill(&pod);
        b.update(&pod);
    }
    settle().await;
    for i in 0..20 {
        let steps = b.steps(&pod(&format!("p{i}")));
        let short = [stop(30), SyncStep::Finish];
        let long = [sync(UpdateKind::Create), stop(30), SyncStep::Finish];
        assert!(steps == short || steps == long, "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_ending_only_once_its_sync_says_that_it_is_over() {
    let b = bench();
    b.update(&pod("a"));
    settle().await;
    b.update(&pod("a"));
    settle().await;
    assert!(!b.workers.is_termination_requested(&uid("a")));
    b.script(&pod("a"), Script { terminal: true, ..Script::default() });
    b.update(&pod("a"));
    settle().await;
    assert!(b.workers.is_termination_requested(&uid("a")));
    assert!(b.workers.is_known_terminated(&uid("a")));
}

#[tokio::test(start_paused = true)]
async fn a_sync_has_the_pod_and_the_mirror_of_its_update() {
    let b = bench();
    let (web, mirror) = (static_pod("web", "web"), pod_with("mirror", "web", |_| {}));
    b.workers.update(UpdateKind::Create, web.clone(), Some(mirror.clone()));
    settle().await;
    b.update(&web);
    settle().await;
    b.workers.resync(web.uid());
    settle().await;
    let mirrors: Vec<_> = b.syncer.calls().into_iter().map(|c| c.mirror).collect();
    let its = Some(mirror.uid().clone());
    // An update without a mirror means that there is none; a check by the workers themselves has the last one.
    assert_eq!(mirrors, [its.clone(), None, its]);
    assert_eq!(b.workers.snapshot().len(), 1, "a mirror has no worker of its own");
}

#[tokio::test(start_paused = true)]
async fn an_update_that_waits_is_replaced_by_a_newer_one() {
    let b = bench();
    b.script(&pod("a"), Script { sync_takes: secs(1), ..Script::default() });
    b.create(&pod("a"));
    settle().await;
    let mirror = Some(pod("mirror"));
    b.workers.update(UpdateKind::Update, pod_with("a", "one", |_| {}), mirror);
    b.update(&pod_with("a", "two", |_| {}));
    b.workers.resync(&uid("a"));
    tokio::time::sleep(secs(10)).await;
    let calls = b.syncer.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!((&*calls[1].name, &calls[1].mirror), ("two", &None));
    assert_eq!(calls[1].step, sync(UpdateKind::Update));
}
