//! The answer of every query in every state.

use std::collections::HashSet;

use winddown_shared::testing::Script;
use winddown_shared::{KillRequest, PodUid, PodWorkers};

use super::{Bench, bench, evict, pod, request, secs, settle, static_pod, uid};
use winddown_shared::testing::FakeSyncer;

type Ask = fn(&PodWorkers<FakeSyncer>, &PodUid) -> bool;

/// Name, query, and its answers: unknown before the desired pods were seen, unknown after, syncing,
/// termination requested, stopping, terminated, finished.
const TABLE: [(&str, Ask, &str); 4] = [
    ("is_known_terminated", PodWorkers::is_known_terminated, "FFFFFTT"),
    ("runs", |workers, uid| workers.runs(uid) == Some(true), "FFTTTFF"),
    ("is_termination_requested", PodWorkers::is_termination_requested, "FFFTTTT"),
    ("should_content_be_removed", PodWorkers::should_content_be_removed, "FTFFFFF"),
];

async fn in_state(state: usize, kill: &KillRequest) -> Bench {
    let b = bench();
    if state == 0 {
        return b;
    }
    b.workers.sync_known_pods(&HashSet::from([uid("a")]));
    if state == 1 {
        return b;
    }
    let slow = Script {
        stop_takes: if state == 4 { secs(20) } else { secs(0) },
        finish_fails: if state == 5 { 9 } else { 0 },
        ..Script::default()
    };
    b.script(&pod("a"), slow);
    b.create(&pod("a"));
    settle().await;
    if state > 2 {
        b.workers.request_kill(pod("a"), kill);
    }
    if state > 3 {
        settle().await;
    }
    b
}

fn answers(b: &Bench, ask: Ask) -> char {
    if ask(&b.workers, &uid("a")) { 'T' } else { 'F' }
}

#[tokio::test(start_paused = true)]
async fn every_query_answers_in_every_state() {
    for (name, ask, expected) in TABLE {
        let mut got = String::new();
        for state in 0..7 {
            got.push(answers(&in_state(state, &request()).await, ask));
        }
        assert_eq!(got, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_content_of_an_evicted_pod_may_be_removed_once_it_has_stopped() {
    let mut got = String::new();
    for state in 0..7 {
        let b = in_state(state, &evict()).await;
        got.push(answers(&b, PodWorkers::should_content_be_removed));
    }
    // The kubelet says yes from the eviction on, while containers still write their logs.
    assert_eq!(got, "FTFFFTT");
}

#[tokio::test(start_paused = true)]
async fn the_content_of_a_deleted_pod_may_be_removed_once_it_has_stopped() {
    let mut got = String::new();
    for state in 2..7 {
        let b = in_state(state, &request()).await;
        if state > 2 {
            b.workers.sync_known_pods(&HashSet::new());
        }
        got.push(answers(&b, PodWorkers::should_content_be_removed));
    }
    assert_eq!(got, "FFFTT"[..4].to_owned() + "T", "a finished one is unknown by then");
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_is_terminating_by_its_full_name_while_it_stops() {
    let b = bench();
    let (web, next) = (static_pod("web", "web"), static_pod("next", "web"));
    let name = web.full_name().clone();
    assert!(!b.workers.is_static_pod_terminating(&name), "unknown");
    b.script(&web, Script { stop_takes: secs(5), finish_fails: 1, ..Script::default() });
    b.create(&web);
    assert!(!b.workers.is_static_pod_terminating(&name), "waiting");
    settle().await;
    assert!(!b.workers.is_static_pod_terminating(&name), "running");
    b.create(&next);
    b.kill(&web);
    assert!(b.workers.is_static_pod_terminating(&name), "end asked for");
    settle().await;
    assert!(b.workers.is_static_pod_terminating(&name), "stopping");
    tokio::time::sleep(secs(5)).await;
    assert!(b.workers.is_known_terminated(web.uid()));
    assert!(!b.workers.is_static_pod_terminating(&name), "terminated");
}

#[tokio::test(start_paused = true)]
async fn a_query_never_waits_for_a_step() {
    let b = bench();
    b.script(&pod("a"), Script { sync_takes: secs(3600), ..Script::default() });
    b.create(&pod("a"));
    settle().await;
    let begun = tokio::time::Instant::now();
    for (_, ask, _) in TABLE {
        answers(&b, ask);
    }
    assert_eq!(begun.elapsed(), secs(0));
}
