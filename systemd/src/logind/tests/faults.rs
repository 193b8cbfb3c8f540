//! Things that go wrong at the worst moment.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{Inhibitor as _, InhibitorState, LockState, ShutdownKind};

use super::scripted::{Act, Scripted};
use super::{Rig, secs, settled, shutting_down};
use crate::logind::session::LogindEvent;

const READ: &str = "get PreparingForShutdown";

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_begins_between_the_grant_and_its_verification_is_seen() {
    let login = Scripted::giving(secs(30));
    login.act_once("list", Act::ShutDownFirst);
    let mut rig = Rig::start(&login, secs(30));
    let state = rig.until("preparing", |s| s.preparing && s.lock == LockState::Held).await;
    assert_eq!(state.epoch, 1);
    assert_eq!(login.held(), [true]);
    rig.inhibitor.release().await;
    assert_eq!(login.held(), [false]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_whose_signal_was_lost_is_seen_by_the_read_after_the_grant() {
    let login = Scripted::giving(secs(30));
    login.act("list", Act::After(secs(1)));
    let mut rig = Rig::start(&login, secs(30));
    rig.until("granted", |_| login.held().len() == 1).await;
    login.set_preparing(true);
    let state = rig.until("preparing", |s| s.preparing).await;
    assert_eq!((state.epoch, state.lock), (1, LockState::Held));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_announced_while_the_match_rules_are_being_made_is_found_by_the_first_read() {
    let login = Scripted::giving(secs(30));
    login.act_once("connect", Act::After(secs(2)));
    let mut rig = Rig::start(&login, secs(30));
    tokio::time::sleep(secs(1)).await;
    // Nothing listens yet, so the signal is lost.
    login.set_preparing(true);
    let state = rig.until("preparing", |s| s.preparing).await;
    assert_eq!((state.epoch, login.count("inhibit")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_any_signal_is_found_by_the_recheck() {
    let (login, mut rig) = settled().await;
    login.set_preparing(true);
    rig.until("preparing", |s| s.preparing).await;
}

#[tokio::test(start_paused = true)]
async fn a_signal_during_a_hung_call_is_confirmed_at_once() {
    for call in ["inhibit", "list"] {
        let login = Scripted::giving(secs(30));
        login.act(call, Act::Hang);
        let mut rig = Rig::start(&login, secs(30));
        tokio::time::sleep(secs(2)).await;
        let arrived = Instant::now();
        login.prepare(true).await;
        let state = rig.until("preparing", |s| s.preparing).await;
        assert_eq!((state.since, arrived.elapsed()), (Some(arrived), secs(0)), "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_true_and_a_false_in_one_breath_end_where_the_property_is() {
    let (login, rig) = settled().await;
    login.act(READ, Act::After(Duration::from_millis(10)));
    login.prepare(true).await;
    login.prepare(false).await;
    rig.quiet().await;
    let state = rig.now();
    assert_eq!((state.preparing, state.epoch, state.lock), (false, 0, LockState::Held));
    login.prepare(false).await;
    login.prepare(true).await;
    rig.quiet().await;
    assert_eq!((rig.now().preparing, rig.now().epoch), (true, 1));
    assert_eq!(rig.inhibitor.refused_signals(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_missed_while_the_bus_was_away_is_corrected_by_the_read_after_reconnecting() {
    let (login, mut rig) = shutting_down().await;
    login.act("connect", Act::Refuse);
    login.hang_up();
    login.set_preparing(false);
    tokio::time::sleep(secs(3)).await;
    assert!(rig.now().preparing, "nothing is known yet");
    login.behave("connect");
    rig.until("cancelled", |s| !s.preparing).await;
    rig.until_held().await;
    rig.quiet().await;
    assert_eq!(login.held(), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_restarts_during_a_shutdown_does_not_begin_it_anew() {
    let (login, mut rig) = settled().await;
    login.set_preparing(true);
    login.say(true, ShutdownKind::Kexec).await;
    let before = rig.until("preparing", |s| s.preparing).await;
    tokio::time::sleep(secs(2)).await;
    login.hang_up();
    rig.until("told", |s| s.lock != LockState::Held).await;
    let after = rig.until_held().await;
    assert_eq!(after, before, "same epoch, same beginning, same kind, same lock");
    assert_eq!((login.held(), login.count("inhibit")), (vec![true], 1));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_took_the_place_of_another_while_the_bus_was_away_has_its_own_kind() {
    let (login, rig) = settled().await;
    login.set_preparing(true);
    for (kind, message) in [(ShutdownKind::Reboot, "kernel"), (ShutdownKind::PowerOff, "moved")] {
        login.set_announced(kind);
        login.set_message(Some(message));
        match kind {
            ShutdownKind::Reboot => login.say(true, kind).await,
            _ => login.hang_up(),
        }
        rig.quiet().await;
        let InhibitorState { kind: found, request, epoch, .. } = rig.now();
        assert_eq!((found, epoch), (kind, 1));
        assert_eq!(request.unwrap().message.as_deref(), Some(message));
    }
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_restarts_after_the_release_does_not_bring_the_lock_back() {
    let (login, rig) = shutting_down().await;
    rig.inhibitor.release().await;
    login.hang_up();
    rig.quiet().await;
    assert_eq!((rig.now().lock, login.held()), (LockState::Released, vec![false]));
}

#[tokio::test(start_paused = true)]
async fn a_new_login_manager_that_knows_of_no_shutdown_calls_the_old_one_off() {
    let (login, mut rig) = shutting_down().await;
    login.set_preparing(false);
    login.tell(LogindEvent::Back).await;
    rig.until("cancelled", |s| !s.preparing).await;
    rig.until_held().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_refused_because_of_a_shutdown_we_had_not_heard_of_leads_to_that_shutdown() {
    let login = Scripted::giving(secs(30));
    login.act("get InhibitDelayMaxUSec", Act::After(secs(1)));
    let mut rig = Rig::start(&login, secs(30));
    rig.until("reading the delay", |_| login.count("get InhibitDelayMaxUSec") == 1).await;
    login.set_preparing(true);
    let state = rig.until("preparing", |s| s.preparing).await;
    assert_eq!(state.epoch, 1);
    assert_eq!((login.count("inhibit"), login.count("connect")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lock_refused_for_a_shutdown_that_the_property_denies_is_tried_again_without_haste() {
    let login = Scripted::giving(secs(30));
    login.act("inhibit", Act::InProgress);
    let mut rig = Rig::start(&login, secs(30));
    tokio::time::sleep(secs(60)).await;
    assert!(login.count("inhibit") < 50, "{} calls in a minute", login.count("inhibit"));
    assert!(rig.why().contains("already under way"), "{}", rig.why());
    login.behave("inhibit");
    rig.until_held().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_signals_is_followed_without_losing_the_last_one() {
    let (login, mut rig) = settled().await;
    for _ in 0..1000 {
        login.say(false, ShutdownKind::Unknown).await;
    }
    login.prepare(true).await;
    rig.until("preparing", |s| s.preparing).await;
    rig.inhibitor.release().await;
    assert!(login.held().iter().all(|held| !held));
}

/// logind of systemd 255 has the signal with metadata, but not the property; what it has scheduled says `reboot`.
#[tokio::test(start_paused = true)]
async fn what_the_signal_says_of_a_soft_reboot_outweighs_what_is_scheduled() {
    let (login, mut rig) = settled().await;
    login.set_preparing(true);
    login.set_kind(ShutdownKind::Reboot);
    login.say(true, ShutdownKind::SoftReboot).await;
    rig.until("preparing", |s| s.preparing).await;
    rig.quiet().await;
    assert_eq!(rig.now().kind, ShutdownKind::SoftReboot);
}
