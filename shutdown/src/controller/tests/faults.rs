//! A node with faults is still released, once and in time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::testing::{FakeInhibitor, FakeKiller};
use winddown_shared::{
    Event, KillError, KillRequest, LockState, NodeEndListener, Pod, PodKiller, PodStateProvider,
    PodStopped, RunningPods,
};

use super::{Login, Memory, Setup, asked, secs};
use crate::FileError;
use crate::tests::pod;
use crate::{BootClock, CRITICAL_PRIORITY, Outcome, PodEnd, ReportSink, ShutdownReport};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);

#[tokio::test(start_paused = true)]
async fn the_report_is_kept_before_the_lock_goes_and_the_lock_goes_once() {
    let mut node = Setup::with([pod("app", None, None)]).start();
    node.prepare();
    node.released().await;
    node.until(secs(120)).await;
    let kept = node.reports.kept.lock().unwrap().clone();
    let [(report, lock_was_held)] = kept.as_slice() else { panic!("{kept:?}") };
    assert!(lock_was_held);
    assert_eq!((report.outcome, report.boot_id.as_str()), (Outcome::Clean, "boot"));
    assert_eq!((node.releases(), node.login.fake.is_held()), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_does_not_keep_the_node() {
    let setup = Setup { fail_reports: u32::MAX, ..Setup::with([pod("app", None, None)]) };
    let mut node = setup.start();
    node.prepare();
    assert_eq!(node.released().await, secs(0));
    assert_eq!(node.releases(), 1);
}

/// A disk that does not answer until the test is over.
struct Hung(Mutex<mpsc::Receiver<()>>);

impl ReportSink for Hung {
    fn keep(&self, _: &ShutdownReport) -> Result<(), FileError> {
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }
}

// On the real clock: tokio does not advance a paused one while a thread is blocked.
#[tokio::test]
async fn a_hung_disk_does_not_keep_the_node() {
    let (answer, hung) = mpsc::channel();
    let login = Login { fake: FakeInhibitor::holding(secs(30)), releases: Arc::default() };
    let setup = Setup::with([]);
    let setup = Setup { policy: setup.policy.with_reserve(Duration::from_millis(50)), ..setup };
    let sink = Arc::new(Hung(Mutex::new(hung)));
    let killer = FakeKiller::default();
    let reports = Arc::new(Memory::default());
    let mut node = setup.launch(killer.clone(), killer, login, reports, sink);
    node.prepare();
    let took = tokio::time::timeout(secs(20), node.released()).await.unwrap();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    drop(answer);
}

#[tokio::test(start_paused = true)]
async fn a_hung_runtime_delays_its_own_pod_only_and_the_report_names_it() {
    let pods = [pod("hung", None, None), pod("fine", None, None), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.hangs(pods[0].uid(), secs(3600));
    node.killer.takes(pods[1].uid(), secs(1));
    node.killer.takes(pods[2].uid(), secs(1));
    node.prepare();
    // The deadline plus half of the reserve, which is the time for SIGKILL to take effect.
    assert_eq!(node.released().await, secs(31));
    let report = &node.reports()[0];
    assert_eq!(report.outcome, Outcome::Incomplete);
    let left: Vec<_> = report
        .pods()
        .filter(|(_, pod)| pod.end == PodEnd::StillRunning)
        .map(|(_, pod)| pod.name.as_str())
        .collect();
    assert_eq!(left, ["hung"]);
    let exits: Vec<_> = report.pods().map(|(_, pod)| pod.exit).collect();
    assert_eq!(exits, [Some(secs(1)), None, Some(Duration::from_millis(21_100))]);
    assert_eq!(node.releases(), 1);
}

/// A killer that panics when the run lists the pods, a given number of times.
struct Broken {
    killer: FakeKiller,
    times: AtomicUsize,
    looks: Arc<AtomicUsize>,
}

impl Broken {
    fn new(killer: &FakeKiller, times: usize) -> Self {
        Self { killer: killer.clone(), times: AtomicUsize::new(times), looks: Arc::default() }
    }
}

impl PodKiller for Broken {
    async fn kill_pod(&self, pod: Pod, request: KillRequest) -> Result<Arc<PodStopped>, KillError> {
        self.killer.kill_pod(pod, request).await
    }

    fn running(&self) -> RunningPods {
        let broken =
            self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        assert!(broken.is_err(), "as told");
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.killer.running()
    }

    fn non_terminating_pods(&self) -> Vec<Pod> {
        self.killer.non_terminating_pods()
    }
}

impl PodStateProvider for Broken {}

impl NodeEndListener for Broken {}

#[tokio::test(start_paused = true)]
async fn after_a_panic_in_the_run_all_pods_are_asked_at_once_and_waited_for() {
    let pods = [pod("app", None, Some(20)), pod("critical", CRITICAL, Some(5))];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), secs(7));
    killer.takes(pods[1].uid(), secs(60));
    let mut node = Setup::with([]).start_with(Broken::new(&killer, 1), killer);
    node.prepare();
    assert_eq!(node.released().await, secs(7));
    assert_eq!(node.releases(), 1);
    let mut asked = node.asked();
    asked.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(asked, super::asked(&[("app", 0.0, 20), ("critical", 0.0, 5)]));
    let report = &node.reports()[0];
    assert_eq!(report.outcome, Outcome::Forced);
    let ends: Vec<_> = report.pods().map(|(_, pod)| (pod.name.as_str(), pod.end)).collect();
    assert_eq!(ends, [("app", PodEnd::Exited), ("critical", PodEnd::Killed)]);
    let times: Vec<_> = report.pods().map(|(_, pod)| (pod.asked, pod.exit)).collect();
    let (at_once, exit) = (Some(secs(0)), |seconds| Some(secs(seconds)));
    assert_eq!(times, [(at_once, exit(7)), (at_once, exit(5))]);
    let warning =
        "the run panicked, which is a bug; all pods were asked to terminate at once: as told";
    assert_eq!(report.warnings, [warning]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_end_after_a_panic_holds_the_node_until_the_time_is_over_and_is_named()
{
    let stuck = pod("stuck", None, Some(20));
    let killer = FakeKiller::with([stuck.clone()]);
    killer.hangs(stuck.uid(), secs(3600));
    let mut node = Setup::with([]).start_with(Broken::new(&killer, 1), killer);
    node.prepare();
    let took = node.released().await;
    assert!(took > secs(30) && took < secs(32), "{took:?}");
    let report = &node.reports()[0];
    assert_eq!((report.outcome, report.count(PodEnd::StillRunning)), (Outcome::Incomplete, 1));
}

#[tokio::test(start_paused = true)]
async fn a_time_that_is_shortened_after_a_panic_is_followed_without_a_look_at_the_clock() {
    let stuck = pod("stuck", None, Some(20));
    let killer = FakeKiller::with([stuck.clone()]);
    killer.hangs(stuck.uid(), secs(3600));
    let broken = Broken::new(&killer, 1);
    let looks = Arc::clone(&broken.looks);
    let mut node = Setup::with([]).start_with(broken, killer);
    node.prepare();
    tokio::time::sleep(secs(5)).await;
    let before = looks.load(Ordering::SeqCst);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(looks.load(Ordering::SeqCst), before);
    node.login.fake.modify(|state| state.delay = Some(secs(20)));
    let took = node.released().await;
    assert!(took > secs(18) && took < secs(20), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_even_ask_lets_nothing_go_and_fails_for_the_next_agent() {
    let killer = FakeKiller::with([pod("app", None, None)]);
    let mut node = Setup::with([]).start_with(Broken::new(&killer, usize::MAX), killer);
    node.prepare();
    let failed = (&mut node.task).await.unwrap_err();
    assert!(failed.is_panic());
    assert_eq!((node.releases(), node.reports().len()), (0, 0), "unknown is not empty");
    assert!(node.gate.is_shut());
}

/// Breaks outside of the run.
struct NoClock;

#[tokio::test(start_paused = true)]
async fn a_panic_beside_the_run_ends_the_pods_too_and_then_lets_the_node_go() {
    let app = pod("app", None, Some(20));
    let mut setup = Setup::with([app.clone()]);
    setup.boot_clock = BootClock::new(|| std::panic::panic_any(std::any::type_name::<NoClock>()));
    let mut node = setup.start();
    node.killer.takes(app.uid(), secs(5));
    node.prepare();
    let failed = (&mut node.task).await.unwrap_err();
    assert!(failed.is_panic());
    assert_eq!(node.start.elapsed(), secs(5));
    assert_eq!((node.asked().len(), node.releases()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn whatever_the_pods_do_the_node_is_let_go_within_the_login_managers_delay() {
    for delay in [1, 3, 5, 10, 28, 30, 31, 32, 40, 300] {
        let pods: Vec<Pod> = (0..20)
            .map(|i| pod(&format!("p{i}"), (i % 2 == 0).then_some(CRITICAL_PRIORITY), Some(60)))
            .collect();
        let mut node = Setup::with(pods.clone()).delay(secs(delay)).start();
        pods.iter().for_each(|pod| node.killer.hangs(pod.uid(), secs(3600)));
        node.prepare();
        let begun = Instant::now();
        node.released().await;
        assert!(begun.elapsed() <= secs(delay), "{delay}: {:?}", begun.elapsed());
        assert_eq!(node.asked().len(), 20);
        node.stop.cancel();
    }
}

/// The service manager stops the agent's unit then, and waits for it.
#[tokio::test(start_paused = true)]
async fn a_login_manager_that_does_not_wait_takes_neither_grace_nor_order_from_the_pods() {
    for (delay, has_lock) in [(0, true), (5, false)] {
        let pods = [pod("web", None, Some(20)), pod("dns", Some(CRITICAL_PRIORITY), Some(10))];
        let mut node = Setup::with(pods.clone()).delay(secs(delay)).start();
        node.killer.takes(pods[0].uid(), secs(15));
        node.login.fake.modify(|state| state.has_lock = has_lock);
        node.prepare();
        assert_eq!(node.released().await, secs(15), "{delay}");
        assert_eq!(node.asked(), asked(&[("web", 0.0, 20), ("dns", 15.0, 10)]), "{delay}");
        node.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_zero_is_reported_as_a_shutdown_that_did_not_wait() {
    let mut node = Setup::with([pod("web", None, Some(10))]).delay(Duration::ZERO).start();
    let file = "/etc/systemd/logind.conf.d/zzz.conf";
    node.login.fake.modify(|state| state.delay_set_by = Some(file.into()));
    node.prepare();
    node.released().await;
    let expected = format!(
        "the shutdown did not wait for this agent: logind's InhibitDelayMaxSec is 0 (set by {file})"
    );
    assert_eq!(node.reports()[0].warnings, [expected]);
}

/// The agent was restarted during the shutdown, and nothing had kept its lock: logind goes on, and grants no other.
#[tokio::test(start_paused = true)]
async fn a_shutdown_that_did_not_wait_for_the_agent_is_reported_as_such() {
    let mut node = Setup::with([pod("web", None, Some(10))]).start();
    node.start = Instant::now();
    let why = "logind refuses it: the operation is in progress";
    node.login.fake.modify(|state| {
        (state.lock, state.has_lock) = (LockState::Waiting { why: why.into() }, false);
    });
    node.prepare();
    node.released().await;
    let expected =
        format!("the shutdown did not wait for this agent, which held no inhibitor lock: {why}");
    assert_eq!(node.reports()[0].warnings, [expected]);
    let last = node.recorder.events().pop();
    assert!(matches!(last, Some(Event::ShutdownFinished { released: false, .. })), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_is_lost_in_a_shutdown_does_not_mean_that_the_shutdown_did_not_wait() {
    let mut node = Setup::with([pod("web", None, Some(10))]).start();
    node.prepare();
    node.login.fake.modify(|state| state.lock = LockState::Waiting { why: "bus lost".into() });
    node.released().await;
    assert!(node.reports()[0].warnings.is_empty(), "{:?}", node.reports()[0].warnings);
    let last = node.recorder.events().pop();
    assert!(matches!(last, Some(Event::ShutdownFinished { released: true, .. })), "{last:?}");
}
