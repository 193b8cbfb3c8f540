//! The delay that logind gives, and the drop-in that raises it.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs;
use std::sync::Arc;

use tokio::time::Instant;
use winddown_shared::{Inhibitor as _, LockState};

use super::scripted::{Act, Scripted};
use super::{Rig, secs, settled, shutting_down};
use crate::{Bus, InhibitorConfig, drop_in};

#[tokio::test(start_paused = true)]
async fn no_override_when_the_delay_is_more_than_the_total() {
    let rig = Rig::settled(&Scripted::giving(secs(40)), secs(30)).await;
    assert_eq!((rig.now().delay, rig.now().delay_set_by), (Some(secs(40)), None));
    assert_eq!(rig.login.count("reload"), 0);
    assert!(!rig.drop_in().exists());
}

#[tokio::test(start_paused = true)]
async fn no_override_when_the_delay_equals_the_total_and_all_of_it_is_for_critical_pods() {
    let rig = Rig::settled(&Scripted::giving(secs(5)), secs(5)).await;
    assert_eq!(rig.now().delay, Some(secs(5)));
    assert_eq!(rig.login.count("reload"), 0);
    assert!(!rig.drop_in().exists());
}

#[tokio::test(start_paused = true)]
async fn who_looks_again_sees_the_delay_of_now_and_waits_for_no_silent_logind() {
    let rig = Rig::settled(&Scripted::giving(secs(40)), secs(30)).await;
    rig.login.set_delay(secs(35));
    assert_eq!(rig.now().delay, Some(secs(40)), "no signal says so");
    let begun = Instant::now();
    rig.inhibitor.look_again().await;
    assert_eq!((rig.now().delay, begun.elapsed()), (Some(secs(35)), secs(0)));
    rig.login.act("get InhibitDelayMaxUSec", Act::Hang);
    rig.inhibitor.look_again().await;
    assert_eq!(rig.now().delay, Some(secs(35)), "what was read last");
    assert!(begun.elapsed() <= secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn override_successful() {
    let login = Scripted::giving(secs(5)).reloading_to(secs(30), secs(0));
    let rig = Rig::settled(&login, secs(30)).await;
    assert_eq!((rig.now().delay, rig.now().delay_set_by), (Some(secs(30)), None));
    assert_eq!(rig.login.count("reload"), 1);
    let text = fs::read_to_string(rig.drop_in()).expect("the drop-in");
    assert_eq!(text, drop_in::content("winddown", secs(30)));
}

#[tokio::test(start_paused = true)]
async fn override_successful_although_logind_applies_it_three_seconds_late() {
    let login = Scripted::giving(secs(5)).reloading_to(secs(30), secs(3));
    let mut rig = Rig::start(&login, secs(30));
    rig.until_held().await;
    assert_eq!(rig.now().delay, Some(secs(5)), "the lock does not wait for the delay");
    rig.until("raised", |s| s.delay == Some(secs(30))).await;
    assert!(login.count("get InhibitDelayMaxUSec") < 12, "{:?}", login.trace());
}

#[tokio::test(start_paused = true)]
async fn a_look_at_the_delay_while_it_is_raised_does_not_begin_that_again() {
    let login = Scripted::giving(secs(5)).reloading_to(secs(30), secs(3));
    let mut rig = Rig::start(&login, secs(30));
    rig.until_held().await;
    for _ in 0..5 {
        tokio::time::sleep(secs(1) / 2).await;
        rig.inhibitor.look_again().await;
    }
    rig.until("raised", |s| s.delay == Some(secs(30))).await;
    rig.quiet().await;
    assert_eq!(login.count("reload"), 1, "{:?}", login.trace());
}

#[tokio::test(start_paused = true)]
async fn override_unsuccessful_keeps_the_lock_and_gives_what_there_is() {
    let login = Scripted::giving(secs(5)).reloading_to(secs(5), secs(0));
    let rig = Rig::settled(&login, secs(30)).await;
    let state = rig.now();
    assert_eq!((state.lock, state.delay), (LockState::Held, Some(secs(5))));
    assert_eq!(state.delay_set_by, None, "no file says less than 30 s");
    assert_eq!(login.count("reload"), 1);
}

#[tokio::test(start_paused = true)]
async fn override_unsuccessful_with_zero_time() {
    let login = Scripted::giving(secs(0)).reloading_to(secs(0), secs(0));
    let rig = Rig::settled(&login, secs(5)).await;
    assert_eq!((rig.now().lock, rig.now().delay), (LockState::Held, Some(secs(0))));
}

#[tokio::test(start_paused = true)]
async fn override_that_loses_to_a_later_name_tells_the_file_and_does_not_wait() {
    let login = Scripted::giving(secs(3)).reloading_to(secs(3), secs(0));
    let mut rig = Rig::start_with(&login, secs(30), |config| {
        let directory = root_of(config).join("usr/lib/systemd/logind.conf.d");
        fs::create_dir_all(&directory).expect("a directory");
        let text = "[Login]\nInhibitDelayMaxSec=3\n";
        fs::write(directory.join("zzz-site.conf"), text).expect("a file");
    });
    let winner: Arc<str> = "/usr/lib/systemd/logind.conf.d/zzz-site.conf".into();
    let state = rig.until("told who won", |s| s.delay_set_by.is_some()).await;
    assert_eq!((state.delay, state.delay_set_by), (Some(secs(3)), Some(winner)));
    assert_eq!(state.lock, LockState::Held);
    assert_eq!(login.count("get InhibitDelayMaxUSec"), 2, "what the files say is final");
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_is_refused_shrinks_the_delay_and_keeps_the_lock() {
    let login = Scripted::giving(secs(5));
    login.act("reload", Act::Refuse);
    let rig = Rig::settled(&login, secs(30)).await;
    assert_eq!((rig.now().lock, rig.now().delay), (LockState::Held, Some(secs(5))));
}

#[tokio::test(start_paused = true)]
async fn beside_a_stand_in_nothing_is_written_unless_it_is_said_where() {
    let login = Scripted::giving(secs(5)).reloading_to(secs(30), secs(0));
    let mut rig = Rig::start_with(&login, secs(30), |config| {
        config.root = None;
        config.bus = Bus::Address("unix:path=/nonexistent/bus".to_owned());
    });
    rig.until_held().await;
    rig.quiet().await;
    assert_eq!((rig.now().lock, rig.now().delay), (LockState::Held, Some(secs(5))));
    assert_eq!(login.count("reload"), 0, "what is written is followed by a reload");
}

#[tokio::test(start_paused = true)]
async fn a_changed_wish_is_applied_while_running_and_can_go_down_again() {
    let login = Scripted::giving(secs(5)).reloading_to(secs(30), secs(0));
    let mut rig = Rig::settled(&login, secs(30)).await;

    let login = login.reloading_to(secs(60), secs(0));
    rig.inhibitor.set_wanted_delay(secs(60));
    rig.until("raised again", |s| s.delay == Some(secs(60))).await;

    // Our own file sets more than is wanted now: it must not delay every other inhibitor.
    let login = login.reloading_to(secs(20), secs(2));
    rig.inhibitor.set_wanted_delay(secs(20));
    rig.until("lowered", |s| s.delay == Some(secs(20))).await;
    let text = fs::read_to_string(rig.drop_in()).expect("the drop-in");
    assert_eq!(drop_in::inhibit_delay(&text), Some(secs(20)));
    assert_eq!(login.count("reload"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_longer_delay_that_others_set_is_left_alone() {
    let rig = Rig::settled(&Scripted::giving(secs(300)), secs(30)).await;
    rig.inhibitor.set_wanted_delay(secs(10));
    rig.quiet().await;
    assert_eq!(rig.login.count("reload"), 0);
    assert!(!rig.drop_in().exists());
}

#[tokio::test(start_paused = true)]
async fn the_delay_is_not_touched_while_a_shutdown_is_under_way() {
    let (login, mut rig) = shutting_down().await;
    rig.inhibitor.set_wanted_delay(secs(60));
    rig.quiet().await;
    assert_eq!(login.count("reload"), 0);

    let login = login.reloading_to(secs(60), secs(0));
    login.prepare(false).await;
    rig.until("raised after the cancel", |s| s.delay == Some(secs(60))).await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_was_lowered_behind_our_back_is_found_by_the_recheck() {
    let (login, mut rig) = settled().await;
    login.set_delay(secs(5));
    let login = login.reloading_to(secs(30), secs(0));
    rig.until("found", |s| s.delay == Some(secs(5))).await;
    rig.until("raised", |s| s.delay == Some(secs(30))).await;
    assert_eq!(login.count("reload"), 1);
    assert_eq!(rig.now().lock, LockState::Held);
}

/// logind's timer has the delay of that moment. What it reads of its files later is for the next shutdown.
#[tokio::test(start_paused = true)]
async fn the_delay_of_a_shutdown_is_read_when_it_begins_and_not_while_it_lasts() {
    let (login, mut rig) = settled().await;
    login.set_delay(secs(5));
    let begun = tokio::time::Instant::now();
    login.prepare(true).await;
    rig.until("read at the signal", |s| s.preparing && s.delay == Some(secs(5))).await;
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    login.set_delay(secs(3));
    tokio::time::sleep(secs(300)).await;
    assert_eq!(rig.now().delay, Some(secs(5)));
    login.prepare(false).await;
    rig.until("read for the next one", |s| s.delay != Some(secs(5))).await;
}

fn put(root: &std::path::Path, file: &str, seconds: u64) {
    let file = root.join(file);
    fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
    fs::write(file, format!("[Login]\nInhibitDelayMaxSec={seconds}\n")).expect("a file");
}

fn root_of(config: &InhibitorConfig) -> &std::path::Path {
    config.root.as_deref().expect("the rig has one")
}

const FOREIGN: &str = "usr/lib/systemd/logind.conf.d/another-package.conf";

#[tokio::test(start_paused = true)]
async fn beside_another_packages_longer_delay_a_file_left_from_before_goes() {
    for wanted in [0, 22] {
        // As an earlier agent left it: our file has the last name and gives less.
        let login = Scripted::giving(secs(22)).reloading_to(secs(60), secs(0));
        let mut rig = Rig::start_with(&login, secs(wanted), |config| {
            put(root_of(config), FOREIGN, 60);
            drop_in::write(root_of(config), "winddown", secs(22)).expect("it is written");
        });
        rig.until("what the other package gives", |s| s.delay == Some(secs(60))).await;
        rig.until_held().await;
        assert!(!rig.drop_in().exists(), "wanted {wanted}");
        assert_eq!((login.count("reload"), rig.now().delay_set_by), (1, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_nothing_takes_our_file_away_and_leaves_systemds_own_delay() {
    let login = Scripted::giving(secs(5)).reloading_to(secs(30), secs(0));
    let mut rig = Rig::settled(&login, secs(30)).await;
    assert!(rig.drop_in().exists());
    let _login = login.reloading_to(secs(5), secs(1));
    rig.inhibitor.set_wanted_delay(secs(0));
    rig.until("lowered", |s| s.delay == Some(secs(5))).await;
    assert!(!rig.drop_in().exists());
}

#[tokio::test(start_paused = true)]
async fn a_package_that_comes_later_with_a_longer_delay_gets_it() {
    let login = Scripted::giving(secs(5)).reloading_to(secs(30), secs(0));
    let mut rig = Rig::settled(&login, secs(30)).await;
    put(rig.root.path(), FOREIGN, 60);
    let login = login.reloading_to(secs(60), secs(0));
    rig.until("found by the recheck", |s| s.delay == Some(secs(60))).await;
    assert!(!rig.drop_in().exists());
    assert_eq!(login.count("reload"), 2);
    // Nothing has changed since: the files are checked, and logind is left alone.
    tokio::time::sleep(secs(600)).await;
    assert_eq!(login.count("reload"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_was_cut_short_is_made_up_for() {
    for is_asked in [true, false] {
        let login = Scripted::giving(secs(5)).reloading_to(secs(30), secs(0));
        let rig = Rig::settled(&login, secs(30)).await;
        put(rig.root.path(), FOREIGN, 60);
        login.act("reload", Act::Hang);
        let begun = login.count("reload");
        if is_asked {
            rig.inhibitor.set_wanted_delay(secs(30));
        }
        while login.count("reload") == begun {
            tokio::time::sleep(secs(1)).await;
        }
        assert!(!rig.drop_in().exists(), "it gives less than the other package");
        login.behave("reload");
        let login = login.reloading_to(secs(60), secs(0));
        match is_asked {
            true => rig.inhibitor.set_wanted_delay(secs(30)),
            false => login.prepare(false).await,
        }
        rig.quiet().await;
        assert_eq!(rig.now().delay, Some(secs(60)), "{:?}", login.trace());
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_agent_left_to_be_reloaded_is_reloaded() {
    let login = Scripted::giving(secs(22)).reloading_to(secs(60), secs(0));
    let mut rig = Rig::start_with(&login, secs(22), |config| put(root_of(config), FOREIGN, 60));
    rig.until("what the other package gives", |s| s.delay == Some(secs(60))).await;
    assert_eq!(login.count("reload"), 1);
}
