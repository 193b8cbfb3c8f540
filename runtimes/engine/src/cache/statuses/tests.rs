//! Counterparts of the kubelet's `cache_test.go`, and tests of what its cache cannot do.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::*;

type Cache = PodStatusCache<&'static str>;

const SECOND: Duration = Duration::from_secs(1);

fn uid() -> PodUid {
    PodUid::new("1234")
}

/// An hour from now, so that earlier times exist.
fn noon() -> Instant {
    Instant::now() + 3600 * SECOND
}

fn seconds(from: Instant, by: i64) -> Instant {
    let span = Duration::from_secs(by.unsigned_abs());
    if by < 0 { from.checked_sub(span).unwrap() } else { from + span }
}

fn seen(status: &'static str) -> Inspected<&'static str> {
    Ok(Arc::new(status))
}

fn failure() -> RuntimeError {
    RuntimeError::Failed { what: "unable to get status".into(), source: None }
}

fn text(found: &Option<Inspected<&'static str>>) -> Option<String> {
    let inspected = found.as_ref()?;
    Some(inspected.as_ref().map_or_else(ToString::to_string, ToString::to_string))
}

fn waiting(cache: &Cache, than: Instant) -> JoinHandle<Option<String>> {
    let cache = cache.clone();
    tokio::spawn(async move { text(&cache.get_newer_than(&uid(), than).await) })
}

/// Lets every task run until all of them wait.
async fn settle() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

fn waiters(cache: &Cache) -> usize {
    cache.0.lock().waiters.values().map(Vec::len).sum()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_newer_than_anything_before_the_first_list() {
    let cache = Cache::new();
    assert!(cache.0.lock().newer_than(&uid(), Instant::now()).is_none());
    assert!(matches!(cache.get(&uid()), Cached::NotYetListed));
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_newer_when_the_list_or_its_own_times_are() {
    for (what, listed, modified, observed, expected) in [
        ("the list is newer", 1, 0, 0, true),
        ("the list is newer, the pod has not changed for long", 1, -10, -10, true),
        ("the pod is newer, the list is still under way", -1, 3, 3, true),
        ("both are older", -1, -1, -1, false),
        ("looked at later, unchanged", -1, -1, 1, true),
        ("all exactly then", 0, 0, 0, false),
    ] {
        let (cache, time) = (Cache::new(), noon());
        cache.update_time(seconds(time, listed));
        cache.set(&uid(), seen("s"), seconds(time, modified));
        cache.set_observed_time(&uid(), seconds(time, observed));
        let found = cache.0.lock().newer_than(&uid(), time);
        assert_eq!(found.is_some(), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_a_pod_is_not_there_is_as_new_as_the_list() {
    let (cache, listed) = (Cache::new(), noon());
    cache.update_time(listed);
    let found = |by| cache.0.lock().newer_than(&uid(), seconds(listed, by));
    assert!(matches!(found(-1), Some(None)));
    assert!(found(1).is_none());
    assert!(found(0).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_was_set_is_what_one_gets() {
    let cache = Cache::new();
    let now = Instant::now();
    for (pod, status) in [("a", seen("three")), ("b", Err(failure())), ("c", seen(""))] {
        let pod = PodUid::new(pod);
        assert!(cache.set(&pod, status.clone(), now));
        let Cached::Known(found) = cache.get(&pod) else { panic!("{pod}: not there") };
        assert_eq!(text(&Some(found)), text(&Some(status)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_before_the_first_listing_differs_from_an_absent_one() {
    let cache = Cache::new();
    assert!(matches!(cache.get(&uid()), Cached::NotYetListed));
    cache.set(&PodUid::new("other"), seen("s"), Instant::now());
    assert!(matches!(cache.get(&uid()), Cached::NotYetListed), "one pod is not the list");
    cache.update_time(Instant::now());
    assert!(matches!(cache.get(&uid()), Cached::Unknown));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_gone_and_no_waiter_is_woken() {
    let (cache, now) = (Cache::new(), noon());
    cache.update_time(now);
    cache.set(&uid(), seen("s"), now);
    let waiter = waiting(&cache, seconds(now, 1));
    settle().await;
    cache.delete(&uid());
    settle().await;
    assert!(matches!(cache.get(&uid()), Cached::Unknown));
    assert!(!waiter.is_finished());
    cache.update_time(seconds(now, 2));
    assert_eq!(waiter.await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_look_or_a_list_answers_who_waits_for_it() {
    let (cache, now) = (Cache::new(), noon());
    cache.update_time(now);
    let waiter = waiting(&cache, seconds(now, 1));
    settle().await;
    assert!(!waiter.is_finished());
    cache.set(&uid(), seen("looked"), seconds(now, 1));
    assert_eq!(waiter.await.unwrap().as_deref(), Some("looked"));

    let waiter = waiting(&cache, seconds(now, 1));
    settle().await;
    assert!(!waiter.is_finished(), "equal is not newer for who comes later");
    cache.update_time(seconds(now, 2));
    assert_eq!(waiter.await.unwrap().as_deref(), Some("looked"));
}

#[tokio::test(start_paused = true)]
async fn every_way_of_looking_releases_a_waiter() {
    type Look = fn(&Cache, Instant);
    let set: Look = |cache, at| assert!(cache.set(&uid(), seen("new"), at));
    let observed: Look = |cache, at| cache.set_observed_time(&uid(), at);
    let list: Look = |cache, at| cache.update_time(at);
    for (what, there, look, expected) in [
        ("set, the pod is there", true, set, Some("new")),
        ("observed, the pod is there", true, observed, Some("old")),
        ("listed, the pod is there", true, list, Some("old")),
        ("set, the pod is not there", false, set, Some("new")),
        ("listed, the pod is not there", false, list, None),
        ("observed, the pod is not there", false, observed, None),
    ] {
        let (cache, now) = (Cache::new(), noon());
        cache.update_time(now);
        if there {
            cache.set(&uid(), seen("old"), now);
        }
        let than = seconds(now, 5);
        let waiter = waiting(&cache, than);
        settle().await;
        look(&cache, seconds(now, 4));
        settle().await;
        assert!(!waiter.is_finished(), "{what}: too early a look");
        look(&cache, seconds(now, 6));
        assert_eq!(waiter.await.unwrap().as_deref(), expected, "{what}");
        assert_eq!(waiters(&cache), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_look_answers_every_waiter_it_is_new_enough_for_once() {
    let (cache, now) = (Cache::new(), noon());
    let early: Vec<_> = (0..5).map(|by| waiting(&cache, seconds(now, by))).collect();
    let late = waiting(&cache, seconds(now, 60));
    settle().await;
    assert_eq!(waiters(&cache), 6);
    cache.set(&uid(), seen("s"), seconds(now, 4));
    for waiter in early {
        assert_eq!(waiter.await.unwrap().as_deref(), Some("s"));
    }
    assert!(!late.is_finished());
    assert_eq!(waiters(&cache), 1);
    cache.set(&uid(), seen("t"), seconds(now, 61));
    assert_eq!(late.await.unwrap().as_deref(), Some("t"));
    assert_eq!(waiters(&cache), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_runtime_does_not_hold_a_caller_that_gives_up() {
    let (cache, now) = (Cache::new(), noon());
    let pod = uid();
    let wait = cache.get_newer_than(&pod, now);
    assert!(tokio::time::timeout(SECOND, wait).await.is_err());
    assert_eq!(waiters(&cache), 0, "its place is given up");
    cache.set(&pod, seen("s"), seconds(now, 1));
    assert_eq!(text(&cache.get_newer_than(&pod, now).await).as_deref(), Some("s"));
}

#[tokio::test(start_paused = true)]
async fn a_slow_list_does_not_undo_what_an_event_said() {
    let (cache, now) = (Cache::new(), noon());
    assert!(cache.set(&uid(), seen("event"), seconds(now, 1)));
    assert!(!cache.set(&uid(), seen("list"), now));
    assert!(matches!(cache.get(&uid()), Cached::Known(Ok(s)) if *s == "event"));
    assert!(cache.set(&uid(), seen("same time"), seconds(now, 1)));
    cache.update_time(seconds(now, 9));
    cache.update_time(now);
    assert!(cache.0.lock().newer_than(&uid(), seconds(now, 8)).is_some(), "the list stays new");
    cache.set_observed_time(&uid(), seconds(now, 10));
    assert!(!cache.set(&uid(), seen("late list"), seconds(now, 5)));
    assert!(cache.0.lock().newer_than(&uid(), seconds(now, 9)).is_some(), "a look stays new");
}

#[tokio::test(start_paused = true)]
async fn many_pods_and_waiters_leave_nothing_behind() {
    let (cache, now) = (Cache::new(), noon());
    let tasks: Vec<_> = (0..200)
        .map(|i| {
            let cache = cache.clone();
            let pod = PodUid::new(format!("u{}", i % 20));
            tokio::spawn(async move {
                let wait = cache.get_newer_than(&pod, now);
                // Every third waiter gives up.
                if i % 3 == 0 {
                    let _ = tokio::time::timeout(SECOND, wait).await;
                } else {
                    wait.await;
                }
            })
        })
        .collect();
    settle().await;
    tokio::time::advance(2 * SECOND).await;
    settle().await;
    cache.update_time(seconds(now, 1));
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(waiters(&cache), 0);
    assert!(cache.0.lock().waiters.is_empty());
}
