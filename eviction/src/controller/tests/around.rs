//! The loop next to the rest of the agent.

use std::sync::Arc;

use serde_json::json;
use tokio::time::Instant;
use winddown_shared::testing::static_pod;
use winddown_shared::{Event, GateReason, GateReasons, PodUid, PressureCondition};

use super::*;
use crate::{
    CandidateEnding, DecisionOutcome, EarlierEviction, ExplainError, HookRule, Signal, StaticPods,
    WantedFigures,
};

#[tokio::test(start_paused = true)]
async fn ten_calm_minutes_end_no_pod_measure_no_pod_and_sample_every_two_seconds() {
    let world = World::new(policy(json!({"evictionHard": crate::default_hard()})), memory_pods());
    world.is(left("8Gi"), 10 * MINUTE).await;
    assert_eq!(world.killed(), []);
    assert_eq!(world.node.state().measured, []);
    assert!((300..=305).contains(&world.looks()), "{}", world.looks());
    assert_eq!(world.recorder.events(), []);
}

#[tokio::test(start_paused = true)]
async fn a_node_under_pressure_is_sampled_once_a_second_until_the_condition_is_over() {
    let mut policy = hard();
    policy.transition_period = 5 * MINUTE;
    let world = World::new(policy, memory_pods());
    world.is(left("500Mi"), secs(10)).await;
    let looks = world.looks();
    world.is(left("12Gi"), secs(60)).await;
    assert!(world.looks() - looks >= 59, "{}", world.looks() - looks);
    tokio::time::sleep(10 * MINUTE).await;
    let looks = world.looks();
    tokio::time::sleep(MINUTE).await;
    assert!(world.looks() - looks <= 31, "{}", world.looks() - looks);
}

#[tokio::test(start_paused = true)]
async fn with_nothing_to_watch_nothing_is_measured() {
    let mut idle = policy(json!({}));
    idle.local_storage_limits = false;
    let world = World::new(idle, memory_pods());
    world.is(left("0"), 10 * MINUTE).await;
    assert_eq!(world.looks(), 0);
    world.policy.send_replace(Arc::new(hard()));
    tokio::time::sleep(secs(20)).await;
    assert!(!world.killed().is_empty(), "until there is");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_is_left_alone_and_looked_after_again_when_it_stays() {
    let world = World::new(hard(), memory_pods());
    world.is(left("8Gi"), secs(2)).await;
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Shutdown]));
    world.is(left("0"), MINUTE).await;
    assert_eq!(world.killed(), []);
    let looks = world.looks();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.looks(), looks, "not even measured");
    world.paused_by.send_replace(GateReasons::NONE);
    tokio::time::sleep(secs(2)).await;
    assert!(!world.killed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_says_what_it_is_short_of_and_ends_no_pod_for_it() {
    let mut policy = hard();
    policy.transition_period = 2 * MINUTE;
    let world = World::new(policy, memory_pods());
    world.is(left("8Gi"), secs(2)).await;
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Drain]));
    world.is(left("0"), MINUTE).await;
    assert!(world.has(PressureCondition::Memory));
    world.is(left("8Gi"), MINUTE).await;
    world.paused_by.send_replace(GateReasons::NONE);
    tokio::time::sleep(secs(30)).await;
    assert!(world.has(PressureCondition::Memory), "its time is not over");
    tokio::time::sleep(MINUTE).await;
    assert!(!world.has(PressureCondition::Memory));
    assert_eq!(world.killed(), []);
}

#[tokio::test(start_paused = true)]
async fn a_condition_keeps_its_time_over_a_notice_that_is_withdrawn() {
    let mut policy = hard();
    policy.transition_period = 2 * MINUTE;
    let world = World::new(policy, memory_pods());
    world.is(left("500Mi"), secs(5)).await;
    assert!(world.has(PressureCondition::Memory));
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Notice]));
    world.is(left("12Gi"), secs(20)).await;
    world.paused_by.send_replace(GateReasons::NONE);
    tokio::time::sleep(secs(30)).await;
    assert!(world.has(PressureCondition::Memory), "its time is not over");
    tokio::time::sleep(2 * MINUTE).await;
    assert!(!world.has(PressureCondition::Memory));
}

#[tokio::test(start_paused = true)]
async fn what_passes_unmeasured_while_a_node_goes_down_is_no_part_of_a_soft_thresholds_grace() {
    let soft = json!({"evictionSoft": {"memory.available": "1Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1m"}});
    let world = World::new(policy(soft), memory_pods());
    world.is(left("500Mi"), secs(30)).await;
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Shutdown]));
    tokio::time::sleep(5 * MINUTE).await;
    world.paused_by.send_replace(GateReasons::NONE);
    tokio::time::sleep(secs(45)).await;
    assert_eq!(world.killed(), []);
    tokio::time::sleep(secs(30)).await;
    assert!(!world.killed().is_empty());
}

/// Its agent was restarted meanwhile.
#[tokio::test(start_paused = true)]
async fn what_an_earlier_agent_evicted_is_awaited_and_comes_back_once_no_resource_is_short() {
    let world = World::new(hard(), memory_pods());
    let (pod, grace_left) = (static_pod("web", "web"), Some(secs(1)));
    world.node.state().earlier_evictions = vec![EarlierEviction { pod, grace_left }];
    world.is(left("500Mi"), secs(5)).await;
    assert_eq!(world.killed(), [], "what it was evicted for is not known");
    world.is(left("500Mi"), MINUTE).await;
    assert!(!world.killed().is_empty() && brought_back(&world).is_empty());
    world.is(left("12Gi"), 10 * MINUTE).await;
    assert_eq!(brought_back(&world), ["web"]);
}

/// Its manifest was read a few seconds after the pods that run were known, and it stayed out for good.
#[tokio::test(start_paused = true)]
async fn what_an_earlier_agent_evicted_is_taken_over_when_a_slow_source_lists_it() {
    let world = World::new(hard(), memory_pods());
    world.node.state().may_be_more = true;
    world.is(left("8Gi"), secs(30)).await;
    let (pod, grace_left) = (static_pod("web", "web"), Some(secs(1)));
    world.node.state().earlier_evictions = vec![EarlierEviction { pod, grace_left }];
    world.node.state().may_be_more = false;
    world.is(left("8Gi"), secs(3)).await;
    world.is(left("500Mi"), secs(3)).await;
    assert_eq!(world.killed(), [], "it is terminating");
    world.is(left("8Gi"), 10 * MINUTE).await;
    assert_eq!(brought_back(&world), ["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_threshold_that_was_lowered_during_a_drain_ends_no_pod_after_it() {
    let world = World::new(hard(), memory_pods());
    world.is(left("8Gi"), secs(2)).await;
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Drain]));
    world.is(left("500Mi"), secs(2)).await;
    let lower = policy(json!({"evictionHard": {"memory.available": "100Mi"}}));
    world.policy.send_replace(Arc::new(lower));
    world.paused_by.send_replace(GateReasons::NONE);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.killed(), []);
}

#[tokio::test(start_paused = true)]
async fn the_loop_ends_with_the_agent() {
    let world = World::new(hard(), memory_pods());
    world.is(left("8Gi"), secs(2)).await;
    drop(world.paused_by);
    world.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_decides_and_records_and_touches_nothing() {
    let mut shadow = hard();
    shadow.shadow = true;
    let world = World::new(shadow, memory_pods());
    world.is(left("500Mi"), MINUTE).await;
    assert_eq!(world.killed(), []);
    assert!(!world.has(PressureCondition::Memory), "no condition, so nobody is kept out");
    let history = world.view.history();
    assert_eq!(history.len(), 1);
    assert_eq!((&history[0].outcome, history[0].times), (&DecisionOutcome::Shadow, 6));
    assert_eq!(history[0].victim, Some(format!("default/{LOWEST}")));
    let all = world.recorder.events().len();
    assert_eq!(world.count(|event| matches!(event, Event::EvictionShadowed { .. })), all);
}

#[tokio::test(start_paused = true)]
async fn a_concurrent_choice_of_victims_is_awaited() {
    let world = World::new(hard(), memory_pods());
    world.node.state().stats = left("500Mi");
    let killer = world.killer.clone();
    let lock = world.victims.clone();
    // The other controller kills the pod that would be chosen.
    lock.choose(|| {
        use winddown_shared::{KillReason, KillRequest, PodKiller};
        let mut request = KillRequest::new(KillReason::Preemption);
        request.grace = Some(secs(1));
        killer.takes(memory_pods()[4].0.uid(), secs(1));
        killer.begin_kill(memory_pods()[4].0.clone(), request);
    });
    tokio::time::sleep(secs(3)).await;
    let second = world.killed()[1].0.clone();
    assert_eq!(second, LOWEST, "it is hurried: it ends anyway");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_measured_ends_no_pod_and_is_tried_again() {
    let world = World::new(hard(), memory_pods());
    world.node.state().fails = true;
    world.is(left("500Mi"), MINUTE).await;
    assert_eq!(world.killed(), []);
    world.node.state().fails = false;
    world.node.state().hangs = true;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.killed(), []);
    world.node.state().hangs = false;
    tokio::time::sleep(secs(4)).await;
    assert!(!world.killed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn new_thresholds_end_no_pod_for_ten_seconds() {
    let world = World::new(hard(), memory_pods());
    world.is(left("4Gi"), secs(5)).await;
    let slip = policy(json!({"evictionHard": {"memory.available": "9Gi"}}));
    world.policy.send_replace(Arc::new(slip));
    tokio::time::sleep(secs(9)).await;
    assert_eq!(world.killed(), []);
    world.policy.send_replace(Arc::new(hard()));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.killed(), [], "it was taken back in time");
}

/// A node with one static pod, which is treated like any other pod.
fn with_a_manifest() -> World {
    let mut by_priority = hard();
    assert_eq!(by_priority.static_pods, StaticPods::ByPriority, "the default");
    by_priority.transition_period = secs(60);
    let web = changed("web", 0, &[], |object| {
        object.metadata.annotations = static_pod("u", "u").metadata.annotations.clone();
    });
    World::new(by_priority, vec![(web, memory("1Gi"))])
}

fn brought_back(world: &World) -> Vec<String> {
    let back = &world.node.state().brought_back;
    back.iter().map(|pod| pod.name().to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_evicted_static_pod_comes_back_when_the_pressure_is_over() {
    let world = with_a_manifest();
    world.helps("web", left("8Gi"));
    world.is(left("500Mi"), secs(50)).await;
    assert_eq!(world.killed().len(), 1);
    assert!(brought_back(&world).is_empty(), "the condition holds still");
    assert_eq!(
        world.view.pending_readmission()[0].readmission_in_seconds,
        0.0,
        "its own time is over"
    );
    tokio::time::sleep(secs(20)).await;
    assert_eq!(brought_back(&world), ["web"]);
    assert_eq!(world.view.pending_readmission(), []);
}

#[tokio::test(start_paused = true)]
async fn a_condition_ends_and_an_evicted_static_pod_comes_back_when_all_thresholds_are_removed() {
    let world = with_a_manifest();
    world.helps("web", left("8Gi"));
    world.is(left("500Mi"), secs(5)).await;
    assert!(world.has(PressureCondition::Memory));
    let mut idle = policy(json!({}));
    (idle.local_storage_limits, idle.transition_period) = (false, secs(60));
    world.policy.send_replace(Arc::new(idle));
    tokio::time::sleep(secs(90)).await;
    assert!(!world.has(PressureCondition::Memory));
    assert_eq!(brought_back(&world), ["web"]);
    let looks = world.looks();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.looks(), looks, "nothing is left to measure for");
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_takes_longer_to_end_than_it_may_comes_back_all_the_same() {
    let world = with_a_manifest();
    world.killer.hangs(&PodUid::new("web"), secs(20));
    world.is(left("500Mi"), secs(12)).await;
    assert_eq!(world.count(|event| matches!(event, Event::EvictionFailed { .. })), 1);
    world.is(left("8Gi"), secs(90)).await;
    assert_eq!(brought_back(&world), ["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_came_back_after_it_was_overdue_can_be_evicted_again() {
    let (due, evicted_for) = (Instant::now(), PressureCondition::Memory.into());
    let overdue = CandidateEnding { due, has_minimal_grace: true, evicted_for };
    let world = World::with(hard(), vec![(pod("web", 0, &[]), memory("1Gi"))], |controller| {
        controller.victims.terminating.endings.insert(PodUid::new("web"), overdue);
    });
    world.is(left("500Mi"), secs(2)).await;
    assert_eq!(names(&world), ["web"]);
}

/// It was asked in vain first, and again every minute, each time with a decision and an event.
#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_would_refuse_to_stop_is_never_asked() {
    let pods = vec![(pod("hog", 0, &[]), memory("4Gi")), (pod("web", 0, &[]), memory("1Gi"))];
    let world = World::new(hard(), pods);
    world.killer.refuses(&PodUid::new("hog"));
    world.is(left("500Mi"), 2 * MINUTE).await;
    assert_eq!(names(&world), ["web"]);
    assert_eq!(world.count(|event| matches!(event, Event::EvictionFailed { .. })), 0);
    let outcomes: Vec<_> = world.view.history().into_iter().map(|one| one.outcome).collect();
    assert!(
        !outcomes.iter().any(|one| matches!(one, DecisionOutcome::Failed { .. })),
        "{outcomes:?}"
    );
}

/// The command printed no ranking and no reason, as if no pod would be evicted.
#[tokio::test(start_paused = true)]
async fn asked_for_a_signal_without_a_threshold_or_a_figure_the_plan_says_that_there_is_none() {
    let hard = json!({"evictionHard": {"memory.available": "1Gi", "pid.available": "10%"}});
    let world = World::new(policy(hard), memory_pods());
    world.is(left("8Gi"), secs(2)).await;
    let asked = async |signal| {
        let told = world.view.explain(&world.killer, &*world.node, Some(signal)).await;
        told.map(|told| told.signal)
    };
    assert_eq!(asked(Signal::MemoryAvailable).await, Ok(Some(Signal::MemoryAvailable)));
    let none = ExplainError::NotMeasured(Signal::PidAvailable);
    assert_eq!(asked(Signal::PidAvailable).await, Err(none));
    let none = ExplainError::NoThreshold(Signal::NodeFsAvailable);
    assert_eq!(asked(Signal::NodeFsAvailable).await, Err(none));
    assert_eq!(
        none.to_string(),
        "signal: no pod is evicted for nodefs.available: set a threshold for it in evictionHard or evictionSoft"
    );
}

/// It named the next pod as the one to be evicted first while the loop waited, and pods that the loop passes over.
#[tokio::test(start_paused = true)]
async fn who_would_be_ended_is_chosen_among_the_same_pods_as_by_the_loop() {
    let pods = || vec![(pod("hog", 0, &[]), memory("4Gi")), (pod("web", 0, &[]), memory("1Gi"))];
    let told = async |world: &World| {
        let told = world.view.explain(&world.killer, &*world.node, None).await.unwrap();
        let verdicts = told.pods.into_iter().map(|pod| (pod.name, pod.verdict));
        (told.waits, verdicts.collect::<Vec<_>>())
    };
    let named = |verdicts: &[(&str, &str)]| {
        let named = |(name, verdict): &(&str, &str)| (name.to_string(), verdict.to_string());
        verdicts.iter().map(named).collect::<Vec<_>>()
    };
    let world = World::new(hard(), pods());
    world.killer.hangs(&PodUid::new("hog"), secs(3));
    world.is(left("500Mi"), secs(1)).await;
    let waits = (true, named(&[("hog", "ending"), ("web", "notNeeded")]));
    assert_eq!(told(&world).await, waits);
    assert_eq!(world.killed().len(), 1);
    world.is(left("8Gi"), secs(10)).await;
    assert_eq!(told(&world).await, (false, named(&[("web", "chosen")])));

    let world = World::new(hard(), pods());
    world.killer.refuses(&PodUid::new("hog"));
    world.killer.hangs(&PodUid::new("web"), secs(600));
    world.is(left("500Mi"), secs(3)).await;
    world.is(left("8Gi"), secs(30)).await;
    assert_eq!(told(&world).await, (false, named(&[("hog", "refused"), ("web", "stuck")])));
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_was_ending_when_a_drain_began_comes_back_when_it_is_called_off() {
    let world = with_a_manifest();
    world.killer.hangs(&PodUid::new("web"), secs(3));
    world.is(left("500Mi"), secs(1)).await;
    comes_back_after_a_drain(&world).await;
}

/// Checks that the pod of the manifest, which was evicted, comes back once a drain was called off.
async fn comes_back_after_a_drain(world: &World) {
    assert_eq!(world.killed().len(), 1);
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Drain]));
    world.is(left("8Gi"), secs(20)).await;
    world.paused_by.send_replace(GateReasons::NONE);
    tokio::time::sleep(secs(90)).await;
    assert_eq!(brought_back(world), ["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_is_under_way_when_a_drain_begins_is_not_shown_as_such_for_good() {
    let world = with_a_manifest();
    world.killer.hangs(&PodUid::new("web"), secs(3));
    world.is(left("500Mi"), secs(1)).await;
    assert_eq!(world.view.history()[0].outcome, DecisionOutcome::Evicting);
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Drain]));
    tokio::time::sleep(secs(20)).await;
    assert_eq!(world.view.history()[0].outcome, DecisionOutcome::Evicted { took_ms: 3000 });
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_whose_hook_a_shutdown_cuts_short_is_not_shown_as_evicted() {
    let world = with_a_manifest();
    world.is(left("8Gi"), secs(2)).await;
    let rule = HookRule { timeout: secs(10), ..HookRule::default() };
    world.policy.send_modify(|policy| Arc::make_mut(policy).hook = Some(Arc::new(rule)));
    world.is(left("500Mi"), secs(3)).await;
    assert_eq!((world.node.state().hooks.len(), world.view.pending_readmission().len()), (1, 1));
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Shutdown]));
    tokio::time::sleep(MINUTE).await;
    assert_eq!((world.killed(), world.view.pending_readmission()), (vec![], vec![]));
    let outcome = &world.view.history()[0].outcome;
    assert!(matches!(outcome, DecisionOutcome::Failed { .. }), "{outcome:?}");
}

/// It was forgotten with the request that the drain cut short, though another one had ended it.
#[tokio::test(start_paused = true)]
async fn a_static_pod_that_was_hurried_while_its_hook_ran_comes_back_when_a_drain_is_called_off() {
    let world = with_a_manifest();
    world.is(left("8Gi"), secs(2)).await;
    let mut soft = policy(json!({"evictionHard": {"memory.available": "1Gi"},
        "evictionSoft": {"memory.available": "2Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1s"}}));
    soft.transition_period = secs(60);
    soft.hook = Some(Arc::new(HookRule { timeout: secs(60), ..HookRule::default() }));
    world.policy.send_replace(Arc::new(soft));
    world.is(left("1500Mi"), secs(15)).await;
    assert_eq!((world.node.state().hooks.len(), world.killed().len()), (1, 0));
    world.is(left("500Mi"), Duration::from_millis(300)).await;
    comes_back_after_a_drain(&world).await;
}

#[tokio::test(start_paused = true)]
async fn events_come_in_the_kubelets_order_and_say_what_was_decided() {
    let world = World::new(hard(), memory_pods());
    world.killer.takes(memory_pods()[4].0.uid(), Duration::from_millis(400));
    world.helps(LOWEST, left("8Gi"));
    world.is(left("500Mi"), secs(2)).await;
    let told: Vec<String> = world
        .recorder
        .events()
        .iter()
        .map(|event| match event {
            Event::NodePressure { condition, on, reason } => format!("{condition} {on} {reason}"),
            Event::EvictionThresholdMet { signal, resource, stats_age, short_for } => {
                format!("met {signal} {resource} {stats_age:?} {short_for:?}")
            }
            Event::EvictionStarted { pod, signal, grace, annotations, .. } => {
                format!("evicts {} {signal} {grace:?} {annotations:?}", pod.name)
            }
            Event::PodEvicted { pod, signal, took } => format!("{} {signal} {took:?}", pod.name),
            other => format!("{other:?}"),
        })
        .collect();
    let annotations = "[(\"offending_containers\", \"\"), (\"offending_containers_usage\", \"\"), \
                       (\"starved_resource\", \"memory\")]";
    let expected = [
        "MemoryPressure true NodeHasInsufficientMemory".to_owned(),
        "met memory.available memory Some(0ns) 0ns".to_owned(),
        format!("evicts {LOWEST} memory.available 1s {annotations}"),
        format!("{LOWEST} memory.available 400ms"),
    ];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn the_history_says_which_threshold_which_order_which_numbers_and_who_was_passed_over() {
    let mut pods = memory_pods();
    pods.push((static_pod("etcd", "etcd"), memory("4Gi")));
    let world = World::new(hard(), pods);
    world.helps(LOWEST, left("8Gi"));
    world.is(left("500Mi"), secs(2)).await;
    let json = serde_json::to_value(world.view.history()).unwrap();
    let record = &json[0];
    assert_eq!(record["signal"], "memory.available");
    assert_eq!((&record["threshold"], &record["available"]), (&json!("1Gi"), &json!("500Mi")));
    assert_eq!(record["outcome"], json!("terminated in 0 ms"));
    assert_eq!(record["metForMs"], 0);
    let ranking: Vec<(&str, &str)> = record["ranking"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| (pod["name"].as_str().unwrap(), pod["verdict"].as_str().unwrap()))
        .collect();
    assert_eq!(ranking[0], (LOWEST, "chosen"));
    assert_eq!(ranking[1], ("etcd", "critical"));
    assert_eq!(ranking[2], ("burstable-above-requests", "notNeeded"));
    assert_eq!(record["ranking"][0]["usage"], bytes("100Mi"));
}

#[tokio::test(start_paused = true)]
async fn who_would_be_ended_can_be_asked_and_nothing_is_touched() {
    let world = World::new(hard(), memory_pods());
    world.is(left("8Gi"), secs(2)).await;
    let explain = |signal| world.view.explain(&world.killer, &*world.node, signal);
    let told = explain(None).await.unwrap();
    assert_eq!(told.signal, Some(Signal::MemoryAvailable));
    assert_eq!(told.pods[0].name, LOWEST);
    let status = world.view.status();
    assert_eq!(status.thresholds[0].available.as_deref(), Some("8Gi"));
    assert_eq!(status.thresholds[0].met_for_seconds, None);
    assert_eq!(world.node.state().measured, [(5, WantedFigures::Kernel)]);
    assert_eq!(world.killed(), []);
}
