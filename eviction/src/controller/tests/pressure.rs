//! Memory pressure, and pods that do not stop as they should.

use std::sync::Arc;

use serde_json::json;
use winddown_shared::{Event, GateReason, GateReasons, PressureCondition, PressureStats};

use super::*;
use crate::tests::tasks;
use crate::{DecisionOutcome, HookRule, PressureRule};

fn soft() -> Policy {
    policy(json!({
        "evictionHard": {"memory.available": "1Gi"},
        "evictionSoft": {"memory.available": "2Gi"},
        "evictionSoftGracePeriod": {"memory.available": "10s"},
    }))
}

fn with_hook(timeout: u64) -> Policy {
    let mut policy = hard();
    policy.hook = Some(Arc::new(HookRule { timeout: secs(timeout), ..HookRule::default() }));
    policy
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_asked_to_end_within_250_ms_of_the_crossing() {
    for rate in ["100Mi", "1Gi", "4Gi"] {
        let world = World::new(hard(), memory_pods());
        world.is(left("12Gi"), secs(10)).await;
        let (from, rate) = (bytes("12Gi"), bytes(rate));
        let since = tokio::time::Instant::now();
        world.node.state().falls = Some((since, from, rate));
        tokio::time::sleep(secs(120)).await;
        let crossed = since + Duration::from_secs_f64((from - bytes("1Gi")) as f64 / rate as f64);
        let late = world.killer.calls()[0].at.saturating_duration_since(crossed);
        assert!(late < Duration::from_millis(250), "{rate} in a second: {late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_to_run_before_an_eviction_runs_before_the_pod_is_asked() {
    let world = World::new(with_hook(2), memory_pods());
    world.is(left("12Gi"), secs(10)).await;
    world.helps(LOWEST, left("4Gi"));
    let since = tokio::time::Instant::now();
    world.is(left("500Mi"), secs(60)).await;
    assert_eq!(names(&world), [LOWEST], "and no other pod meanwhile");
    let waited = world.killer.calls()[0].at.saturating_duration_since(since);
    assert!(waited >= secs(1) && waited < secs(3), "{waited:?}");
    let calls = std::mem::take(&mut world.node.state().hooks);
    let told = calls.iter().map(|call| (&*call.pod.name, call.cause)).collect::<Vec<_>>();
    assert_eq!(told, [(LOWEST, "memory.available")]);
    assert!(calls[0].message.starts_with("The node was low on resource: memory."));
    let record = &world.view.history()[0];
    assert_eq!(record.hook.as_ref().map(|run| &*run.output), Some("dumped"));
    assert!(matches!(record.outcome, DecisionOutcome::Evicted { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_runs_before_an_eviction_takes_nothing_from_the_time_in_which_the_pod_may_end() {
    let world = World::new(with_hook(10), memory_pods());
    world.killer.hangs(memory_pods()[4].0.uid(), secs(8));
    world.helps(LOWEST, left("4Gi"));
    world.is(left("500Mi"), secs(60)).await;
    assert_eq!(names(&world), [LOWEST]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_what_runs_before_an_eviction() {
    let world = World::new(with_hook(10), memory_pods());
    world.is(left("500Mi"), secs(2)).await;
    assert_eq!(world.node.state().hooks.len(), 1);
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Shutdown]));
    tokio::time::sleep(secs(60)).await;
    assert_eq!(names(&world), [""; 0], "the shutdown ends it");
}

#[tokio::test(start_paused = true)]
async fn the_kernel_wakes_the_loop_but_not_more_often_than_ten_times_a_second() {
    let world = World::new(hard(), memory_pods());
    world.is(left("12Gi"), Duration::from_millis(1500)).await;
    let since = tokio::time::Instant::now();
    world.node.state().stats = left("500Mi");
    world.helps(LOWEST, left("12Gi"));
    world.wake.notify_one();
    tokio::time::sleep(secs(1)).await;
    assert!(world.killer.calls()[0].at - since <= Duration::from_millis(100));
    let looks = world.looks();
    for _ in 0..1000 {
        world.wake.notify_one();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(world.looks() - looks <= 11, "{}", world.looks() - looks);
}

#[tokio::test(start_paused = true)]
async fn one_pod_at_a_time_and_no_more_once_enough_has_come_back() {
    let world = World::new(hard(), memory_pods());
    for (pod, _) in memory_pods() {
        world.killer.takes(pod.uid(), Duration::from_millis(800));
    }
    world.helps("burstable-above-requests", left("4Gi"));
    world.is(left("500Mi"), secs(30)).await;
    assert_eq!(names(&world), [LOWEST, "burstable-above-requests"]);
    let calls = world.killer.calls();
    let apart = calls[1].at - calls[0].at;
    assert!(apart >= Duration::from_millis(800), "{apart:?}: the first had not terminated");
    assert!(apart <= Duration::from_millis(900), "{apart:?}: it is measured at once");
}

#[tokio::test(start_paused = true)]
async fn a_victims_volumes_in_memory_are_waited_for_until_they_are_unmounted() {
    for mounted in [Some(secs(3)), None] {
        let mut pods = memory_pods();
        let victim = changed(LOWEST, -1, &[], |object| {
            let volume = json!([{"name": "v", "emptyDir": {"medium": "Memory"}}]);
            object.spec.as_mut().unwrap().volumes = serde_json::from_value(volume).unwrap();
        });
        pods[4].0 = victim.clone();
        let world = World::new(hard(), pods);
        world.killer.stays_mounted(victim.uid(), ["/run/x"], mounted);
        world.is(left("500Mi"), Duration::from_millis(2900)).await;
        assert_eq!(names(&world), [LOWEST], "its memory is still used");
        let then = if mounted.is_some() { "4Gi" } else { "500Mi" };
        world.is(left(then), secs(27)).await;
        assert_eq!(names(&world), [LOWEST], "{mounted:?}");
        world.is(left(then), secs(1)).await;
        assert_eq!(names(&world).len() > 1, mounted.is_none(), "30 s are enough");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_give_memory_back_within_the_soft_grace_are_not_ended() {
    let world = World::new(soft(), memory_pods());
    world.is(left("1500Mi"), secs(9)).await;
    assert!(world.has(PressureCondition::Memory));
    world.is(left("4Gi"), 10 * MINUTE).await;
    assert_eq!(names(&world), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_end_counts_as_failed_and_the_next_one_is_chosen() {
    let world = World::new(hard(), memory_pods());
    world.killer.hangs(memory_pods()[4].0.uid(), secs(3600));
    world.helps("burstable-above-requests", left("4Gi"));
    world.is(left("500Mi"), secs(60)).await;
    assert_eq!(names(&world), [LOWEST, "burstable-above-requests"]);
    let calls = world.killer.calls();
    assert_eq!((calls[1].at - calls[0].at).as_secs(), 10, "its second, and nine more");
    assert_eq!(world.count(|event| matches!(event, Event::PodEvicted { .. })), 1);
    assert_eq!(world.count(|event| matches!(event, Event::EvictionFailed { .. })), 1);
    let history = world.view.history();
    assert!(matches!(history[0].outcome, DecisionOutcome::Failed { .. }));
    assert!(matches!(history[1].outcome, DecisionOutcome::Evicted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_hard_threshold_cuts_the_grace_of_a_pod_that_ends_for_a_soft_one() {
    let mut policy = soft();
    policy.max_pod_grace = None;
    let world = World::new(policy, memory_pods());
    world.killer.takes(memory_pods()[4].0.uid(), secs(25));
    world.is(left("1500Mi"), secs(15)).await;
    assert_eq!(world.killed(), [(LOWEST.to_owned(), None)], "its own grace");
    world.is(left("500Mi"), Duration::from_millis(300)).await;
    let cut = (LOWEST.to_owned(), Some(1));
    assert_eq!(world.killed()[1..], [cut], "not a second pod");
    world.is(left("4Gi"), secs(30)).await;
    let started = |event: &Event| matches!(event, Event::EvictionStarted { .. });
    let evicted = |event: &Event| matches!(event, Event::PodEvicted { .. });
    assert_eq!((world.count(started), world.count(evicted)), (1, 1), "one eviction");
}

#[tokio::test(start_paused = true)]
async fn what_runs_before_an_eviction_does_not_run_again_when_the_pod_is_hurried() {
    let mut policy = soft();
    policy.max_pod_grace = None;
    policy.hook = Some(Arc::new(HookRule { timeout: secs(4), ..HookRule::default() }));
    let world = World::new(policy, memory_pods());
    world.killer.takes(memory_pods()[4].0.uid(), secs(25));
    world.is(left("1500Mi"), secs(15)).await;
    assert_eq!(world.killed(), [(LOWEST.to_owned(), None)]);
    world.is(left("500Mi"), Duration::from_millis(300)).await;
    assert_eq!(world.killed()[1..], [(LOWEST.to_owned(), Some(1))], "at once");
    assert_eq!(world.node.state().hooks.len(), 1);
}

/// The API accepts any number of seconds.
#[tokio::test(start_paused = true)]
async fn a_pod_with_more_grace_than_the_clock_can_count_ends_like_any_other() {
    let mut policy = soft();
    policy.max_pod_grace = None;
    let mut pods = memory_pods();
    let (pod, _) = &mut pods[4];
    let mut object = pod.object().clone();
    object.spec.as_mut().unwrap().termination_grace_period_seconds = Some(i64::MAX);
    *pod = Pod::new(object).unwrap();
    let world = World::new(policy, pods);
    world.killer.takes(memory_pods()[4].0.uid(), secs(25));
    world.is(left("1500Mi"), secs(15)).await;
    world.is(left("500Mi"), Duration::from_millis(300)).await;
    let asked = [None, Some(1)].map(|grace| (LOWEST.to_owned(), grace));
    assert_eq!(world.killed(), asked);
}

#[tokio::test(start_paused = true)]
async fn memory_that_comes_back_with_pods_that_others_end_is_waited_for() {
    use winddown_shared::{KillReason, KillRequest, PodKiller};
    let leaving = changed("leaving", 5, &[], |object| {
        object.spec.as_mut().unwrap().termination_grace_period_seconds = Some(1);
    });
    let mut pods = memory_pods();
    pods.push((leaving.clone(), memory("2Gi")));
    let world = World::new(hard(), pods);
    world.is(left("8Gi"), Duration::from_millis(2500)).await;
    world.helps("leaving", left("4Gi"));
    world.killer.takes(leaving.uid(), secs(1));
    let killer = world.killer.clone();
    tokio::spawn(
        async move { killer.kill_pod(leaving, KillRequest::new(KillReason::Removed)).await },
    );
    world.is(left("500Mi"), secs(10)).await;
    assert_eq!(names(&world), ["leaving"], "nobody else");
}

fn tasks_left(count: u64) -> NodeStats {
    let tasks = winddown_shared::LimitStats { at: None, max: 1000, used: 1000 - count };
    {
        let mut stats = left("8Gi");
        stats.tasks = Some(tasks);
        stats
    }
}

#[tokio::test(start_paused = true)]
async fn no_second_victim_while_the_tasks_of_a_fork_bomb_are_still_collected() {
    let policy = || policy(json!({"evictionHard": {"pid.available": "200"}}));
    let pods = || {
        let named = |name: &str, count| (pod(name, 0, &[]), tasks(count));
        vec![named("bomb", 400), named("web", 3), named("db", 2)]
    };
    let world = World::new(policy(), pods());
    world.is(tasks_left(150), secs(2)).await;
    assert_eq!(names(&world), ["bomb"]);
    world.is(tasks_left(190), secs(8)).await;
    assert_eq!(names(&world), ["bomb"], "it has ended, and its tasks count still");
    world.is(tasks_left(540), MINUTE).await;
    assert_eq!(names(&world), ["bomb"]);
    // The freed amount is not enough, or is never freed.
    for (then, time) in [(tasks_left(460), secs(1)), (tasks_left(150), secs(35))] {
        let world = World::new(policy(), pods());
        world.is(tasks_left(150), secs(2)).await;
        world.is(then, secs(1)).await;
        world.is(tasks_left(150), time).await;
        assert_eq!(names(&world)[..2], ["bomb", "web"]);
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_measured_are_never_ended_and_it_is_tried_ever_more_rarely() {
    let world = World::new(hard(), memory_pods());
    world.node.state().pods.clear();
    world.is(left("500Mi"), MINUTE).await;
    assert_eq!(names(&world), [""; 0]);
    let tries = world.node.state().measured.len();
    assert!((7..=11).contains(&tries), "{tries} tries in a minute");
    assert_eq!(world.view.history().len(), 1, "told once");
    assert_eq!(world.view.history()[0].outcome, DecisionOutcome::NoCandidate { unmeasured: true });
    world.node.state().pods.insert(memory_pods()[2].0.uid().clone(), memory("400Mi"));
    world.helps("burstable-above-requests", left("4Gi"));
    world.is(left("500Mi"), secs(11)).await;
    assert_eq!(names(&world), ["burstable-above-requests"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_never_measured_are_ended_by_priority_one_after_the_other() {
    let world = World::new(hard(), memory_pods());
    world.node.state().never_measures = true;
    world.helps("burstable-above-requests", left("8Gi"));
    world.is(left("500Mi"), MINUTE).await;
    let expected = [LOWEST, "guaranteed-low-priority-high-usage", "burstable-above-requests"];
    assert_eq!(names(&world), expected, "until there is enough");
}

#[tokio::test(start_paused = true)]
async fn a_second_shortage_without_a_pod_to_end_is_told_like_the_first() {
    let world = World::new(hard(), memory_pods());
    world.node.state().pods.clear();
    for shortages in 1..=2 {
        world.is(left("500Mi"), MINUTE).await;
        let is_met = |event: &Event| matches!(event, Event::EvictionThresholdMet { .. });
        assert_eq!(world.count(is_met), shortages);
        world.is(left("8Gi"), 10 * MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_that_wait_for_memory_end_one_pod_and_then_none_for_a_while() {
    let mut policy = policy(json!({}));
    policy.memory_pressure = Some(PressureRule::default());
    let world = World::new(policy, memory_pods());
    let start = tokio::time::Instant::now();
    for step in 0..40_u8 {
        let waited = u64::from(step) * 1000;
        let pressure = PressureStats {
            some_avg10: f32::from(step).min(30.0),
            full_avg10: f32::from(step).min(30.0),
            some_total_us: waited,
            full_total_us: waited,
            at: None,
        };
        let stats = {
            let mut stats = left("1Gi");
            stats.memory_pressure = Some(pressure);
            stats
        };
        world.is(stats, Duration::from_millis(500)).await;
    }
    let times: Vec<u64> = world.killer.calls().iter().map(|c| (c.at - start).as_secs()).collect();
    assert_eq!(times.len(), 2, "{times:?}");
    assert!(times[1] - times[0] >= 10, "{times:?}");
    assert_eq!(world.killed()[0], (LOWEST.to_owned(), Some(1)));
    let label = |event: &Event| matches!(event, Event::PodEvicted { signal: "memoryPressure", .. });
    assert_eq!(world.count(label), 2);
    assert!(world.has(PressureCondition::Memory));
}
