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
        singleflight.get(&"key", max_age, |n| (*n < 3).then_some(0), || self.clone().ask()).await
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
    assert_eq!(slow.get(&singleflight, SECOND).await, Some(1));
}

/// A pod that is prepared once a Secret has changed must not get its old value, nor miss a service that was there before it.
#[tokio::test(start_paused = true)]
async fn what_was_asked_before_a_question_does_not_answer_it() {
    let (slow, singleflight) = (Slow::default(), SingleFlight::new(SECOND));
    let get = async |after: Duration| {
        sleep(after).await;
        slow.get(&singleflight, Duration::ZERO).await
    };
    let all = tokio::join!(get(Duration::ZERO), get(SECOND / 4), get(SECOND / 2));
    assert_eq!(all, (Some(1), Some(2), Some(2)), "those who waited share one answer");
}

#[tokio::test]
async fn a_question_that_panics_is_forgotten() {
    let singleflight = SingleFlight::<u8, u8>::new(SECOND);
    let broken =
        singleflight.get(&1, SECOND, |_| Some(0), || async { panic!("a broken question") });
    assert_eq!(broken.await, None);
    assert_eq!(singleflight.get(&1, SECOND, |_| Some(0), || async { 7 }).await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn expired_answers_are_forgotten() {
    let singleflight = SingleFlight::<u32, u32>::new(SECOND);
    for n in 0..10_000 {
        singleflight.get(&n, SECOND, |_| Some(0), || async move { n }).await;
        sleep(SECOND / 10).await;
    }
    assert!(singleflight.state.lock().entries.len() <= 2 * PRUNE_FROM_ANSWERS);
}

#[tokio::test(start_paused = true)]
async fn large_answers_do_not_add_up_and_the_newest_are_kept() {
    let singleflight = SingleFlight::<usize, Vec<u8>>::new(600 * SECOND);
    let asked = AtomicUsize::new(0);
    let get = async |key: usize| {
        let ask = || {
            asked.fetch_add(1, Ordering::SeqCst);
            async { vec![0; 1 << 20] }
        };
        singleflight.get(&key, 600 * SECOND, |answer| Some(answer.len()), ask).await.unwrap()
    };
    for key in 0..40 {
        get(key).await;
        sleep(SECOND).await;
    }
    let kept = singleflight.state.lock().entries.len() << 20;
    assert!(kept <= MOST_BYTES, "{kept}");
    get(39).await;
    get(38).await;
    assert_eq!(asked.load(Ordering::SeqCst), 40, "these are shared still");
    get(0).await;
    assert_eq!(asked.load(Ordering::SeqCst), 41);
    // One that is too large by itself is no reason to keep none.
    let large = || async { vec![0; MOST_BYTES + 1] };
    singleflight.get(&40, SECOND, |answer| Some(answer.len()), large).await.unwrap();
    assert!(!singleflight.state.lock().entries.contains_key(&40));
    get(39).await;
    assert_eq!(asked.load(Ordering::SeqCst), 41);
}
