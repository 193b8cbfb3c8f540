use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::sleep;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Answers after a second with the number of times it was asked.
#[derive(Clone, Default)]
struct Slow(Arc<AtomicUsize>);

impl Slow {
    async fn ask(self) -> usize {
        sleep(SECOND).await;
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    async fn get(
        &self,
        singleflight: &SingleFlight<&'static str, usize>,
        max_age: Duration,
    ) -> Option<usize> {
        singleflight.get(&"key", max_age, |n| *n < 3, || self.clone().ask()).await
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_meanwhile_gets_the_same_answer() {
    let (slow, singleflight) = (Slow::default(), SingleFlight::new(SECOND));
    let zero = Duration::ZERO;
    let both = tokio::join!(slow.get(&singleflight, zero), slow.get(&singleflight, zero));
    assert_eq!(both, (Some(1), Some(1)));
    assert_eq!(slow.get(&singleflight, zero).await, Some(2), "zero asks anew");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_used_until_it_is_too_old_and_counts_from_when_it_was_asked() {
    let (slow, singleflight) = (Slow::default(), SingleFlight::new(10 * SECOND));
    assert_eq!(slow.get(&singleflight, 3 * SECOND).await, Some(1));
    sleep(SECOND).await;
    assert_eq!(slow.get(&singleflight, 3 * SECOND).await, Some(1));
    assert_eq!(slow.get(&singleflight, 2 * SECOND).await, Some(2));
    assert_eq!(slow.get(&singleflight, Duration::ZERO).await, Some(3));
    assert_eq!(slow.get(&singleflight, 9 * SECOND).await, Some(4), "some answers do not last");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_takes_the_answer_from_no_other() {
    let (slow, singleflight) = (Slow::default(), SingleFlight::new(SECOND));
    let wait = slow.get(&singleflight, Duration::ZERO);
    assert!(tokio::time::timeout(SECOND / 2, wait).await.is_err());
    assert_eq!(slow.get(&singleflight, Duration::ZERO).await, Some(1));
}

#[tokio::test]
async fn a_question_that_panics_is_forgotten() {
    let singleflight = SingleFlight::<u8, u8>::new(SECOND);
    let broken = singleflight.get(&1, SECOND, |_| true, || async { panic!("a broken question") });
    assert_eq!(broken.await, None);
    assert_eq!(singleflight.get(&1, SECOND, |_| true, || async { 7 }).await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn expired_answers_are_forgotten() {
    let singleflight = SingleFlight::<u32, u32>::new(SECOND);
    for n in 0..10_000 {
        singleflight.get(&n, SECOND, |_| true, || async move { n }).await;
        sleep(SECOND / 10).await;
    }
    assert!(singleflight.state.lock().entries.len() <= 2 * PRUNE_FROM_ANSWERS);
}
