//! Counterparts of the kubelet's TestGetPods and TestForceUpdateIfOlder, and tests of the queue.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use super::*;
use winddown_shared::PodUid;

/// A runtime that answers as scripted.
#[derive(Clone, Default)]
struct Script(Arc<Inner>);

#[derive(Default)]
struct Inner {
    names: Mutex<Vec<&'static str>>,
    takes: Mutex<Duration>,
    fails: Mutex<bool>,
    calls: AtomicUsize,
}

impl Script {
    fn holding(names: &[&'static str]) -> Self {
        let script = Self::default();
        script.hold(names);
        script
    }

    fn hold(&self, names: &[&'static str]) {
        *self.0.names.lock().unwrap() = names.to_vec();
    }

    fn takes(&self, time: Duration) {
        *self.0.takes.lock().unwrap() = time;
    }

    fn fails(&self, fails: bool) {
        *self.0.fails.lock().unwrap() = fails;
    }

    fn calls(&self) -> usize {
        self.0.calls.load(Ordering::Relaxed)
    }

    async fn list(self) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let names = self.0.names.lock().unwrap().clone();
        let takes = *self.0.takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        if *self.0.fails.lock().unwrap() {
            return Err(RuntimeError::Failed { what: "listing pods".into(), source: None });
        }
        Ok(names.into_iter().map(pod).collect())
    }
}

fn pod(name: &str) -> RuntimePod {
    RuntimePod::new(PodUid::new(name), name, "n", true)
}

macro_rules! cache {
    ($script:expr) => {{
        let script = $script.clone();
        Arc::new(RuntimeCache::new(RuntimeCache::PERIOD, move || script.clone().list()))
    }};
}

fn names(pods: &[RuntimePod]) -> Vec<&str> {
    pods.iter().map(|pod| &*pod.name).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_pods_come_in_the_runtimes_order() {
    let cache = cache!(Script::holding(&["a", "c", "b"]));
    assert_eq!(names(&cache.get().await.unwrap()), ["a", "c", "b"]);
}

#[tokio::test(start_paused = true)]
async fn an_update_is_forced_only_on_a_list_older_than_asked() {
    let script = Script::holding(&["a"]);
    let cache = cache!(script);
    tokio::time::advance(3600 * SECOND).await;
    cache.get().await.unwrap();
    script.hold(&["a", "b", "c"]);
    let now = Instant::now();
    cache.force_update_if_older(now.checked_sub(1200 * SECOND).unwrap()).await.unwrap();
    assert_eq!(names(&cache.get().await.unwrap()), ["a"]);
    cache.force_update_if_older(now).await.unwrap();
    assert_eq!(names(&cache.get().await.unwrap()), ["a"], "a list as old as asked is new enough");
    cache.force_update_if_older(now + 20 * SECOND).await.unwrap();
    assert_eq!(names(&cache.get().await.unwrap()), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_handed_out_for_one_period_and_no_longer() {
    let script = Script::holding(&["a"]);
    let cache = cache!(script);
    cache.get().await.unwrap();
    tokio::time::advance(3 * SECOND).await;
    cache.get().await.unwrap();
    assert_eq!(script.calls(), 1, "exactly one period old");
    tokio::time::advance(Duration::from_millis(1)).await;
    cache.get().await.unwrap();
    assert_eq!(script.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_stamp_is_the_time_before_the_call() {
    let script = Script::holding(&["a"]);
    let cache = cache!(script);
    let before = Instant::now();
    script.takes(2 * SECOND);
    cache.get().await.unwrap();
    cache.force_update_if_older(before).await.unwrap();
    assert_eq!(script.calls(), 1);
    // A change during the call may be missing from its result.
    cache.force_update_if_older(before + SECOND).await.unwrap();
    assert_eq!(script.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_returned_and_the_old_list_keeps_its_age() {
    let script = Script::holding(&["a"]);
    let cache = cache!(script);
    cache.get().await.unwrap();
    let first = Instant::now();
    script.fails(true);
    tokio::time::advance(2 * SECOND).await;
    assert!(cache.force_update_if_older(first + SECOND).await.is_err());
    assert_eq!(names(&cache.get().await.unwrap()), ["a"], "the old list is within its period");
    tokio::time::advance(2 * SECOND).await;
    assert!(cache.get().await.is_err(), "its age counts from its own stamp");
    script.fails(false);
    assert_eq!(names(&cache.get().await.unwrap()), ["a"]);
    assert_eq!(script.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_share_one_call() {
    let script = Script::holding(&["a"]);
    script.takes(60 * SECOND);
    let cache = cache!(script);
    let begun = Instant::now();
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.get().await.map(|pods| pods.len()) })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), 1);
    }
    assert_eq!(script.calls(), 1);
    assert_eq!(begun.elapsed(), 60 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_late_to_a_slow_call_share_the_next_one() {
    let script = Script::holding(&["a"]);
    script.takes(60 * SECOND);
    let cache = cache!(script);
    let ask = || {
        let cache = cache.clone();
        tokio::spawn(async move { cache.get().await.map(|pods| pods.len()) })
    };
    let mut callers = vec![ask()];
    tokio::time::sleep(30 * SECOND).await;
    script.hold(&["a", "b"]);
    callers.extend((0..10).map(|_| ask()));
    let mut seen = Vec::new();
    for caller in callers {
        seen.push(caller.await.unwrap().unwrap());
    }
    assert_eq!(seen, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(script.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn callers_that_waited_for_a_failing_call_do_not_repeat_it_one_by_one() {
    let script = Script::holding(&["a"]);
    script.takes(10 * SECOND);
    script.fails(true);
    let cache = cache!(script);
    let begun = Instant::now();
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.get().await.is_err() })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap());
    }
    assert_eq!(script.calls(), 1);
    assert_eq!(begun.elapsed(), 10 * SECOND);
    assert!(cache.get().await.is_err());
    assert_eq!(script.calls(), 2, "who asks after the failure asks the runtime");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_leaves_the_call_to_the_next() {
    let script = Script::holding(&["a"]);
    script.takes(10 * SECOND);
    let cache = cache!(script);
    assert!(tokio::time::timeout(SECOND, cache.get()).await.is_err());
    assert_eq!(names(&cache.get().await.unwrap()), ["a"]);
    assert_eq!(script.calls(), 2);
}
