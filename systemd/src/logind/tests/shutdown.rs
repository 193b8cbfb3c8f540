//! Shutdowns, and shutdowns that are cancelled.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{
    Inhibitor as _, LockState, ScheduledShutdown, ShutdownKind, ShutdownRequest,
};

use super::scripted::{Act, Scripted};
use super::{Rig, secs, settled, shutting_down};
use crate::logind::session::LogindEvent;

const READ: &str = "get PreparingForShutdown";

#[tokio::test(start_paused = true)]
async fn a_true_and_a_false_are_both_passed_on() {
    let (login, mut rig) = shutting_down().await;
    login.prepare(false).await;
    let state = rig.until("cancelled", |s| !s.preparing).await;
    assert_eq!((state.epoch, state.since, state.kind), (1, None, ShutdownKind::Unknown));
}

#[tokio::test(start_paused = true)]
async fn the_budget_counts_from_the_arrival_of_the_signal_not_from_its_confirmation() {
    let (login, mut rig) = settled().await;
    login.act(READ, Act::After(secs(2)));
    let arrived = Instant::now();
    login.prepare(true).await;
    let state = rig.until("preparing", |s| s.preparing).await;
    assert_eq!(state.since, Some(arrived));
    assert_eq!(arrived.elapsed(), secs(2), "and it was not believed before");
}

#[tokio::test(start_paused = true)]
async fn a_signal_whose_confirmation_times_out_is_confirmed_on_a_new_connection_and_keeps_its_time()
{
    let (login, mut rig) = settled().await;
    login.act_once(READ, Act::TimeOut);
    let arrived = Instant::now();
    login.prepare(true).await;
    let state = rig.until("preparing", |s| s.preparing).await;
    assert_eq!((state.since, login.count("connect")), (Some(arrived), 2));
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_the_property_denies_changes_nothing_and_is_counted() {
    let (login, rig) = settled().await;
    let before = rig.now();
    login.say(true, ShutdownKind::PowerOff).await;
    rig.quiet().await;
    assert_eq!((rig.now(), rig.inhibitor.refused_signals()), (before, 1));
    assert_eq!(login.held(), [true]);
}

#[tokio::test(start_paused = true)]
async fn a_false_that_the_property_denies_does_not_stop_a_shutdown() {
    let (login, rig) = shutting_down().await;
    let before = rig.now();
    login.say(false, ShutdownKind::Unknown).await;
    rig.quiet().await;
    assert_eq!((rig.now(), rig.inhibitor.refused_signals()), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_who_wanted_a_shutdown_comes_after_it_and_goes_with_it() {
    let (login, mut rig) = settled().await;
    let file = rig.root.path().join("run/systemd/shutdown/scheduled");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "USEC=1795318200000000\nWARN_WALL=1\nMODE=reboot\nUID=1000\n").unwrap();
    login.set_message(Some("kernel"));
    login.prepare(true).await;
    let wanted = ShutdownRequest {
        message: Some("kernel".into()),
        scheduled_for: Some("2026-11-22T03:30:00Z".parse().unwrap()),
        scheduled_by: Some(1000),
    };
    rig.until("the request", |s| s.preparing && s.request.as_deref() == Some(&wanted)).await;
    login.prepare(false).await;
    let state = rig.until("cancelled", |s| !s.preparing).await;
    assert_eq!(state.request, None);
    login.set_message(None);
    std::fs::remove_file(file).unwrap();
    login.prepare(true).await;
    rig.quiet().await;
    assert_eq!((rig.now().preparing, rig.now().request), (true, None), "nothing is known");
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_shutdown_is_known_until_it_is_cancelled_or_begins() {
    let (login, mut rig) = settled().await;
    assert_eq!(rig.now().scheduled, None);
    let wanted = ScheduledShutdown {
        at: "2026-11-22T03:30:00Z".parse().unwrap(),
        kind: ShutdownKind::Reboot,
        message: Some("kernel".into()),
    };
    login.schedule(Some(wanted.clone()));
    login.change(false).await;
    rig.until("scheduled", |s| s.scheduled.as_deref() == Some(&wanted)).await;
    login.schedule(None);
    // Before systemd 256 no signal says so.
    rig.until("cancelled", |s| s.scheduled.is_none()).await;
    login.schedule(Some(wanted));
    rig.until("scheduled again", |s| s.scheduled.is_some()).await;
    login.prepare(true).await;
    rig.until("it begins", |s| s.preparing && s.scheduled.is_none()).await;
}

/// systemd 252 to 254 keep the kind of a reboot that they refused, as of a target that is masked. The signal has none.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_left_over_from_a_shutdown_that_was_refused_is_not_that_of_the_next() {
    for (before, expected) in [
        (ShutdownKind::Reboot, ShutdownKind::Unknown),
        (ShutdownKind::Unknown, ShutdownKind::Reboot),
    ] {
        let login = Scripted::giving(secs(30));
        login.set_kind(before);
        let mut rig = Rig::settled(&login, secs(30)).await;
        login.set_kind(ShutdownKind::Reboot);
        login.prepare(true).await;
        rig.until("preparing", |state| state.preparing).await;
        rig.quiet().await;
        assert_eq!(rig.now().kind, expected, "{before:?} before");
    }
}

#[tokio::test(start_paused = true)]
async fn the_kind_comes_from_the_first_of_the_two_signals_or_from_the_later_one() {
    for kind_first in [true, false] {
        let (login, mut rig) = settled().await;
        login.set_preparing(true);
        let arrived = Instant::now();
        let (first, second) = match kind_first {
            true => (ShutdownKind::Reboot, ShutdownKind::Unknown),
            false => (ShutdownKind::Unknown, ShutdownKind::Reboot),
        };
        login.say(true, first).await;
        if !kind_first {
            rig.until("preparing", |s| s.preparing).await;
        }
        login.say(true, second).await;
        let state = rig.until("preparing with its kind", |s| s.kind == ShutdownKind::Reboot).await;
        assert_eq!((state.epoch, state.since), (1, Some(arrived)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_true_starts_nothing_anew() {
    let (login, rig) = shutting_down().await;
    let before = rig.now();
    tokio::time::sleep(secs(3)).await;
    login.prepare(true).await;
    rig.quiet().await;
    assert_eq!((rig.now(), rig.inhibitor.refused_signals()), (before, 0));
    assert_eq!((login.held(), login.count("inhibit")), (vec![true], 1));
}

#[tokio::test(start_paused = true)]
async fn after_a_cancel_a_new_lock_is_taken_before_the_old_one_is_dropped() {
    let (login, mut rig) = shutting_down().await;
    login.clear_trace();
    login.act("list", Act::After(secs(1)));
    login.prepare(false).await;
    rig.until("cancelled", |s| !s.preparing).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(login.held(), [true, true], "the new one is not verified yet");
    rig.quiet().await;
    assert_eq!(login.held(), [false, true]);
    assert_eq!(login.trace(), [READ, "inhibit", "list", READ]);
    tokio::time::sleep(secs(2)).await;
    assert_eq!((login.held(), rig.now().lock), (vec![false, true], LockState::Held));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_while_idle_takes_a_new_lock() {
    let (login, rig) = settled().await;
    login.clear_trace();
    login.prepare(false).await;
    rig.quiet().await;
    assert_eq!(login.trace(), [READ, "inhibit", "list", READ]);
    assert_eq!(login.held(), [false, true]);
    assert_eq!((rig.now().lock, rig.now().epoch), (LockState::Held, 0));
}

#[tokio::test(start_paused = true)]
async fn after_a_release_and_a_cancel_the_lock_is_taken_again_at_once() {
    let (login, mut rig) = shutting_down().await;
    rig.inhibitor.release().await;
    assert_eq!((rig.now().lock, login.held()), (LockState::Released, vec![false]));
    let cancelled = Instant::now();
    login.prepare(false).await;
    rig.until_held().await;
    assert_eq!(cancelled.elapsed(), secs(0));
    assert_eq!(login.held(), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn an_inhibit_that_fails_after_a_cancel_is_tried_again() {
    let (login, mut rig) = shutting_down().await;
    rig.inhibitor.release().await;
    login.act("inhibit", Act::Refuse);
    login.prepare(false).await;
    tokio::time::sleep(secs(30)).await;
    assert!(!rig.now().preparing, "the cancel is told at once");
    login.behave("inhibit");
    rig.until_held().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_is_done_once_and_only_in_a_shutdown() {
    let (login, mut rig) = settled().await;
    rig.inhibitor.release().await;
    assert_eq!((rig.now().lock, login.held()), (LockState::Held, vec![true]));

    login.prepare(true).await;
    rig.until("preparing", |s| s.preparing).await;
    // One that is cancelled half-way, and three at the same time.
    drop(rig.inhibitor.release());
    tokio::join!(rig.inhibitor.release(), rig.inhibitor.release(), rig.inhibitor.release());
    rig.inhibitor.release().await;
    assert_eq!((rig.now().lock, login.held()), (LockState::Released, vec![false]));
    rig.quiet().await;
    assert_eq!(login.count("inhibit"), 1, "and it is not taken again while the node goes down");
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_connection_still_closes_the_lock() {
    let (login, mut rig) = shutting_down().await;
    login.act("connect", Act::Hang);
    login.hang_up();
    rig.until("told", |s| s.lock != LockState::Held).await;
    assert_eq!(login.held(), [true], "a lost connection does not lose the lock");
    rig.inhibitor.release().await;
    assert_eq!((rig.now().lock, login.held()), (LockState::Released, vec![false]));
}

#[tokio::test(start_paused = true)]
async fn an_agent_started_in_a_shutdown_without_a_lock_says_so_and_takes_one_after_the_cancel() {
    let login = Scripted::giving(secs(30));
    login.set_preparing(true);
    let mut rig = Rig::start(&login, secs(30));
    let state = rig.until("preparing", |s| s.preparing).await;
    assert_eq!(state.epoch, 1);
    assert!(state.since.is_some());
    rig.quiet().await;
    assert_eq!(login.count("inhibit"), 0, "it would be refused");
    assert!(rig.why().contains("grants no lock until it is cancelled"), "{}", rig.why());
    assert_eq!(rig.now().delay, Some(secs(30)), "what time there is, is known");
    rig.inhibitor.release().await;
    assert_eq!(rig.now().lock, LockState::Released);
    login.prepare(false).await;
    rig.until_held().await;
}

#[tokio::test(start_paused = true)]
async fn no_reader_ever_sees_a_held_lock_with_an_unread_shutdown_at_start() {
    let login = Scripted::giving(secs(30));
    login.act_once("inhibit", Act::ShutDownFirst);
    let mut rig = Rig::start(&login, secs(30));
    let state = rig.until("preparing", |s| s.preparing).await;
    assert_eq!(state.epoch, 1);
    rig.quiet().await;
    assert_eq!(rig.now().epoch, 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_only_a_changed_property_tells_is_followed_at_once() {
    let (login, mut rig) = shutting_down().await;
    let cancelled = Instant::now();
    login.change(false).await;
    let state = rig.until("cancelled", |s| !s.preparing).await;
    assert_eq!((state.epoch, cancelled.elapsed()), (1, secs(0)));
    rig.quiet().await;
    assert_eq!((rig.now().lock, login.held()), (LockState::Held, vec![false, true]));
    assert_eq!(rig.inhibitor.refused_signals(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_nothing_tells_is_found_within_a_second_and_the_lock_taken_again() {
    for released in [false, true] {
        let (login, mut rig) = shutting_down().await;
        if released {
            rig.inhibitor.release().await;
        }
        tokio::time::sleep(Duration::from_millis(1300)).await;
        let cancelled = Instant::now();
        login.set_preparing(false);
        rig.until("cancelled", |s| !s.preparing).await;
        rig.until_held().await;
        assert!(cancelled.elapsed() < secs(1), "{:?}", cancelled.elapsed());
        rig.quiet().await;
        assert_eq!(login.held(), [false, true], "released: {released}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_is_read_twice_a_second_in_a_shutdown_and_not_while_logind_is_away() {
    let (login, mut rig) = settled().await;
    login.clear_trace();
    rig.quiet().await;
    assert_eq!(login.count(READ), 0, "nothing is asked while nothing happens");
    login.prepare(true).await;
    rig.until("preparing", |s| s.preparing).await;
    login.clear_trace();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(login.count(READ), 4, "{:?}", login.trace());
    login.tell(LogindEvent::Gone).await;
    rig.quiet().await;
    assert_eq!(login.count(READ), 4, "that would start it");
}

/// logind's timer starts after its signal, and a call to process 1 may lie between the change and both.
#[tokio::test(start_paused = true)]
async fn the_budget_counts_from_the_signal_also_if_a_change_comes_before_it() {
    let (login, mut rig) = settled().await;
    login.act(READ, Act::After(secs(2)));
    login.change(true).await;
    tokio::time::sleep(secs(1)).await;
    let arrived = Instant::now();
    login.say(true, ShutdownKind::Reboot).await;
    let state = rig.until("preparing", |s| s.preparing).await;
    assert_eq!((state.since, state.kind), (Some(arrived), ShutdownKind::Reboot));
}

#[tokio::test(start_paused = true)]
async fn the_budget_counts_from_a_change_whose_signal_was_missed() {
    let (login, mut rig) = settled().await;
    login.act(READ, Act::After(secs(2)));
    let arrived = Instant::now();
    login.change(true).await;
    let state = rig.until("preparing", |s| s.preparing).await;
    assert_eq!(state.since, Some(arrived));
}

#[tokio::test(start_paused = true)]
async fn changes_that_have_nothing_to_do_with_a_shutdown_leave_everything_as_it_is() {
    let (login, rig) = settled().await;
    let before = rig.now();
    // As when a shutdown is scheduled for later, and when that is cancelled.
    for _ in 0..2 {
        login.change(false).await;
        rig.quiet().await;
    }
    assert_eq!((rig.now(), login.held()), (before, vec![true]));
    assert_eq!(rig.inhibitor.refused_signals(), 0);
}
