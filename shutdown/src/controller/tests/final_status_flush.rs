//! The pods' last statuses are told before the node is let go, for as long as there is time.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, sleep_until};
use winddown_shared::{FinalStatusFlush, PodKiller, PodLabel};

use super::{Setup, settle};
use crate::Outcome;
use crate::test_pods::{pod, secs};

/// Tells all but one pod, in its own time.
#[derive(Default)]
struct Slow {
    takes: u64,
    hangs: bool,
    panics: bool,
    asked: Mutex<Vec<(bool, Instant)>>,
}

impl FinalStatusFlush for Slow {
    fn tell(&self, clean: bool, until: Instant) -> BoxFuture<'_, Vec<PodLabel>> {
        self.asked.lock().unwrap().push((clean, until));
        async move {
            assert!(!self.panics, "nobody to tell");
            sleep_until((Instant::now() + secs(self.takes)).min(until)).await;
            if self.hangs {
                sleep(secs(100_000)).await;
            }
            vec![pod("left", None, None).label().clone()]
        }
        .boxed()
    }
}

fn setup(words: &Arc<Slow>) -> Setup {
    let setup = Setup::with([pod("app", None, Some(20))]);
    Setup { final_status_flush: Some(Arc::clone(words) as _), ..setup }
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_held_until_the_last_statuses_are_told_and_the_report_names_the_rest() {
    let words = Arc::new(Slow { takes: 1, ..Slow::default() });
    let mut node = setup(&words).start();
    settle().await;
    node.prepare();
    let took = node.released().await;
    assert!(took >= secs(1), "{took:?}");
    assert_eq!(node.reports()[0].statuses_not_told, ["default/left"]);
    assert_eq!(node.reports()[0].outcome, Outcome::Clean);
    let asked = words.asked.lock().unwrap();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].0, "every pod ended");
}

#[tokio::test(start_paused = true)]
async fn an_api_that_does_not_answer_costs_ten_seconds_at_most_and_never_the_report() {
    let words = Arc::new(Slow { hangs: true, ..Slow::default() });
    let mut node = setup(&words).start();
    settle().await;
    node.prepare();
    let took = node.released().await;
    let (_, until) = words.asked.lock().unwrap()[0];
    assert!(until > node.start + secs(9) && until <= node.start + secs(10), "of 40 s");
    assert!(took > secs(9) && took <= secs(10), "{took:?}");
    assert_eq!(node.reports().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_panics_holds_nothing_up() {
    let words = Arc::new(Slow { panics: true, ..Slow::default() });
    let mut node = setup(&words).start();
    settle().await;
    node.prepare();
    node.released().await;
    assert_eq!((node.reports().len(), node.releases()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_end_makes_the_shutdown_one_that_was_not_clean() {
    let words = Arc::new(Slow::default());
    let mut node = setup(&words).start();
    node.killer.hangs(pod("app", None, Some(20)).uid(), secs(1_000));
    settle().await;
    node.prepare();
    node.released().await;
    assert!(!words.asked.lock().unwrap()[0].0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_flushes_no_status() {
    let words = Arc::new(Slow::default());
    let mut node = setup(&words).start();
    node.killer.takes(pod("app", None, Some(20)).uid(), secs(10));
    settle().await;
    node.prepare();
    node.until(secs(1)).await;
    node.login.fake.cancel();
    node.until(secs(60)).await;
    assert_eq!(words.asked.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_logind_still_gives_goes_to_the_last_statuses_and_no_more() {
    // The pod takes 5 s of the delay; 10 s at the most are for telling.
    for (delay, least, most) in [(7, 6.0, 7.0), (12, 11.0, 12.0), (40, 14.0, 15.0)] {
        let words = Arc::new(Slow { takes: 1000, ..Slow::default() });
        let mut node = setup(&words).delay(secs(delay)).start();
        let app = node.killer.running().pods.remove(0);
        node.killer.takes(app.uid(), secs(5));
        settle().await;
        node.prepare();
        let took = node.released().await.as_secs_f64();
        assert!(took > least && took <= most, "{delay}: {took}");
        assert_eq!(node.reports().len(), 1);
        node.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_ends_the_wait_for_last_statuses() {
    let words = Arc::new(Slow { hangs: true, ..Slow::default() });
    let mut node = setup(&words).start();
    settle().await;
    node.prepare();
    node.until(secs(3)).await;
    node.login.fake.cancel();
    settle().await;
    assert!(node.gate.check().is_ok(), "at once");
}
