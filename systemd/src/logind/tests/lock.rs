//! Taking the lock, and keeping exactly one.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{Inhibitor as _, LockState};

use super::scripted::{Act, Scripted};
use super::{Rig, secs, settled};
use crate::LockStore;
use crate::logind::session::{Listed, LogindEvent};

const READ: &str = "get PreparingForShutdown";

/// Records the calls to the store.
#[derive(Default)]
struct NotedStore(Mutex<Vec<&'static str>>);

impl NotedStore {
    fn notes(&self) -> Vec<&'static str> {
        self.0.lock().expect("not poisoned").clone()
    }
}

impl LockStore for NotedStore {
    fn put(&self, _lock: BorrowedFd<'_>) -> io::Result<()> {
        self.0.lock().expect("not poisoned").push("put");
        Ok(())
    }

    fn clear(&self) {
        self.0.lock().expect("not poisoned").push("clear");
    }
}

/// Returns a lock as the service manager hands it down.
fn inherited() -> (io::PipeReader, OwnedFd) {
    let (ours, theirs) = io::pipe().expect("a pipe");
    nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
        .expect("a pipe that does not block");
    (ours, theirs.into())
}

fn closed(pipe: &mut io::PipeReader) -> bool {
    matches!(io::Read::read(pipe, &mut [0]), Ok(0))
}

#[tokio::test(start_paused = true)]
async fn at_start_the_state_is_read_before_and_after_the_lock_and_the_lock_is_looked_up() {
    let rig = Rig::settled(&Scripted::giving(secs(30)), secs(30)).await;
    let expected = [
        "connect",
        "get PreparingForShutdown",
        "get InhibitDelayMaxUSec",
        "inhibit",
        "list",
        "get PreparingForShutdown",
    ];
    assert_eq!(rig.login.trace(), expected);
    assert_eq!(rig.login.held(), [true]);
}

#[tokio::test(start_paused = true)]
async fn at_start_with_a_short_delay_the_lock_comes_first_then_the_drop_in_and_the_reload() {
    let login = Scripted::giving(secs(5)).reloading_to(secs(30), Duration::from_millis(100));
    let rig = Rig::settled(&login, secs(30)).await;
    let after_the_lock: Vec<String> = rig.login.trace().split_off(5);
    let expected = [
        "get PreparingForShutdown",
        "reload",
        "get InhibitDelayMaxUSec",
        "get InhibitDelayMaxUSec",
        "get InhibitDelayMaxUSec",
    ];
    assert_eq!(after_the_lock, expected);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_tried_again_with_growing_pauses_for_ever() {
    let login = Scripted::giving(secs(30));
    login.act("connect", Act::Refuse);
    let mut rig = Rig::start(&login, secs(30));
    tokio::time::sleep(secs(3600)).await;
    let times = login.times("connect");
    let pauses: Vec<u128> =
        times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_millis()).collect();
    assert_eq!(pauses[..8], [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    assert_eq!(login.open_sessions(), 0);
    login.behave("connect");
    rig.until_held().await;
}

#[tokio::test(start_paused = true)]
async fn every_failing_call_gives_up_its_connection_and_the_next_attempt_has_its_own() {
    for call in ["get PreparingForShutdown", "get InhibitDelayMaxUSec", "inhibit", "list"] {
        let login = Scripted::giving(secs(30));
        login.act(call, Act::Refuse);
        let mut rig = Rig::start(&login, secs(30));
        tokio::time::sleep(secs(60)).await;
        assert!(login.count("connect") > 10, "{call}");
        assert!(login.open_sessions() <= 1, "{call}: {} left open", login.open_sessions());
        assert!(rig.why().contains(call), "{call}: {}", rig.why());
        login.behave(call);
        rig.until_held().await;
        assert_eq!(login.held().iter().filter(|held| **held).count(), 1, "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_login_manager_the_state_says_absent_after_a_while_and_it_is_still_tried() {
    let login = Scripted::giving(secs(30));
    login.act("connect", Act::Absent);
    let mut rig = Rig::start(&login, secs(30));
    tokio::time::sleep(secs(1)).await;
    assert!(matches!(rig.now().lock, LockState::Waiting { .. }), "it may only be late");
    rig.until("absent", |s| matches!(s.lock, LockState::Absent { .. })).await;
    login.behave("connect");
    rig.until_held().await;
}

/// Each call has the bus start it, in vain, and write two lines.
#[tokio::test(start_paused = true)]
async fn a_login_manager_that_is_masked_is_called_ever_less_often() {
    let (login, mut rig) = absent().await;
    tokio::time::sleep(secs(3600)).await;
    assert!((3..=6).contains(&login.count(READ)), "{:?}", login.trace());
    assert!(matches!(rig.now().lock, LockState::Absent { .. }));
    assert!(rig.why().contains("no login manager"), "{}", rig.why());
    login.behave(READ);
    login.tell(LogindEvent::Back).await;
    rig.until_held().await;
    login.tell(LogindEvent::Gone).await;
    login.clear_trace();
    tokio::time::sleep(secs(3600)).await;
    assert_eq!(login.count(READ), 0, "it may have been stopped on purpose");
}

/// dbus-broker refuses a call for good and for now with the same word, and without a call nothing may start it.
#[tokio::test(start_paused = true)]
async fn a_login_manager_that_could_not_be_started_is_called_again() {
    let (login, mut rig) = absent().await;
    login.behave(READ);
    let begun = Instant::now();
    rig.until_held().await;
    assert!(begun.elapsed() <= secs(61), "{:?}", begun.elapsed());
}

/// A login manager that is not on the bus and does not start, and a supervisor that knows.
async fn absent() -> (Scripted, Rig) {
    let login = Scripted::giving(secs(30));
    login.act(READ, Act::Absent);
    login.set_there(false);
    let mut rig = Rig::start(&login, secs(30));
    rig.until("absent", |s| matches!(s.lock, LockState::Absent { .. })).await;
    rig.quiet().await;
    login.clear_trace();
    (login, rig)
}

#[tokio::test(start_paused = true)]
async fn a_hung_inhibit_never_hides_the_state_and_is_given_up() {
    let login = Scripted::giving(secs(30));
    login.act("inhibit", Act::TimeOut);
    let mut rig = Rig::start(&login, secs(30));
    tokio::time::sleep(secs(1)).await;
    assert!(rig.why().contains("waiting for logind to grant the lock"));
    rig.until(
        "told",
        |s| matches!(&s.lock, LockState::Waiting { why } if why.contains("no answer within 5s")),
    )
    .await;
    login.behave("inhibit");
    rig.until_held().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_listed_is_no_lock() {
    let login = Scripted::giving(secs(30));
    login.list_as(&[Listed::No]);
    let mut rig = Rig::start(&login, secs(30));
    rig.until(
        "refused",
        |s| matches!(&s.lock, LockState::Waiting { why } if why.contains("not in it")),
    )
    .await;
    rig.until_held().await;
    assert_eq!(login.held(), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_login_manager_without_a_list_is_trusted_about_the_lock_it_granted() {
    let login = Scripted::giving(secs(30));
    login.list_as(&[Listed::Unknown]);
    Rig::start(&login, secs(30)).until_held().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_survived_a_restart_of_logind_is_kept() {
    let (login, mut rig) = settled().await;
    login.clear_trace();
    login.tell(LogindEvent::Gone).await;
    rig.until("waiting", |s| s.lock != LockState::Held).await;
    // Longer than between two rechecks: a call would start it.
    tokio::time::sleep(secs(61)).await;
    assert!(login.trace().is_empty(), "a login manager that was stopped is not started by us");
    assert!(rig.why().contains("left the bus"));
    login.tell(LogindEvent::Back).await;
    rig.until_held().await;
    assert_eq!(login.held(), [true], "the same lock");
    assert_eq!(login.count("inhibit"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_logind_lost_in_its_restart_is_replaced_before_it_is_dropped() {
    let (login, mut rig) = settled().await;
    login.clear_trace();
    login.list_as(&[Listed::No]);
    login.tell(LogindEvent::Back).await;
    rig.until("replaced", |_| login.held() == [false, true]).await;
    rig.until_held().await;
    let expected = [
        "get PreparingForShutdown",
        "get InhibitDelayMaxUSec",
        "list",
        "inhibit",
        "list",
        "get PreparingForShutdown",
    ];
    assert_eq!(login.trace(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_logind_loses_silently_is_found_missing_by_the_recheck() {
    let (login, mut rig) = settled().await;
    login.list_as(&[Listed::No]);
    tokio::time::sleep(secs(61)).await;
    rig.until_held().await;
    assert_eq!(login.held(), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn event_stream_closed_three_times_connects_anew_each_time() {
    let (login, mut rig) = settled().await;
    for round in 0..3 {
        login.clear_trace();
        let before = Instant::now();
        login.hang_up();
        rig.until("told", |s| s.lock != LockState::Held).await;
        assert!(rig.why().contains("the lock taken before is kept"), "{}", rig.why());
        rig.until_held().await;
        assert!(before.elapsed() < secs(1), "round {round}: {:?}", before.elapsed());
        rig.quiet().await;
        let expected = ["connect", "get PreparingForShutdown", "get InhibitDelayMaxUSec", "list"];
        assert_eq!(
            login.trace(),
            expected,
            "round {round}: everything again, but the lock is kept"
        );
        assert_eq!((login.held(), rig.now().epoch), (vec![true], 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_inherited_lock_is_replaced_by_one_of_our_own_and_then_dropped() {
    let (mut other_end, lock) = inherited();
    let store = Arc::new(NotedStore::default());
    let login = Scripted::giving(secs(30));
    let mut rig = Rig::start_with(&login, secs(30), |config| {
        config.inherited_lock = Some(lock);
        config.store = store.clone();
    });
    rig.until_held().await;
    rig.quiet().await;
    assert!(closed(&mut other_end));
    assert_eq!(login.held(), [true]);
    assert_eq!(store.notes(), ["clear", "put"], "the old copy goes, the new one is kept");
}

#[tokio::test(start_paused = true)]
async fn an_inherited_lock_is_used_when_the_agent_starts_in_the_middle_of_a_shutdown() {
    let (mut other_end, lock) = inherited();
    let store = Arc::new(NotedStore::default());
    let login = Scripted::giving(secs(30));
    login.set_preparing(true);
    login.list_as(&[Listed::UnderAnotherPid]);
    let mut rig = Rig::start_with(&login, secs(30), |config| {
        config.inherited_lock = Some(lock);
        config.store = store.clone();
    });
    let state = rig.until("held and preparing", |s| s.lock == LockState::Held).await;
    assert!(state.preparing, "no reader sees a lock without the shutdown");
    assert_eq!((state.epoch, login.count("inhibit")), (1, 0));
    assert!(!closed(&mut other_end));
    rig.inhibitor.release().await;
    assert!(closed(&mut other_end));
    assert_eq!(store.notes(), ["clear"]);
    assert_eq!(rig.now().lock, LockState::Released);
}

/// A lock of an earlier process that could not be taken over (e.g. because it is no FIFO) delays the shutdown as long
/// as the store holds it.
#[tokio::test(start_paused = true)]
async fn the_store_is_cleared_at_the_release_when_nothing_of_it_was_inherited_too() {
    let store = Arc::new(NotedStore::default());
    let login = Scripted::giving(secs(30));
    login.set_preparing(true);
    let mut rig = Rig::start_with(&login, secs(30), |config| config.store = store.clone());
    rig.until("preparing", |state| state.preparing).await;
    rig.inhibitor.release().await;
    assert_eq!(store.notes(), ["clear"]);
}

#[tokio::test(start_paused = true)]
async fn a_descriptor_that_came_as_a_lock_and_is_none_is_dropped() {
    let (mut other_end, lock) = inherited();
    let login = Scripted::giving(secs(30));
    login.set_preparing(true);
    login.list_as(&[Listed::No]);
    let rig = Rig::start_with(&login, secs(30), |config| config.inherited_lock = Some(lock));
    rig.quiet().await;
    assert!(closed(&mut other_end));
    assert!(rig.why().contains("grants no lock until it is cancelled"), "{}", rig.why());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_inhibitor_closes_the_lock_and_the_connection() {
    let (login, rig) = settled().await;
    drop(rig);
    tokio::task::yield_now().await;
    assert_eq!((login.held(), login.open_sessions()), (vec![false], 0));
}
