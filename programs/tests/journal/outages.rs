//! Long outages: the log reports them, but does not repeat itself endlessly.

use std::time::Duration;

use winddown_shared::Pod;

use super::lines::Lines;
use crate::metrics::bed::{Bed, pod, secs};

const HOUR: Duration = Duration::from_secs(3600);

fn pods(count: usize) -> Vec<Pod> {
    (0..count).map(|n| pod(&format!("web-{n}"), 0, 30)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_at_rest_says_nothing_for_an_hour() {
    let lines = Lines::keep();
    let bed = Bed::new();
    bed.run(&pods(20)).await;
    let before = lines.count();
    tokio::time::sleep(HOUR).await;
    assert_eq!(lines.count(), before, "{}", lines.text());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_fails_for_an_hour_is_told_of_each_pod_a_few_times() {
    let lines = Lines::keep();
    let bed = Bed::new();
    bed.run(&pods(20)).await;
    bed.runtime.fail(true);
    // A pod that arrives in the meantime cannot start.
    let all: Vec<Pod> = pods(20).into_iter().chain([pod("late", 0, 30)]).collect();
    let before = lines.count();
    bed.run(&all).await;
    tokio::time::sleep(HOUR).await;
    lines.check_calm();
    assert!(lines.with("default/late") >= 2, "{}", lines.text());
    let said = lines.count() - before;
    assert!(said <= 21 * 12 + 80, "{said} lines in an hour:\n{}", lines.text());
    bed.runtime.fail(false);
    tokio::time::sleep(secs(900)).await;
    let quiet = lines.count();
    tokio::time::sleep(HOUR).await;
    assert_eq!(lines.count(), quiet, "{}", lines.text());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_hangs_for_an_hour_is_told_once_a_minute_at_most() {
    let lines = Lines::keep();
    let bed = Bed::new();
    bed.run(&pods(20)).await;
    bed.runtime.hang_lists(true);
    bed.run(&[]).await;
    let before = lines.count();
    tokio::time::sleep(HOUR).await;
    lines.check_calm();
    let said = lines.count() - before;
    assert!(said <= 100, "{said} lines in an hour:\n{}", lines.text());
}

#[tokio::test(start_paused = true)]
async fn a_login_manager_that_comes_and_goes_is_not_told_more_than_once_a_minute() {
    let lines = Lines::keep();
    let bed = Bed::new();
    bed.run(&pods(2)).await;
    let before = lines.count();
    for _ in 0..600 {
        bed.login
            .modify(|state| state.lock = winddown_shared::LockState::Waiting { why: "no".into() });
        tokio::time::sleep(secs(3)).await;
        bed.login.modify(|state| state.lock = winddown_shared::LockState::Held);
        tokio::time::sleep(secs(3)).await;
    }
    lines.check_calm();
    assert!(lines.count() - before <= 122, "{}", lines.text());
}
