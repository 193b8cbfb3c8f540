use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use winddown_shared::testing::{FakeKiller, FakeRecorder};
use winddown_shared::{BootClock, KillReason, Pod, WallClock};

use super::{DrainOrder, drain};
use crate::tests::{pod, secs};
use crate::{
    CRITICAL_PRIORITY, Outcome, PodEnd, Policy, ProgressPhase, ProgressSender, ROLE_LABEL, Trigger,
};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);

fn order(policy: Policy, time: Option<u64>) -> DrainOrder {
    DrainOrder {
        policy: Arc::new(policy),
        time: time.map(secs),
        requested_by: None,
        recorder: Arc::new(FakeRecorder::default()),
        progress: ProgressSender::new(),
        clock: WallClock::fixed("2026-11-20T03:44:00Z".parse().unwrap()),
        boot_clock: BootClock::new(Duration::default),
        boot_id: "boot".into(),
        records: Vec::new(),
        carried: None,
    }
}

fn two_fields() -> Policy {
    Policy::from_periods(secs(30), secs(10)).unwrap()
}

fn stubborn() -> Arc<FakeKiller> {
    let pods = [pod("app", None, Some(300)), pod("critical", CRITICAL, Some(300))];
    let killer = FakeKiller::with(pods.clone());
    pods.iter().for_each(|pod| killer.takes(pod.uid(), secs(999)));
    Arc::new(killer)
}

/// The grace periods of the ordinary and the critical pod, both of which need SIGKILL.
async fn graces(order: DrainOrder) -> Vec<u64> {
    let killer = stubborn();
    let report = drain(&killer, order, &CancellationToken::new()).await;
    assert_eq!((report.trigger, report.outcome), (Trigger::Drain, Outcome::Forced));
    killer.calls().iter().map(|call| call.request.grace.unwrap().as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_drain_takes_the_policys_time_unless_told_otherwise() {
    assert_eq!(graces(order(two_fields(), None)).await, [20, 10]);
    assert_eq!(graces(order(two_fields(), Some(12))).await, [6, 6]);
}

#[tokio::test(start_paused = true)]
async fn more_time_than_the_policys_goes_to_the_pods_own_grace() {
    assert_eq!(graces(order(two_fields(), Some(310))).await, [300, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_shutdown_periods_can_be_drained() {
    assert_eq!(graces(order(Policy::disabled(), None)).await, [30, 30]);
    assert_eq!(graces(order(Policy::disabled(), Some(20))).await, [10, 10]);
    assert_eq!(graces(order(Policy::disabled(), Some(u64::MAX))).await, [300, 300]);
}

/// etcd and its API server were asked at once, on a node that is configured to terminate them one after the other.
#[tokio::test(start_paused = true)]
async fn a_node_without_shutdown_periods_is_drained_in_the_order_that_is_configured() {
    let labelled = |role: &str| {
        let mut object = (*pod(role, CRITICAL, Some(5))).clone();
        object.metadata.labels = Some([(ROLE_LABEL.to_owned(), role.to_owned())].into());
        // No tenant makes pods there.
        object.metadata.namespace = Some("kube-system".to_owned());
        Pod::new(object).unwrap()
    };
    for time in [None, Some(0), Some(1), Some(10)] {
        let pods = [labelled("etcd"), labelled("control-plane"), pod("app", None, Some(5))];
        let killer = FakeKiller::with(pods.clone());
        pods.iter().for_each(|pod| killer.takes(pod.uid(), Duration::from_millis(1)));
        let killer = Arc::new(killer);
        let off = Policy::by_role(Duration::ZERO, Duration::ZERO).unwrap();
        drain(&killer, order(off, time), &CancellationToken::new()).await;
        let calls = killer.calls();
        let has_time = time != Some(0);
        assert_eq!(
            calls.is_sorted_by(|a, b| a.at < b.at),
            has_time,
            "one after the other: {time:?}"
        );
        let asked = calls.iter().map(|call| call.pod.uid().to_string()).collect::<Vec<_>>();
        assert_eq!(asked, ["app", "control-plane", "etcd"], "{time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_pods_are_told_that_it_is_a_drain() {
    let killer = stubborn();
    let order = order(two_fields(), None);
    let progress = order.progress.subscribe();
    drain(&killer, order, &CancellationToken::new()).await;
    let request = killer.calls()[0].request.clone();
    assert_eq!(request.reason, KillReason::Drain);
    let status = request.status.unwrap();
    assert_eq!(&*status.reason, "Terminated");
    assert_eq!(&*status.message, "Pod was terminated because an operator drained the node.");
    assert_eq!(progress.borrow().phase, ProgressPhase::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_called_off_spares_the_rest() {
    let (killer, cancel) = (stubborn(), CancellationToken::new());
    let run = drain(&killer, order(two_fields(), None), &cancel);
    let (report, ()) = tokio::join!(run, async {
        tokio::time::sleep(secs(1)).await;
        cancel.cancel();
    });
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert_eq!((report.count(PodEnd::Terminating), report.count(PodEnd::Spared)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn pods_turn_not_ready_before_they_are_asked_and_again_when_the_drain_is_called_off() {
    let (killer, cancel) = (stubborn(), CancellationToken::new());
    let begun = tokio::time::Instant::now();
    let policy = two_fields().with_endpoint_drain(secs(3));
    let run = drain(&killer, order(policy, Some(60)), &cancel);
    let (report, ()) = tokio::join!(run, async {
        tokio::time::sleep(secs(5)).await;
        cancel.cancel();
    });
    assert_eq!(report.endpoint_drain, Some(secs(3)));
    assert_eq!(killer.calls()[0].at - begun, secs(3));
    let switched: Vec<_> =
        killer.lame_duck_calls().iter().map(|(_, on, at)| (*on, *at - begun)).collect();
    assert_eq!(switched, [(true, secs(0)), (false, secs(5))]);
}
