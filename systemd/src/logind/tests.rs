//! Tests of the supervisor over time, on a paused clock, against a scripted login manager.
//!
//! Counterparts of the kubelet's tests:
//!
//! | kubelet | here |
//! |---|---|
//! | `TestManager/no_override` | `delay::no_override_when_the_delay_is_more_than_the_total` |
//! | `TestManager/no override, all time to critical pods` | `delay::no_override_when_the_delay_equals_…` |
//! | `TestManager/override successful` | `delay::override_successful…` |
//! | `TestManager/override unsuccessful` | `delay::override_unsuccessful_keeps_the_lock_…` |
//! | `TestManager/override unsuccessful, zero time` | `delay::override_unsuccessful_with_zero_time` |
//! | `TestRestart` | `lock::event_stream_closed_three_times_connects_anew_each_time` |
//! | `TestCurrentInhibitDelay`, `TestInhibitShutdown`, `TestReloadLogindConf` | `tests/bus`: `the_calls_have_the_arguments_…` |
//! | `TestMonitorShutdown` | `shutdown::a_true_and_a_false_are_both_passed_on` |
//!
//! Failures of the kubelet's own manager, and the test here that would catch each:
//!
//! | scenario | here |
//! |---|---|
//! | the lock taken after a cancel is closed soon after | `shutdown::after_a_cancel_a_new_lock_is_taken_before_…` |
//! | a signal between the lock and the match rule is lost | `faults::a_shutdown_announced_while_the_match_rules_…`, `…_between_the_grant_and_its_verification_…` |
//! | started while a shutdown is under way | `shutdown::an_agent_started_in_a_shutdown_without_a_lock_…`, `lock::an_inherited_lock_is_used_…` |
//! | the name goes to another connection | `tests/bus`: `when_the_name_changes_hands_…` |
//! | a forged signal, sent to all or to us alone | `tests/bus`: `only_the_owner_of_the_name_is_believed_…`, `a_flood_of_forged_signals_…` |
//! | `Inhibit` hangs | `lock::a_hung_inhibit_never_hides_the_state_…`, `faults::a_signal_during_a_hung_call_…` |
//! | the bus goes in a shutdown, which is called off meanwhile | `faults::a_cancel_missed_while_the_bus_was_away_…`, `faults::a_bus_that_restarts_during_a_shutdown_…` |
//! | descriptors leak over fifty shutdowns and cancels | `tests/descriptors` |

mod delay;
mod faults;
mod lock;
mod scripted;
mod shutdown;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::watch;
use winddown_shared::{Inhibitor as _, InhibitorState, LockState};

use self::scripted::Scripted;
use super::{InhibitorConfig, LogindInhibitor};

/// Longer than anything here may take; the clock is paused, so waiting costs nothing.
const LIMIT: Duration = Duration::from_secs(600);

/// A supervisor under test, with a directory for the drop-ins.
struct Rig {
    login: Scripted,
    inhibitor: LogindInhibitor,
    state: watch::Receiver<InhibitorState>,
    root: tempfile::TempDir,
}

impl Rig {
    fn start(login: &Scripted, wanted: Duration) -> Self {
        Self::start_with(login, wanted, |_| {})
    }

    fn start_with(
        login: &Scripted,
        wanted: Duration,
        change: impl FnOnce(&mut InhibitorConfig),
    ) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let mut config = InhibitorConfig::new(wanted);
        config.root = Some(root.path().to_owned());
        change(&mut config);
        let refused = Arc::new(AtomicU64::new(0));
        let inhibitor = LogindInhibitor::start_with(login.clone(), config, refused);
        let state = inhibitor.state();
        Self { login: login.clone(), inhibitor, state, root }
    }

    /// Starts a supervisor and waits until it has no step left.
    async fn settled(login: &Scripted, wanted: Duration) -> Self {
        let mut rig = Self::start(login, wanted);
        rig.until("held", |s| s.lock == LockState::Held).await;
        rig.quiet().await;
        rig
    }

    async fn until(
        &mut self,
        what: &str,
        wanted: impl FnMut(&InhibitorState) -> bool,
    ) -> InhibitorState {
        let mut state = self.state.clone();
        match tokio::time::timeout(LIMIT, state.wait_for(wanted)).await {
            Ok(state) => state.expect("the supervisor lives").clone(),
            Err(_) => panic!("never {what}: {:?}; {:?}", self.now(), self.login.trace()),
        }
    }

    async fn until_held(&mut self) -> InhibitorState {
        self.until("held", |s| s.lock == LockState::Held).await
    }

    /// Waits long enough for everything that is due to happen.
    async fn quiet(&self) {
        tokio::time::sleep(Duration::from_secs(8)).await;
    }

    fn now(&self) -> InhibitorState {
        self.state.borrow().clone()
    }

    fn why(&self) -> String {
        match self.now().lock {
            LockState::Waiting { why } | LockState::Absent { why } => why.to_string(),
            other => panic!("not waiting: {other:?}"),
        }
    }

    /// Returns the path of the drop-in.
    fn drop_in(&self) -> std::path::PathBuf {
        self.root.path().join("etc/systemd/logind.conf.d/zz-winddown.conf")
    }
}

/// Returns a login manager that gives 30 s, and a settled supervisor that wants them.
async fn settled() -> (Scripted, Rig) {
    let login = Scripted::giving(secs(30));
    let rig = Rig::settled(&login, secs(30)).await;
    (login, rig)
}

/// Like [`settled`], in a shutdown.
async fn shutting_down() -> (Scripted, Rig) {
    let (login, mut rig) = settled().await;
    login.prepare(true).await;
    rig.until("preparing", |s| s.preparing).await;
    (login, rig)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
