//! The inhibitor against the stand-in over a socket pair: real D-Bus messages, no bus.

use std::path::Path;
use std::time::Duration;

use tokio::sync::watch;
use winddown_shared::{Inhibitor as _, InhibitorState, LockState, ShutdownKind};
use winddown_systemd::stand_in::{Behaviour, StandIn};
use winddown_systemd::{InhibitorConfig, LogindInhibitor, drop_in};

/// Longer than anything here takes; only a failure waits for it.
const LIMIT: Duration = Duration::from_secs(20);

fn start(logind: &StandIn, wanted: Duration, root: &Path) -> LogindInhibitor {
    let mut config = InhibitorConfig::new(wanted);
    config.bus = logind.peer();
    config.root = root.to_owned();
    config.method_timeout = Duration::from_millis(500);
    LogindInhibitor::start(config)
}

async fn until(
    state: &mut watch::Receiver<InhibitorState>,
    what: &str,
    wanted: impl FnMut(&InhibitorState) -> bool,
) -> InhibitorState {
    let now = state.clone();
    match tokio::time::timeout(LIMIT, state.wait_for(wanted)).await {
        Ok(state) => state.expect("the inhibitor lives").clone(),
        Err(_) => panic!("never {what}; the state is {:?}", *now.borrow()),
    }
}

#[tokio::test]
async fn a_shutdown_is_announced_waits_for_the_release_and_tells_its_kind() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(30)).with_metadata();
    let inhibitor = start(&logind, Duration::from_secs(30), root.path());
    let mut state = inhibitor.state();
    until(&mut state, "held", |s| s.lock == LockState::Held).await;
    assert_eq!(logind.held(), 1);

    let down = tokio::spawn({
        let logind = logind.clone();
        async move { logind.shutdown(ShutdownKind::Reboot).await }
    });
    let told = until(&mut state, "preparing", |s| s.preparing).await;
    assert_eq!(told.kind, ShutdownKind::Reboot);
    assert_eq!((told.epoch, told.lock), (1, LockState::Held));
    assert!(told.since.is_some());

    inhibitor.release().await;
    assert_eq!(state.borrow().lock, LockState::Released);
    let outcome = down.await.expect("the shutdown ends");
    assert_eq!((outcome.released.len(), outcome.late.len()), (1, 0));
    assert!(!outcome.cancelled);
    assert!(outcome.took < LIMIT, "it did not wait for the delay");
}

#[tokio::test]
async fn a_short_delay_is_raised_by_a_drop_in_that_is_read_late() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(5))
        .reloading_from(root.path(), Duration::from_millis(300));
    let inhibitor = start(&logind, Duration::from_secs(30), root.path());
    let wanted = Duration::from_secs(30);
    let raised = until(&mut inhibitor.state(), "raised", |s| s.delay == Some(wanted)).await;
    assert_eq!(raised.delay_set_by, None);
    assert_eq!(logind.delay(), wanted);
    let file = root.path().join("etc/systemd/logind.conf.d").join(drop_in::NAME);
    let text = std::fs::read_to_string(file).expect("the drop-in");
    assert_eq!(drop_in::inhibit_delay(&text), Some(wanted));
}

#[tokio::test]
async fn a_login_manager_that_hangs_never_hides_the_state() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(30));
    logind.set_behaviour("Inhibit", Behaviour::Hang);
    let inhibitor = start(&logind, Duration::from_secs(30), root.path());
    let mut state = inhibitor.state();
    let waits = until(
        &mut state,
        "waiting for the grant",
        |s| matches!(&s.lock, LockState::Waiting { why } if why.contains("grant the lock")),
    );
    waits.await;
    until(&mut state, "told of the time-out", |s| {
        matches!(&s.lock, LockState::Waiting { why } if why.contains("Inhibit: no answer within"))
    })
    .await;
    logind.set_behaviour("Inhibit", Behaviour::Answer);
    until(&mut state, "held", |s| s.lock == LockState::Held).await;
    assert_eq!(logind.held(), 1, "late grants to dropped calls were closed");
}
