//! Pings on a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use super::super::ping::*;
use super::super::ticker::TickSource;

/// Gives the answers that the test sets, when the test lets it.
#[derive(Default)]
struct Scripted {
    calls: AtomicU32,
    open: Notify,
    hangs: bool,
}

impl Ping for Scripted {
    async fn ping(&self) -> Result<(), String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.hangs {
            self.open.notified().await;
        }
        Ok(())
    }
}

const TIMES: PingTimes =
    PingTimes { timeout: Duration::from_millis(100), stale_after: Duration::from_secs(30) };

fn watch_it(ping: &Arc<Scripted>, beat: Duration) -> watch::Receiver<PingAnswer> {
    let (answers, answered) = watch::channel(PingAnswer::Waiting);
    let ping = ping.clone();
    tokio::spawn(async move {
        let ticks = TickSource::new();
        tokio::select! {
            () = ticks.beat(beat) => {}
            () = watch_over(&ping, TIMES, ticks.ticker(), &answers) => {}
        }
    });
    answered
}

/// virtual-kubelet: TestNodePingSingleInflight.
#[tokio::test(start_paused = true)]
async fn a_ping_that_blocks_is_late_after_its_timeout_and_is_the_only_one_under_way() {
    let ping = Arc::new(Scripted { hangs: true, ..Scripted::default() });
    let mut answers = watch_it(&ping, Duration::from_millis(100));
    let start = Instant::now();
    answers.wait_for(|answer| !answer.is_waiting()).await.unwrap();
    assert!(start.elapsed() < TIMES.timeout * 5);
    let problem = answers.borrow().problem(Instant::now(), TIMES);
    assert_eq!(problem.as_deref(), Some("no answer within 100ms"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(ping.calls.load(Ordering::Relaxed), 1);
    // Although it is late the answer counts, and pings continue.
    ping.open.notify_one();
    answers.wait_for(|answer| answer.problem(Instant::now(), TIMES).is_none()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ping.calls.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn good_answers_are_told_once_and_stay_young() {
    let ping = Arc::new(Scripted::default());
    let mut answers = watch_it(&ping, Duration::from_secs(10));
    answers.changed().await.unwrap();
    answers.mark_unchanged();
    sleep(Duration::from_secs(300)).await;
    assert!(!answers.has_changed().unwrap(), "nothing new was said");
    assert_eq!(answers.borrow().problem(Instant::now(), TIMES), None);
    assert!((27..=31).contains(&ping.calls.load(Ordering::Relaxed)));
}

#[tokio::test(start_paused = true)]
async fn a_good_answer_that_is_too_old_counts_no_more() {
    let answer = PingAnswer::Given { problem: None, at: Instant::now() };
    sleep(Duration::from_secs(30)).await;
    assert_eq!(answer.problem(Instant::now(), TIMES), None);
    sleep(Duration::from_secs(1)).await;
    let problem = answer.problem(Instant::now(), TIMES);
    assert_eq!(problem.as_deref(), Some("no answer for more than 30s"));
}
