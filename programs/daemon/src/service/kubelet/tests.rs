use std::sync::Arc;

use tokio::time::{Instant, sleep};
use winddown_host::service_units::{NewUnit, UnitEnd, UnitExit};
use winddown_shared::Mutex;

use super::*;

/// A service manager that has the kubelet's service and nothing else.
struct Manager {
    /// Whether it stops the service only after the agent, because it takes the machine down.
    holds_stops_back: bool,
    view: Mutex<UnitView>,
    changes: broadcast::Sender<UnitChange>,
    asked: Mutex<Vec<String>>,
}

impl Manager {
    fn new(view: UnitView, holds_stops_back: bool) -> Arc<Self> {
        let (view, asked) = (Mutex::new(view), Mutex::default());
        Arc::new(Self { holds_stops_back, view, changes: broadcast::Sender::new(8), asked })
    }

    fn report(&self, phase: UnitPhase, main_pid: Option<i32>) {
        let view = UnitView { phase, main_pid, ..UnitView::default() };
        *self.view.lock() = view;
        let _ = self.changes.send(UnitChange::Seen { unit: service::USUAL.into(), view });
    }
}

impl ServiceUnits for Manager {
    async fn start(&self, unit: NewUnit) -> Result<(), UnitError> {
        panic!("start {unit:?}")
    }

    async fn make_slice(&self, slice: &str, _: &str, _: u64) -> Result<(), UnitError> {
        panic!("make {slice}")
    }

    async fn weigh_slice(&self, slice: &str, _: u64) -> Result<(), UnitError> {
        panic!("weigh {slice}")
    }

    async fn signal(&self, unit: &str, whom: KillWhom, signal: i32) -> Result<(), UnitError> {
        self.asked.lock().push(format!("{unit}: {signal} to {whom:?}"));
        // A helper of the kubelet does not exit.
        self.report(UnitPhase::Stopping, None);
        Ok(())
    }

    async fn stop(&self, unit: &str) -> Result<(), UnitError> {
        self.asked.lock().push(format!("{unit}: stop"));
        if !self.holds_stops_back {
            self.report(UnitPhase::Stopping, Some(7));
        }
        Ok(())
    }

    async fn forget_failure(&self, unit: &str) -> Result<(), UnitError> {
        panic!("forget {unit}")
    }

    async fn look(&self, _: &str) -> Result<Option<UnitView>, UnitError> {
        Ok(Some(*self.view.lock()))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, UnitView)>, UnitError> {
        panic!("list {prefix}")
    }

    fn changes(&self) -> broadcast::Receiver<UnitChange> {
        self.changes.subscribe()
    }
}

fn running() -> UnitView {
    UnitView { phase: UnitPhase::Running, main_pid: Some(7), ..UnitView::default() }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_systemd_stops_only_after_the_agent_is_asked_to_exit_itself() {
    let systemd = Manager::new(running(), true);
    let begun = Instant::now();
    let ended = timeout(ENDS_WITHIN, end(&*systemd, service::USUAL)).await;
    assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let asked = ["kubelet.service: stop", "kubelet.service: 15 to Main"];
    assert_eq!(*systemd.asked.lock(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_systemd_stops_is_waited_for_and_gets_no_second_signal() {
    let systemd = Manager::new(running(), false);
    let stops = Arc::clone(&systemd);
    tokio::spawn(async move {
        sleep(Duration::from_secs(3)).await;
        stops.report(UnitPhase::Stopping, None);
        sleep(Duration::from_secs(1)).await;
        stops.report(UnitPhase::Over, None);
    });
    let begun = Instant::now();
    let ended = timeout(ENDS_WITHIN, end(&*systemd, service::USUAL)).await;
    assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
    assert_eq!(begun.elapsed(), Duration::from_secs(4));
    assert_eq!(*systemd.asked.lock(), ["kubelet.service: stop"]);
}

#[test]
fn a_service_that_systemd_is_about_to_restart_is_stopped_and_one_that_never_ran_is_not() {
    let status = UnitExit::Code(1);
    let ran = Duration::from_secs(1);
    let (out_of_memory, stopped) = (false, false);
    let (started_at, finished_at) = (None, None);
    let end = Some(UnitEnd { status, out_of_memory, stopped, started_at, finished_at, ran });
    let view = |phase, main_pid, end| UnitView { phase, main_pid, end, stop_timeout: None };
    for (what, state, wanted) in [
        ("not loaded", None, false),
        ("running", Some(view(UnitPhase::Running, Some(7), None)), true),
        ("never started", Some(view(UnitPhase::Starting, None, None)), false),
        ("between two runs", Some(view(UnitPhase::Starting, None, end)), true),
        ("stopped", Some(view(UnitPhase::Over, None, end)), false),
    ] {
        assert_eq!(may_run(state.as_ref()), wanted, "{what}");
    }
}
