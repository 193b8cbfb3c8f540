//! The queue on the paused clock, including the cases of virtual-kubelet's queue tests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use winddown_shared::PodUid;

use super::{Bucket, ItemOutcome, PodQueue, QueueCounts, WorkerPanicked};
use winddown_shared::Backoff;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// Which item was handled when.
type Log = Arc<Mutex<Vec<(String, Duration)>>>;

struct Tried {
    queue: PodQueue,
    log: Log,
    cancel: CancellationToken,
    task: JoinHandle<Result<(), WorkerPanicked>>,
}

fn queue() -> PodQueue {
    PodQueue::new(Backoff::new(10 * MS, 10 * S), Bucket::new(1000, 1000))
}

/// A running queue whose items take `takes`, with the result of `outcome` for the n-th run.
fn run(
    queue: PodQueue,
    workers: usize,
    takes: Duration,
    outcome: impl Fn(&str, usize) -> ItemOutcome + Send + Sync + 'static,
) -> Tried {
    let (log, cancel, outcome) = (Log::default(), CancellationToken::new(), Arc::new(outcome));
    let began = Instant::now();
    let task = tokio::spawn({
        let (queue, log, cancel) = (queue.clone(), log.clone(), cancel.clone());
        async move {
            let handle = |uid: PodUid| {
                let (log, outcome) = (log.clone(), outcome.clone());
                async move {
                    let number = {
                        let mut log = log.lock().unwrap();
                        log.push((uid.as_str().to_owned(), began.elapsed()));
                        log.iter().filter(|(u, _)| u == uid.as_str()).count()
                    };
                    sleep(takes).await;
                    outcome(uid.as_str(), number)
                }
            };
            queue.run("test", workers, cancel, handle).await
        }
    });
    Tried { queue, log, cancel, task }
}

impl Tried {
    fn runs(&self) -> Vec<(String, Duration)> {
        self.log.lock().unwrap().clone()
    }

    fn order(&self) -> String {
        self.runs().iter().map(|(uid, _)| uid.as_str()).collect()
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn uid(text: &str) -> PodUid {
    PodUid::new(text)
}

fn at(seconds: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(seconds)
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_for_ever_with_waits_that_grow_to_their_limit() {
    let tried = run(queue(), 1, Duration::ZERO, |_, _| ItemOutcome::Failed { after: None });
    tried.queue.wake(&uid("a"));
    sleep(1000 * S).await;
    let runs = tried.runs();
    assert!(runs.len() > 100, "more than the 20 of virtual-kubelet: {}", runs.len());
    let waits: Vec<_> = runs.windows(2).map(|w| w[1].1 - w[0].1).collect();
    assert!(waits[0] >= 5 * MS && waits[0] <= 11 * MS, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 10 * S + MS));
    assert!(waits.iter().skip(12).all(|wait| *wait >= 5 * S));
    tried.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_that_the_other_side_names_is_kept() {
    let tried = run(queue(), 1, Duration::ZERO, |_, n| match n {
        1 => ItemOutcome::Failed { after: Some(30 * S) },
        _ => ItemOutcome::Done,
    });
    tried.queue.wake(&uid("a"));
    sleep(60 * S).await;
    assert_eq!(tried.runs().len(), 2);
    assert!(tried.runs()[1].1 >= 30 * S);
}

#[tokio::test(start_paused = true)]
async fn items_of_one_time_come_in_their_order_and_delays_are_respected() {
    let queue = queue();
    // A time in the past means now, in order.
    for name in ["a", "b", "c"] {
        queue.wake_at(&uid(name), Instant::now());
    }
    queue.wake_at(&uid("e"), at(2.0));
    queue.wake_at(&uid("d"), at(1.0));
    let tried = run(queue, 1, Duration::ZERO, |_, _| ItemOutcome::Done);
    sleep(500 * MS).await;
    assert_eq!(tried.order(), "abc");
    sleep(3 * S).await;
    assert_eq!(tried.order(), "abcde");
    assert_eq!(tried.runs()[3].1.as_secs(), 1);
    assert_eq!(tried.runs()[4].1.as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_queue_wakes_for_something_earlier_and_an_item_only_moves_forward() {
    let tried = run(queue(), 1, Duration::ZERO, |_, _| ItemOutcome::Done);
    tried.queue.wake_at(&uid("a"), at(10.0));
    sleep(MS).await;
    tried.queue.wake_at(&uid("b"), at(0.1));
    tried.queue.wake_at(&uid("a"), at(0.2));
    tried.queue.wake_at(&uid("a"), at(5.0));
    sleep(20 * S).await;
    assert_eq!(tried.order(), "ba", "each once");
    assert!(tried.runs()[1].1 < 300 * MS);
}

#[tokio::test(start_paused = true)]
async fn an_item_woken_while_it_is_handled_is_handled_twice_and_never_at_once() {
    let tried = run(queue(), 8, S, |_, _| ItemOutcome::Done);
    tried.queue.wake(&uid("a"));
    sleep(500 * MS).await;
    for _ in 0..10 {
        tried.queue.wake(&uid("a"));
    }
    sleep(10 * S).await;
    let runs = tried.runs();
    assert_eq!(runs.len(), 2);
    assert!(runs[1].1 >= S, "after the first");
}

#[tokio::test(start_paused = true)]
async fn a_wake_during_a_run_that_fails_is_not_lost_in_the_back_off() {
    let queue = PodQueue::new(Backoff::new(100 * S, 100 * S), Bucket::new(1000, 1000));
    let tried = run(queue, 1, S, |_, n| match n {
        1 => ItemOutcome::Failed { after: None },
        _ => ItemOutcome::Done,
    });
    tried.queue.wake(&uid("a"));
    sleep(500 * MS).await;
    tried.queue.wake(&uid("a"));
    sleep(5 * S).await;
    assert_eq!(tried.runs().len(), 2, "the earlier of both");
}

#[tokio::test(start_paused = true)]
async fn a_wake_ends_a_wait_but_only_something_fresh_resets_it() {
    // A timer may be one millisecond late.
    for (is_fresh, range) in [(false, 50 * MS..10 * S + 2 * MS), (true, Duration::ZERO..11 * MS)] {
        let tried = run(queue(), 1, Duration::ZERO, |_, _| ItemOutcome::Failed { after: None });
        tried.queue.wake(&uid("a"));
        sleep(30 * S).await;
        let before = tried.runs().len();
        if is_fresh {
            tried.queue.wake_fresh(&uid("a"));
        } else {
            tried.queue.wake(&uid("a"));
        }
        sleep(20 * S).await;
        let runs = tried.runs();
        let wait = runs[before + 1].1 - runs[before].1;
        assert!(range.contains(&wait), "{is_fresh}: {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_not_handled_and_what_is_woken_after_that_is() {
    let tried = run(queue(), 1, S, |_, _| ItemOutcome::Failed { after: None });
    tried.queue.forget(&uid("unknown"));
    tried.queue.wake_at(&uid("waits"), at(5.0));
    tried.queue.forget(&uid("waits"));
    tried.queue.wake(&uid("runs"));
    sleep(500 * MS).await;
    tried.queue.forget(&uid("runs"));
    sleep(30 * S).await;
    assert_eq!(tried.order(), "runs", "its failure does not bring it back");
    tried.queue.wake(&uid("again"));
    sleep(500 * MS).await;
    tried.queue.forget(&uid("again"));
    tried.queue.wake(&uid("again"));
    sleep(2 * S).await;
    assert!(tried.runs().len() >= 3);
}

#[tokio::test(start_paused = true)]
async fn twenty_items_run_side_by_side_on_twenty_workers_and_no_more() {
    for (workers, time) in [(20, 1), (10, 2)] {
        let tried = run(queue(), workers, S, |_, _| ItemOutcome::Done);
        for n in 0..20 {
            tried.queue.wake(&uid(&n.to_string()));
        }
        let mut counts = tried.queue.counts();
        sleep(500 * MS).await;
        let now = *counts.borrow_and_update();
        let expected = QueueCounts { total: 20, waiting: 20 - workers, in_flight: workers };
        assert_eq!(now, expected);
        counts.wait_for(|counts| counts.total == 0).await.unwrap();
        assert_eq!(tried.runs()[19].1.as_secs(), time - 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_wants_a_later_look_gets_it_without_a_failure() {
    let tried = run(queue(), 1, Duration::ZERO, |_, n| match n {
        1 => ItemOutcome::At(at(7.0)),
        _ => ItemOutcome::Done,
    });
    tried.queue.wake(&uid("a"));
    sleep(60 * S).await;
    assert_eq!(tried.runs().iter().map(|(_, at)| at.as_secs()).collect::<Vec<_>>(), [0, 7]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_it_takes_nothing_more_and_waits_for_what_is_under_way() {
    let tried = run(queue(), 1, 5 * S, |_, _| ItemOutcome::Done);
    tried.queue.wake(&uid("a"));
    tried.queue.wake(&uid("b"));
    sleep(S).await;
    let before = Instant::now();
    let log = tried.log.clone();
    tried.stop().await;
    assert_eq!(before.elapsed(), 4 * S);
    assert_eq!(log.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_ends_the_run_after_the_others_are_done() {
    let tried = run(queue(), 2, S, |name, _| {
        assert_ne!(name, "bad");
        ItemOutcome::Done
    });
    tried.queue.wake(&uid("bad"));
    sleep(500 * MS).await;
    tried.queue.wake(&uid("good"));
    let error = tried.task.await.unwrap().unwrap_err();
    assert_eq!((error.queue, error.pod.as_str()), ("test", "bad"));
}

#[tokio::test(start_paused = true)]
async fn only_repeated_attempts_pass_the_bucket() {
    let queue = PodQueue::new(Backoff::new(MS, MS), Bucket::new(10, 5));
    let tried = run(queue, 100, Duration::ZERO, |_, n| match n {
        1 => ItemOutcome::Failed { after: None },
        _ => ItemOutcome::Done,
    });
    for n in 0..100 {
        tried.queue.wake(&uid(&n.to_string()));
    }
    sleep(20 * MS).await;
    assert!(tried.runs().len() >= 100, "first attempts come at once");
    let mut counts = tried.queue.counts();
    counts.wait_for(|counts| counts.total == 0).await.unwrap();
    let last = tried.runs()[199].1;
    assert!(last >= 9 * S && last < 10 * S, "95 more at 10 a second: {last:?}");
}

#[test]
fn a_bucket_gives_its_burst_and_then_its_rate() {
    let mut bucket = Bucket::new(10, 3);
    let now = Instant::now();
    let waits: Vec<_> = (0..6).map(|_| bucket.take(now).as_millis()).collect();
    assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
    assert_eq!(bucket.take(now + 10 * S), Duration::ZERO);
}

#[test]
fn the_order_holds_under_any_moves() {
    use proptest::prelude::*;
    let moves = proptest::collection::vec((0_u8..20, 0_u32..1000, 0_u8..4), 1..200);
    proptest!(|(moves in moves)| {
        let now = Instant::now();
        let mut schedule = super::Schedule::new(Backoff::PATIENT, Bucket::new(10, 10));
        let mut earliest = std::collections::BTreeMap::new();
        for (item, when, what) in moves {
            let uid = PodUid::new(item.to_string());
            let when = now + MS * when;
            match what {
                0 => {
                    schedule.forget(&uid);
                    earliest.remove(&item);
                }
                _ => {
                    schedule.wake(&uid, when, what == 1);
                    let known = earliest.entry(item).or_insert(when);
                    *known = (*known).min(when);
                }
            }
            prop_assert_eq!(schedule.counts().waiting, earliest.len());
            prop_assert_eq!(schedule.next(), earliest.values().min().copied());
        }
        let mut last = now;
        while let Some(due) = schedule.next() {
            let uid = schedule.take(due).unwrap();
            let item: u8 = uid.as_str().parse().unwrap();
            prop_assert_eq!(earliest.remove(&item), Some(due));
            prop_assert!(due >= last);
            last = due;
        }
        prop_assert!(earliest.is_empty());
    });
}
