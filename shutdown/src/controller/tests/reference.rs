//! What the reference's own tests assert of the manager, under its names.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{Event, KillReason, StatusOverride};

use super::{Setup, asked, secs, settle, two_fields};
use crate::tests::{group_finished, group_started, period, pod};
use crate::{Budget, CRITICAL_PRIORITY, Outcome, Policy, ProgressPhase, StateFile, plan};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);

/// The grace of each pod, all of which stop at once.
async fn graces(setup: Setup) -> Vec<u64> {
    let mut node = setup.start();
    settle().await;
    assert!(node.login.fake.is_held() && node.gate.check().is_ok());
    node.prepare();
    node.released().await;
    assert!(node.gate.check().is_err());
    node.asked().into_iter().map(|(_, _, grace)| grace).collect()
}

// TestManager/verify pod status.
#[tokio::test(start_paused = true)]
async fn every_pod_gets_the_shutdown_reason_message_and_condition() {
    let pods = ["running", "failed", "succeeded"].map(|name| pod(name, None, None));
    let mut node = Setup::with(pods).start();
    node.prepare();
    node.released().await;
    let message = "Pod was terminated in response to imminent node shutdown.";
    let calls = node.killer.calls();
    assert_eq!(calls.len(), 3);
    for call in calls {
        assert_eq!(call.request.grace, Some(secs(20)));
        assert_eq!(call.request.reason, KillReason::Shutdown);
        assert!(!call.request.evict);
        assert_eq!(
            call.request.status,
            Some(StatusOverride::failed("Terminated", message, Some(message.into())))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_and_a_critical_pod_get_their_groups_time() {
    // The delay, both periods, the ordinary pod's own grace, and what the pods get.
    for (name, delay, (total, critical), own, wanted) in [
        ("no override (total=30s, critical=10s)", 40, (30, 10), None, [20, 10]),
        ("pod with long terminationGracePeriod is overridden", 40, (30, 10), Some(1000), [20, 10]),
        ("no override (total=30s, critical=0s)", 40, (30, 0), None, [30, 0]),
        // What the manager does with the delay once it is there, which includes the reserve here.
        ("override successful", 32, (30, 10), None, [20, 10]),
        ("no override, all time to critical pods", 20, (5, 5), None, [0, 5]),
    ] {
        let pods = [pod("normal", None, own), pod("critical", CRITICAL, None)];
        let setup = Setup::with(pods).policy(two_fields(total, critical)).delay(secs(delay));
        assert_eq!(graces(setup).await, wanted, "TestManager/{name}");
    }
}

// TestManager/override unsuccessful, zero time: the plan has no time; a run counts on the service manager's.
#[test]
fn a_plan_within_a_delay_of_zero_gives_pods_no_time() {
    let (policy, pods) =
        (two_fields(5, 5), [pod("normal", None, None), pod("critical", CRITICAL, None)]);
    let budget = Budget::new(&policy, Some(secs(0)));
    let plan = plan(&pods, &policy, Some(budget.pods));
    let pods = plan.groups.iter().flat_map(|group| &group.pods);
    assert_eq!(pods.map(|pod| pod.grace).collect::<Vec<_>>(), [secs(0), secs(0)]);
}

// TestManager/no override (total=30s, critical=10s) pods with terminationGracePeriod and without.
#[tokio::test(start_paused = true)]
async fn pods_with_a_shorter_grace_of_their_own_keep_it() {
    let pods = [
        pod("normal", None, None),
        pod("normal-2", None, Some(2)),
        pod("critical", CRITICAL, None),
        pod("critical-2", CRITICAL, Some(2)),
    ];
    assert_eq!(graces(Setup::with(pods)).await, [20, 2, 10, 2]);
}

// TestManager/override unsuccessful: the reference turns the feature off.
#[tokio::test(start_paused = true)]
async fn a_delay_that_stays_short_shrinks_the_plan() {
    let pods = [pod("normal", None, None), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).delay(secs(5)).start();
    pods.iter().for_each(|pod| node.killer.takes(pod.uid(), secs(99)));
    node.prepare();
    // 5 s less a tenth for the reserve, in whole seconds, in equal parts.
    assert_eq!(node.released().await.as_secs_f64(), 4.0);
    assert_eq!(node.asked(), asked(&[("normal", 0.0, 2), ("critical", 2.0, 2)]));
    let report = &node.reports()[0];
    assert!(report.budget.is_short());
    assert_eq!(report.budget.delay, Some(secs(5)));
}

// TestFeatureEnabled/shutdownGracePeriodRequested 0.
#[tokio::test(start_paused = true)]
async fn a_disabled_policy_ends_no_pod_shuts_no_gate_and_lets_the_node_go() {
    let mut node = Setup::with([pod("app", None, None)]).policy(Policy::disabled()).start();
    node.prepare();
    settle().await;
    assert!(node.killer.calls().is_empty());
    assert!(node.gate.check().is_ok());
    assert_eq!((node.releases(), node.login.fake.is_held()), (1, false));
}

// TestFeatureEnabled/enabled; and the policy may change while the agent runs.
#[tokio::test(start_paused = true)]
async fn the_policy_at_the_time_of_the_signal_counts() {
    let mut node = Setup::with([pod("app", None, None)]).policy(Policy::disabled()).start();
    settle().await;
    node.policy.send_replace(Arc::new(Policy::by_priority([period(0, 7)]).unwrap()));
    node.prepare();
    node.released().await;
    assert_eq!(node.asked(), asked(&[("app", 0.0, 7)]));
}

#[tokio::test(start_paused = true)]
async fn admission_is_shut_before_the_first_pod_is_asked_with_the_kubelets_words() {
    let pods = [pod("app", None, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(5));
    settle().await;
    node.prepare();
    node.reach(ProgressPhase::Ending).await;
    let rejection = node.gate.check().unwrap_err();
    assert_eq!(&*rejection.reason, "NodeShutdown");
    assert_eq!(&*rejection.message, "Pod was rejected as the node is shutting down.");
    assert!(rejection.retryable);
}

#[tokio::test(start_paused = true)]
async fn the_events_tell_the_story_in_order() {
    let pods = [pod("app", None, None), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(3));
    node.prepare();
    node.released().await;
    settle().await;
    assert_eq!(
        node.recorder.events(),
        [
            Event::ShutdownStarted { pods: 2, budget: secs(30) },
            group_started(0, 1, secs(20)),
            group_finished(0, secs(3), 0),
            group_started(CRITICAL_PRIORITY, 1, secs(27)),
            group_finished(CRITICAL_PRIORITY, secs(0), 0),
            Event::ShutdownFinished { took: secs(3), left: 0, unknown: false, released: true },
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn without_pods_the_node_is_let_go_at_once() {
    let mut node = Setup::with([]).start();
    node.prepare();
    assert_eq!(node.released().await, secs(0));
    assert_eq!(node.reports()[0].outcome, Outcome::Clean);
}

#[tokio::test(start_paused = true)]
async fn the_state_file_says_when_it_began_and_ended() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::in_directory(directory.path());
    let pods = [pod("app", None, None)];
    let setup = Setup { state_file: Some(file.clone()), ..Setup::with(pods.clone()) };
    let mut node = setup.start();
    node.killer.takes(pods[0].uid(), secs(3));
    node.prepare();
    node.until(secs(1)).await;
    let times = file.load().unwrap();
    assert!(times.start.is_some() && times.end.is_none());
    node.released().await;
    assert!(file.load().unwrap().end.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_began_before_the_agent_uses_the_time_that_is_left() {
    let pods = [pod("app", None, Some(30)), pod("critical", CRITICAL, Some(30))];
    let mut node = Setup::with(pods.clone()).start();
    pods.iter().for_each(|pod| node.killer.takes(pod.uid(), secs(99)));
    settle().await;
    node.start = Instant::now();
    tokio::time::advance(secs(18)).await;
    let begun = node.start;
    node.login.fake.modify(|state| {
        state.preparing = true;
        state.epoch += 1;
        state.since = Some(begun);
    });
    // 12 s are left, in equal shares.
    assert_eq!(node.released().await, secs(30));
    assert_eq!(node.asked(), asked(&[("app", 18.0, 6), ("critical", 24.0, 6)]));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_begins_a_moment_late_takes_the_second_from_who_asks_for_the_most() {
    for (late, app, critical) in [(0, 2, 9), (250, 2, 9), (251, 2, 8), (999, 2, 8), (1000, 2, 8)] {
        let pods = [pod("app", None, Some(2)), pod("critical", CRITICAL, Some(30))];
        let mut node = Setup::with(pods.clone()).policy(two_fields(11, 9)).start();
        pods.iter().for_each(|pod| node.killer.takes(pod.uid(), secs(99)));
        settle().await;
        node.start = Instant::now();
        tokio::time::advance(Duration::from_millis(late)).await;
        let begun = node.start;
        node.login.fake.modify(|state| (state.preparing, state.since) = (true, Some(begun)));
        node.released().await;
        let graces: Vec<u64> = node.asked().iter().map(|(_, _, grace)| *grace).collect();
        assert_eq!(graces, [app, critical], "{late} ms late");
    }
}
