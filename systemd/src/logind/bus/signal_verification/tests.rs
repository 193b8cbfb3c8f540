//! Verdicts on single messages, built by hand.

use std::collections::HashMap;

use proptest::prelude::*;
use serde::Serialize;
use tokio::time::Instant;
use winddown_shared::ShutdownKind;
use zbus::names::{OwnedUniqueName, UniqueName};
use zbus::{DynamicType, Message, Variant};

use super::{
    CHANGED, LOGIN_INTERFACE, LOGIN_PATH, MessageVerdict, PLAIN, PROPERTIES, SignalVerifier,
    WITH_METADATA,
};
use crate::logind::session::LogindEvent;

const LOGIND: &str = ":1.7";
const OTHER: &str = ":1.8";

fn name(name: &str) -> OwnedUniqueName {
    UniqueName::try_from(name.to_owned()).expect("a name").into()
}

/// Returns a verifier that knows logind as `:1.7`.
fn judge() -> SignalVerifier {
    let mut judge = SignalVerifier::new(true);
    judge.owner_is(Some(name(LOGIND)));
    judge
}

fn signal<B: Serialize + DynamicType>(sender: &str, member: &str, body: &B) -> Message {
    signal_at(sender, LOGIN_PATH, LOGIN_INTERFACE, member, body)
}

fn signal_at<B: Serialize + DynamicType>(
    sender: &str,
    path: &str,
    interface: &str,
    member: &str,
    body: &B,
) -> Message {
    let signal = Message::signal(path, interface, member);
    signal.sender(sender).build(body).expect("a message")
}

fn owner_change(sender: &str, name: &str, new: &str) -> Message {
    let body = (name, "", new);
    signal_at(sender, "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged", &body)
}

fn refused(verdict: &MessageVerdict) -> bool {
    matches!(verdict, MessageVerdict::Refused(_))
}

#[test]
fn the_owners_signal_is_believed_and_carries_the_time_it_came() {
    let at = Instant::now();
    for begins in [true, false] {
        let kind = ShutdownKind::Unknown;
        let believed = MessageVerdict::Believed(LogindEvent::Prepare { begins, kind, at });
        assert_eq!(judge().judge(&signal(LOGIND, PLAIN, &begins), at), believed);
    }
}

#[test]
fn signals_of_other_senders_are_refused() {
    let at = Instant::now();
    assert!(refused(&judge().judge(&signal(OTHER, PLAIN, &true), at)));
    let mut nobody = SignalVerifier::new(true);
    nobody.owner_is(None);
    assert!(refused(&nobody.judge(&signal(LOGIND, PLAIN, &true), at)));
    let mut unknown = SignalVerifier::new(true);
    assert_eq!(unknown.judge(&signal(LOGIND, PLAIN, &true), at), MessageVerdict::Other);
}

#[test]
fn the_owners_signal_in_the_wrong_place_or_with_the_wrong_body_is_refused() {
    let at = Instant::now();
    let empty: HashMap<&str, Variant<'_>> = HashMap::new();
    let messages = [
        signal_at(LOGIND, "/else/where", LOGIN_INTERFACE, PLAIN, &true),
        signal_at(LOGIND, LOGIN_PATH, "some.Interface", PLAIN, &true),
        signal(LOGIND, PLAIN, &()),
        signal(LOGIND, PLAIN, &"true"),
        signal(LOGIND, PLAIN, &1_u32),
        signal(LOGIND, PLAIN, &(true, true)),
        signal(LOGIND, PLAIN, &vec![true]),
        signal(LOGIND, WITH_METADATA, &true),
        signal(LOGIND, WITH_METADATA, &(empty, true)),
        signal(LOGIND, WITH_METADATA, &(true, "reboot")),
    ];
    for message in messages {
        assert!(refused(&judge().judge(&message, at)), "{message:?}");
    }
}

#[test]
fn the_metadata_tell_the_kind_and_odd_metadata_tell_nothing() {
    let cases = [
        ("type", Variant::from("poweroff"), ShutdownKind::PowerOff),
        ("type", Variant::from("halt"), ShutdownKind::Halt),
        ("type", Variant::from("reboot"), ShutdownKind::Reboot),
        ("type", Variant::from("kexec"), ShutdownKind::Kexec),
        ("type", Variant::from("soft-reboot"), ShutdownKind::SoftReboot),
        ("type", Variant::from("something new"), ShutdownKind::Unknown),
        ("type", Variant::from(7_u32), ShutdownKind::Unknown),
        ("other", Variant::from("reboot"), ShutdownKind::Unknown),
    ];
    let at = Instant::now();
    for (key, value, kind) in cases {
        let body = (true, HashMap::from([(key, value)]));
        let verdict = judge().judge(&signal(LOGIND, WITH_METADATA, &body), at);
        assert_eq!(
            verdict,
            MessageVerdict::Believed(LogindEvent::Prepare { begins: true, kind, at })
        );
    }
}

/// Builds a change of properties with one new value and one property that is only invalidated.
fn change(sender: &str, path: &str, interface: &str, new: &str, named: &str) -> Message {
    let new = HashMap::from([(new, Variant::from(true))]);
    signal_at(sender, path, PROPERTIES, CHANGED, &(interface, new, vec![named]))
}

#[test]
fn a_change_of_the_managers_properties_counts_if_it_may_be_about_a_shutdown() {
    let at = Instant::now();
    let changed = MessageVerdict::Believed(LogindEvent::Changed { at });
    let session = "/org/freedesktop/login1/session/c1";
    let cases = [
        (LOGIN_PATH, LOGIN_INTERFACE, "ScheduledShutdown", "Docked", true),
        (LOGIN_PATH, LOGIN_INTERFACE, "IdleHint", "PreparingForShutdown", true),
        (LOGIN_PATH, LOGIN_INTERFACE, "PreparingForShutdownWithMetadata", "Docked", true),
        (LOGIN_PATH, LOGIN_INTERFACE, "IdleHint", "DelayInhibited", false),
        (LOGIN_PATH, "org.freedesktop.LogControl1", "ScheduledShutdown", "Docked", false),
        (session, LOGIN_INTERFACE, "ScheduledShutdown", "Docked", false),
    ];
    for (path, interface, new, named, counts) in cases {
        let verdict = judge().judge(&change(LOGIND, path, interface, new, named), at);
        let expected = if counts { &changed } else { &MessageVerdict::Other };
        assert_eq!(verdict, *expected, "{path} {interface} {new} {named}");
    }
}

#[test]
fn a_change_that_another_sender_tells_of_is_refused_and_so_is_a_malformed_one() {
    let at = Instant::now();
    let told = |sender| change(sender, LOGIN_PATH, LOGIN_INTERFACE, "ScheduledShutdown", "Docked");
    assert!(refused(&judge().judge(&told(OTHER), at)));
    assert_eq!(SignalVerifier::new(true).judge(&told(LOGIND), at), MessageVerdict::Other);
    assert_eq!(
        SignalVerifier::new(false).judge(&told(OTHER), at),
        MessageVerdict::Believed(LogindEvent::Changed { at })
    );
    for body in [&("", true), &(LOGIN_INTERFACE, true)] {
        let malformed = signal_at(LOGIND, LOGIN_PATH, PROPERTIES, CHANGED, body);
        assert!(refused(&judge().judge(&malformed, at)));
    }
}

#[test]
fn only_the_bus_itself_can_tell_of_a_new_owner() {
    let at = Instant::now();
    let login1 = "org.freedesktop.login1";
    let mut judge = judge();
    assert_eq!(judge.judge(&owner_change(OTHER, login1, OTHER), at), MessageVerdict::Other);
    assert!(refused(&judge.judge(&signal(OTHER, PLAIN, &true), at)));
    let driver = "org.freedesktop.DBus";
    assert_eq!(judge.judge(&owner_change(driver, "some.Name", OTHER), at), MessageVerdict::Other);
    let back = MessageVerdict::Believed(LogindEvent::Back);
    assert_eq!(judge.judge(&owner_change(driver, login1, OTHER), at), back);
    assert!(refused(&judge.judge(&signal(LOGIND, PLAIN, &true), at)));
    assert!(!refused(&judge.judge(&signal(OTHER, PLAIN, &true), at)));
    let gone = MessageVerdict::Believed(LogindEvent::Gone);
    assert_eq!(judge.judge(&owner_change(driver, login1, ""), at), gone);
    assert!(refused(&judge.judge(&signal(OTHER, PLAIN, &true), at)));
}

#[test]
fn a_change_heard_before_the_answer_to_the_question_is_not_undone_by_the_answer() {
    let at = Instant::now();
    let mut judge = SignalVerifier::new(true);
    judge.judge(&owner_change("org.freedesktop.DBus", "org.freedesktop.login1", OTHER), at);
    judge.owner_is(Some(name(LOGIND)));
    assert!(!refused(&judge.judge(&signal(OTHER, PLAIN, &true), at)));
}

#[test]
fn without_a_bus_the_peer_is_believed_and_owner_changes_mean_nothing() {
    let at = Instant::now();
    let mut judge = SignalVerifier::new(false);
    let plain = Message::signal(LOGIN_PATH, LOGIN_INTERFACE, PLAIN);
    assert!(!refused(&judge.judge(&plain.build(&true).expect("a message"), at)));
    let forged = owner_change("org.freedesktop.DBus", "org.freedesktop.login1", "");
    assert_eq!(judge.judge(&forged, at), MessageVerdict::Other);
}

proptest! {
    #[test]
    fn no_body_makes_it_panic(text in ".*", number in any::<u64>(), flag in any::<bool>()) {
        let at = Instant::now();
        for member in [PLAIN, WITH_METADATA, CHANGED, "NameOwnerChanged", "Other"] {
            for sender in [LOGIND, "org.freedesktop.DBus"] {
                let text = text.replace('\0', "");
                judge().judge(&signal(sender, member, &text.as_str()), at);
                judge().judge(&signal(sender, member, &(flag, number)), at);
                judge().judge(&signal(sender, member, &vec![(number, text.as_str())]), at);
                judge().judge(&signal(sender, member, &Variant::from(number)), at);
            }
        }
    }
}
