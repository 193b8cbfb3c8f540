//! The inhibitor against the stand-in over a socket pair: real D-Bus messages without a bus.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of tests are tests too")]

use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use winddown_shared::{Inhibitor as _, InhibitorState, LockState, ShutdownBlock, ShutdownKind};
use winddown_systemd::stand_in::{Behaviour, StandIn};
use winddown_systemd::{Bus, InhibitorConfig, LogindInhibitor, hold_block};

/// A timeout longer than anything here takes; only a failure reaches it.
const LIMIT: Duration = Duration::from_secs(20);

fn start(logind: &StandIn, wanted: Duration, root: &Path) -> LogindInhibitor {
    let mut config = InhibitorConfig::new(wanted);
    config.bus = logind.peer();
    config.root = Some(root.to_owned());
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
    let held = until(&mut state, "held", |s| s.lock == LockState::Held).await;
    assert!(held.is_rehearsal, "no machine waits for a stand-in");
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
async fn a_stand_in_that_leaves_hangs_up_in_the_middle_of_a_greeting() {
    let logind = StandIn::new(Duration::from_secs(30));
    let Bus::Peer(connect) = logind.peer() else { panic!("no bus is involved") };
    let mut greeting = connect().expect("it listens");
    greeting.set_read_timeout(Some(LIMIT)).expect("a socket");
    tokio::time::timeout(LIMIT, logind.leave()).await.expect("it leaves");
    let heard = std::io::Read::read(&mut greeting, &mut [0; 1]).expect("it hung up");
    assert_eq!(heard, 0);
    let refused = connect().expect_err("it has left");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn every_kind_of_shutdown_is_told_by_its_name() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(30)).with_metadata();
    let inhibitor = start(&logind, Duration::from_secs(30), root.path());
    let mut state = inhibitor.state();
    for kind in [
        ShutdownKind::PowerOff,
        ShutdownKind::Halt,
        ShutdownKind::Reboot,
        ShutdownKind::Kexec,
        ShutdownKind::SoftReboot,
    ] {
        until(&mut state, "held", |s| s.lock == LockState::Held && !s.preparing).await;
        logind.set_preparing(true);
        logind.emit(true, kind).await;
        let told = until(&mut state, "preparing", |s| s.preparing).await;
        assert_eq!(told.kind, kind);
        logind.set_preparing(false);
        logind.emit(false, kind).await;
        let after = until(&mut state, "cancelled", |s| !s.preparing).await;
        assert_eq!(after.kind, ShutdownKind::Unknown, "nothing is left of {kind:?}");
    }
}

/// `ScheduledShutdown` of systemd 257 says `reboot` of a soft reboot.
#[tokio::test]
async fn a_soft_reboot_that_no_signal_told_is_not_taken_for_a_reboot() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(30)).with_metadata();
    logind.schedule(Some((ShutdownKind::Reboot, SystemTime::UNIX_EPOCH)));
    // Before there is an agent.
    logind.shutdown(ShutdownKind::SoftReboot).await;
    let inhibitor = start(&logind, Duration::from_secs(30), root.path());
    let known = |s: &InhibitorState| s.preparing && s.kind != ShutdownKind::Unknown;
    let told = until(&mut inhibitor.state(), "told the kind", known).await;
    assert_eq!(told.kind, ShutdownKind::SoftReboot);
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

/// Takes no part in the shutdown: only the stand-in's own behaviour is tested.
async fn holding(logind: &StandIn, root: &Path) -> LogindInhibitor {
    let inhibitor = start(logind, Duration::from_secs(1), root);
    until(&mut inhibitor.state(), "held", |s| s.lock == LockState::Held).await;
    inhibitor
}

#[tokio::test]
async fn the_stand_in_goes_on_without_the_locks_that_are_late_and_names_them() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(1));
    let _inhibitor = holding(&logind, root.path()).await;
    let outcome = logind.shutdown(ShutdownKind::PowerOff).await;
    assert_eq!((outcome.released.len(), outcome.late.len()), (0, 1));
    assert_eq!(outcome.late[0].who, "winddown");
    assert!(outcome.took >= Duration::from_secs(1), "it waited the whole delay");
    assert!(!outcome.cancelled);
}

#[tokio::test]
async fn the_stand_in_does_not_wait_without_locks_or_without_a_delay() {
    let outcome = StandIn::new(Duration::from_secs(600)).shutdown(ShutdownKind::Kexec).await;
    assert_eq!((outcome.released.len(), outcome.late.len()), (0, 0));
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(1));
    let _inhibitor = holding(&logind, root.path()).await;
    logind.set_delay(Duration::ZERO);
    let outcome = logind.shutdown(ShutdownKind::PowerOff).await;
    assert_eq!(outcome.late.len(), 1);
}

#[tokio::test]
async fn the_stand_in_refuses_locks_in_a_shutdown_and_grants_them_again_after_its_cancel() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(600));
    let first = holding(&logind, root.path()).await;
    let down = tokio::spawn({
        let logind = logind.clone();
        async move { logind.shutdown(ShutdownKind::PowerOff).await }
    });
    until(&mut first.state(), "preparing", |s| s.preparing).await;
    let second = start(&logind, Duration::from_secs(1), root.path());
    let mut state = second.state();
    let told = until(&mut state, "preparing", |s| s.preparing).await;
    assert!(matches!(told.lock, LockState::Waiting { .. }), "{:?}", told.lock);
    assert_eq!(logind.held(), 1);
    logind.cancel().await;
    let outcome = down.await.expect("it ends");
    assert!(outcome.cancelled);
    until(&mut state, "held", |s| s.lock == LockState::Held && !s.preparing).await;
    logind.until_locks(|locks| locks.iter().filter(|l| l.released_at.is_none()).count() == 2).await;
}

#[tokio::test]
async fn a_lock_that_the_login_manager_lost_is_taken_again() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(1));
    let mut config = InhibitorConfig::new(Duration::from_secs(1));
    config.bus = logind.peer();
    config.root = Some(root.path().to_owned());
    config.recheck = Duration::from_millis(50);
    let inhibitor = LogindInhibitor::start(config);
    until(&mut inhibitor.state(), "held", |s| s.lock == LockState::Held).await;
    logind.forget_locks();
    logind.until_locks(|locks| locks.len() == 2 && locks[0].released_at.is_some()).await;
    until(&mut inhibitor.state(), "held", |s| s.lock == LockState::Held).await;
}

#[tokio::test]
async fn a_method_that_is_refused_is_told_with_its_error() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(1));
    logind.set_behaviour("PreparingForShutdown", Behaviour::Refuse);
    let inhibitor = start(&logind, Duration::from_secs(1), root.path());
    let mut state = inhibitor.state();
    let told = until(
        &mut state,
        "told",
        |s| matches!(&s.lock, LockState::Waiting { why } if why.contains("PreparingForShutdown")),
    );
    let LockState::Waiting { why } = told.await.lock else { panic!("not waiting") };
    assert_eq!(
        &*why,
        "PreparingForShutdown: PreparingForShutdown was told to refuse: its log may say more"
    );
    logind.set_behaviour("PreparingForShutdown", Behaviour::Answer);
    until(&mut state, "held", |s| s.lock == LockState::Held).await;
}

#[tokio::test]
async fn shutdowns_are_blocked_while_that_is_wanted_and_without_a_gap_when_the_reason_changes() {
    let logind = StandIn::new(Duration::from_secs(1));
    let block = |who: &str| Some(ShutdownBlock { who: who.to_owned(), why: "busy".to_owned() });
    let wanted = watch::Sender::new(None);
    let mut lock = hold_block(logind.peer(), wanted.subscribe());
    let is_so = |lock: &LockState| *lock == LockState::Held;
    logind.set_behaviour("Inhibit", Behaviour::Refuse);
    wanted.send_replace(block("one"));
    let refused = lock.wait_for(|lock| matches!(lock, LockState::Waiting { .. }));
    tokio::time::timeout(LIMIT, refused).await.expect("refused").expect("it lives");
    logind.set_behaviour("Inhibit", Behaviour::Answer);
    tokio::time::timeout(LIMIT, lock.wait_for(is_so))
        .await
        .expect("tried again")
        .expect("it lives");
    let first = logind.locks().remove(0);
    assert_eq!((&*first.what, &*first.who, &*first.mode), ("shutdown", "one", "block"));

    // If logind refuses the next lock, the held one is kept.
    logind.set_behaviour("Inhibit", Behaviour::Refuse);
    wanted.send_replace(block("two"));
    let called = async || {
        while logind.calls().iter().filter(|call| call.contains("two")).count() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, called()).await.expect("asked");
    assert_eq!((logind.held(), lock.borrow().clone()), (1, LockState::Held));
    logind.set_behaviour("Inhibit", Behaviour::Answer);
    let another = logind.until_locks(|locks| locks.len() == 2 && locks[0].released_at.is_some());
    tokio::time::timeout(LIMIT, another).await.expect("the other reason");
    assert_eq!((logind.held(), &*logind.locks()[1].who), (1, "two"));

    wanted.send_replace(None);
    let free = logind.until_locks(|locks| locks.iter().all(|lock| lock.released_at.is_some()));
    tokio::time::timeout(LIMIT, free).await.expect("given back");
    let released = lock.wait_for(|lock| *lock == LockState::Released);
    tokio::time::timeout(LIMIT, released).await.expect("released").expect("it lives");
}
