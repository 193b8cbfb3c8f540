//! Shutdowns that are called off, repeated or overtaken.

use std::sync::{Arc, Mutex, mpsc};

use tokio::time::Instant;
use winddown_shared::testing::{FakeInhibitor, FakeKiller};
use winddown_shared::{
    Event, GateReason, GateReasons, KillReason, LockState, PodKiller, ShutdownKind, ShutdownRequest,
};

use super::{Login, Memory, Node, Setup, asked, secs, settle};
use crate::FileError;
use crate::tests::pod;
use crate::{CRITICAL_PRIORITY, Outcome, PodEnd, ProgressPhase, ReportSink, ShutdownReport};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);

#[tokio::test(start_paused = true)]
async fn a_cancelled_shutdown_is_reported_and_its_asked_pods_end_anyway() {
    let pods = [pod("app", None, None), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(5));
    node.prepare();
    node.until(secs(2)).await;
    node.login.fake.cancel();
    node.reach(ProgressPhase::Cancelled).await;
    settle().await;

    let report = &node.reports()[0];
    assert_eq!((report.outcome, report.took), (Outcome::Cancelled, secs(2)));
    assert_eq!((report.count(PodEnd::Terminating), report.count(PodEnd::Spared)), (1, 1));
    let events = node.recorder.events();
    assert!(events.contains(&Event::ShutdownCancelled { spared_groups: 1 }));
    assert!(!events.iter().any(|event| matches!(event, Event::ShutdownFinished { .. })));
    node.until(secs(6)).await;
    assert_eq!(node.killer.running().pods.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_report_of_a_run_that_was_called_off_is_kept_when_the_disk_has_room_again() {
    let pods = [pod("app", None, Some(20))];
    let mut node = Setup { fail_reports: 3, ..Setup::with(pods.clone()) }.start();
    node.killer.takes(pods[0].uid(), secs(10));
    node.prepare();
    node.until(secs(2)).await;
    node.login.fake.cancel();
    node.until(secs(20)).await;
    let attempts = node.reports.kept.lock().unwrap();
    assert_eq!(attempts.len(), 4, "three that failed, and none after the one that did not");
    assert!(attempts.iter().all(|(report, _)| report.outcome == Outcome::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_second_shutdown_after_a_cancelled_one_is_a_new_run_with_a_fresh_look_and_full_time() {
    let pods = [pod("app", None, None), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(5));
    node.prepare();
    node.until(secs(2)).await;
    node.login.fake.cancel();
    node.until(secs(60)).await;
    assert!(node.gate.check().is_ok());

    node.prepare();
    assert!(node.released().await < secs(1));
    assert_eq!(node.asked()[1..], asked(&[("critical", 0.0, 10)]));
    assert_eq!((node.reports().len(), node.releases()), (2, 1));
    assert!(node.gate.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_and_a_new_shutdown_seen_as_one_change_are_a_new_run() {
    let pods = [pod("app", None, None), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(5));
    node.prepare();
    node.until(secs(2)).await;
    // No task runs between the two.
    node.login.fake.cancel();
    node.prepare();
    assert_eq!(node.released().await, secs(5));
    assert!(node.gate.check().is_err());
    let outcomes: Vec<_> = node.reports().iter().map(|report| report.outcome).collect();
    assert_eq!(outcomes, [Outcome::Cancelled, Outcome::Clean]);
    assert_eq!(node.releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn cancelling_after_the_end_opens_the_gate_and_the_next_shutdown_works() {
    let mut node = Setup::with([pod("app", None, None)]).start();
    node.prepare();
    node.released().await;
    assert!(node.gate.check().is_err());
    node.login.fake.cancel();
    settle().await;
    assert!(node.gate.check().is_ok());
    assert!(node.recorder.events().contains(&Event::ShutdownCancelled { spared_groups: 0 }));

    node.prepare();
    node.released().await;
    let outcomes: Vec<_> = node.reports().iter().map(|report| report.outcome).collect();
    assert_eq!(outcomes, [Outcome::Clean; 3]);
    let stayed_up: Vec<_> = node.reports().iter().map(|report| report.node_stayed_up).collect();
    assert_eq!(stayed_up, [false, true, false]);
    assert_eq!(node.releases(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_the_moment_it_is_called_off_is_reported_as_ended_and_told_as_called_off() {
    let pods = [pod("app", None, None)];
    let mut node = Setup::with(pods.clone()).start();
    // The last resource that the run waits for.
    node.killer.stays_mounted(pods[0].uid(), ["/mnt/app"], Some(secs(5)));
    node.prepare();
    node.until(secs(5)).await;
    node.login.fake.cancel();
    node.reach(ProgressPhase::Cancelled).await;
    settle().await;

    let reports = node.reports();
    let told: Vec<_> = reports.iter().map(|one| (one.outcome, one.node_stayed_up)).collect();
    let expected = [(Outcome::Clean, false), (Outcome::Clean, true)];
    assert_eq!(told, expected, "the node did not go down with it");
    assert_eq!(
        reports[1].headline(),
        "Clean shutdown: 1 pod exited by itself in 5 s (budget 30 s). It was cancelled afterwards: the node stayed up."
    );
    assert!(node.gate.check().is_ok());
    let told: Vec<_> = node.recorder.events().into_iter().filter(is_an_end).collect();
    assert!(
        matches!(
            told[..],
            [
                Event::ShutdownFinished { left: 0, released: false, .. },
                Event::ShutdownCancelled { spared_groups: 0 }
            ]
        ),
        "{told:?}"
    );
}

fn is_an_end(event: &Event) -> bool {
    matches!(event, Event::ShutdownFinished { .. } | Event::ShutdownCancelled { .. })
}

#[tokio::test(start_paused = true)]
async fn without_a_lock_the_pods_are_ended_all_the_same() {
    let mut node = Setup::with([pod("app", None, None)]).start();
    node.login.fake.modify(|state| {
        state.lock = LockState::Waiting { why: "the operation is already running".into() };
        state.delay = None;
    });
    node.prepare();
    node.released().await;
    assert_eq!(node.asked(), asked(&[("app", 0.0, 20)]));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_stopped_in_the_middle_keeps_the_gate_shut_and_says_so() {
    let pods = [pod("app", None, None), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(5));
    node.prepare();
    node.until(secs(2)).await;
    node.stop.cancel();
    (&mut node.task).await.unwrap();
    assert_eq!(node.reports()[0].outcome, Outcome::Interrupted);
    assert_eq!((node.releases(), node.gate.is_shut()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_stopped_in_peace_ends_at_once() {
    let mut node = Setup::with([pod("app", None, None)]).start();
    node.stop.cancel();
    (&mut node.task).await.unwrap();
    assert!(node.killer.calls().is_empty() && node.reports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_leaves_a_drained_node_drained() {
    let mut node = Setup::with([pod("app", None, None)]).start();
    node.gate.shut(GateReason::Drain);
    node.prepare();
    node.released().await;
    let both = GateReasons::from_iter([GateReason::Drain, GateReason::Shutdown]);
    assert_eq!(node.gate.reasons(), both);
    node.login.fake.cancel();
    node.reach(ProgressPhase::Cancelled).await;
    settle().await;
    assert_eq!(node.gate.reasons(), GateReasons::from_iter([GateReason::Drain]));
    // And in the middle of a run.
    let slow = pod("slow", None, None);
    node.killer.takes(slow.uid(), secs(5));
    node.killer.add(slow);
    node.prepare();
    node.until(secs(2)).await;
    node.login.fake.cancel();
    node.until(secs(30)).await;
    assert_eq!(node.gate.reasons(), GateReasons::from_iter([GateReason::Drain]));
    node.gate.lift(GateReason::Drain);
    assert!(node.gate.check().is_ok());
}

/// A disk on which writing the report of a run that was called off hangs until it is released.
struct Hangs {
    disk: Arc<Memory>,
    let_go: Mutex<mpsc::Receiver<()>>,
}

impl ReportSink for Hangs {
    fn keep(&self, report: &ShutdownReport) -> Result<(), FileError> {
        if report.outcome == Outcome::Cancelled || report.node_stayed_up {
            let _ = self.let_go.lock().unwrap().recv();
        }
        self.disk.keep(report)
    }
}

/// A node with such a disk. The write continues when the sender is dropped.
fn on_a_hung_disk(setup: Setup) -> (Node, mpsc::Sender<()>) {
    let (sender, let_go) = mpsc::channel();
    let killer = FakeKiller::with(setup.pods.clone());
    let login = Login { fake: FakeInhibitor::holding(setup.delay), releases: Arc::default() };
    let disk = Arc::new(Memory::default());
    let sink = Hangs { disk: Arc::clone(&disk), let_go: Mutex::new(let_go) };
    (setup.launch(killer.clone(), killer, login, disk, Arc::new(sink)), sender)
}

/// Runs all tasks that are ready: a paused clock does not advance while a thread hangs.
async fn at_once() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_let_in_when_a_shutdown_is_called_off_however_long_its_report_takes() {
    for ended in [true, false] {
        let pods = [pod("app", None, None)];
        let (mut node, let_go) = on_a_hung_disk(Setup::with(pods.clone()));
        node.killer.takes(pods[0].uid(), secs(5));
        node.prepare();
        match ended {
            true => drop(node.released().await),
            false => node.until(secs(2)).await,
        }
        node.login.fake.cancel();
        at_once().await;
        assert!(node.gate.check().is_ok(), "ended: {ended}");
        let phase = node.progress.subscribe().borrow().phase;
        assert_ne!(phase, ProgressPhase::Ended, "its pods have not terminated");
        let ready = node.killer.lame_duck_calls().last().map(|&(_, on, _)| !on);
        assert_eq!(ready, Some(true), "ended: {ended}");
        let is_told =
            |one: &ShutdownReport| one.outcome == Outcome::Cancelled || one.node_stayed_up;
        assert!(!node.reports().iter().any(is_told));

        // Another one begins while the disk still hangs.
        node.login.fake.prepare();
        at_once().await;
        assert!(node.gate.check().is_err(), "ended: {ended}");
        node.login.fake.cancel();
        drop(let_go);
        node.reach(ProgressPhase::Cancelled).await;
        settle().await;
        assert!(node.gate.check().is_ok(), "ended: {ended}");
        assert!(node.reports().last().is_some_and(is_told));
        let told = node.recorder.events().into_iter();
        let called_off = told.filter(|event| matches!(event, Event::ShutdownCancelled { .. }));
        assert_eq!(called_off.count(), 1, "ended: {ended}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_told_how_and_until_when_the_node_ends_and_of_news_and_that_it_was_called_off() {
    let mut node = Setup::with([pod("app", None, Some(60))]).start();
    node.killer.takes(pod("app", None, None).uid(), secs(60));
    settle().await;
    assert_eq!(node.killer.announced(), [], "nothing is known of an end");
    let begun = Instant::now();
    node.prepare();
    settle().await;
    let told = node.killer.announced();
    let (reason, first) = &told[0];
    assert_eq!((*reason, first.reason), (GateReason::Shutdown, KillReason::Shutdown));
    assert_eq!(first.node_action, Some(ShutdownKind::Unknown));
    assert_eq!(first.deadline - begun, secs(30));
    let message = Some("kernel update".into());
    let request = ShutdownRequest { message, ..ShutdownRequest::default() };
    node.login.fake.modify(|state| {
        state.kind = ShutdownKind::Reboot;
        state.request = Some(Arc::new(request));
    });
    settle().await;
    let (_, news) = node.killer.announced().pop().unwrap();
    assert_eq!((news.node_action, news.deadline), (Some(ShutdownKind::Reboot), first.deadline));
    assert_eq!(news.requested_by.unwrap().message.as_deref(), Some("kernel update"));
    node.login.fake.cancel();
    node.reach(ProgressPhase::Cancelled).await;
    let lifted = node.killer.lame_duck_calls().pop().unwrap();
    assert_eq!((lifted.0, lifted.1), (GateReason::Shutdown, false));
}
