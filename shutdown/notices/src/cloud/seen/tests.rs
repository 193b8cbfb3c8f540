#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use proptest::prelude::*;

use super::*;
use crate::When;

fn noon(offset: i64) -> WallTime {
    let noon: WallTime = "2026-11-20T12:00:00Z".parse().expect("a time");
    noon.checked_add(jiff::SignedDuration::from_secs(offset)).expect("in range")
}

fn event(id: &str, not_before: Option<i64>) -> CloudEvent {
    let not_before = not_before.map(noon);
    let when = not_before.map_or(When::In(std::time::Duration::from_secs(5)), When::At);
    CloudEvent { id: id.to_owned(), not_before, announced: Announcement::new(when, id) }
}

async fn open(directory: &tempfile::TempDir, boot: &str) -> SeenEvents {
    SeenEvents::open(directory.path().join("events.json"), boot).await
}

/// Returns the event that counts when these are listed on a machine that came up at noon.
async fn counts(seen: &mut SeenEvents, listed: &[CloudEvent]) -> Option<String> {
    seen.take(listed, Some(noon(0))).await;
    seen.earliest(listed, Some(noon(0))).map(|event| event.id.clone())
}

#[tokio::test]
async fn an_event_with_a_time_counts_if_that_is_not_before_the_boot() {
    let directory = tempfile::tempdir().expect("a directory");
    type Case<'a> = (&'a [(&'a str, i64)], Option<&'a str>);
    let cases: [Case<'_>; 6] = [
        (&[], None),
        (&[("reboot", -1)], None),
        (&[("reboot", 0)], Some("reboot")),
        (&[("reboot", 600)], Some("reboot")),
        (&[("done", -900), ("next", 86_400)], Some("next")),
        (&[("later", 900), ("sooner", 300), ("done", -300)], Some("sooner")),
    ];
    for (listed, expected) in cases {
        let listed: Vec<_> = listed.iter().map(|(id, at)| event(id, Some(*at))).collect();
        // However often it is polled, and whatever was seen in the boot before.
        for boot in ["one", "one", "two"] {
            let mut seen = open(&directory, boot).await;
            assert_eq!(counts(&mut seen, &listed).await.as_deref(), expected, "{listed:?}");
        }
    }
    let mut seen = open(&directory, "one").await;
    let past = [event("reboot", Some(-1))];
    assert!(seen.earliest(&past, None).is_some(), "when the machine came up is not known");
}

#[tokio::test]
async fn an_event_that_has_started_counts_in_the_boot_that_it_ends_and_in_no_later_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let started = [event("reboot", None)];
    for agent in 0..2 {
        let mut seen = open(&directory, "one").await;
        assert_eq!(counts(&mut seen, &started).await.as_deref(), Some("reboot"), "agent {agent}");
    }
    for agent in 0..2 {
        let mut seen = open(&directory, "two").await;
        assert_eq!(counts(&mut seen, &started).await, None, "agent {agent} after the reboot");
        let other = [event("reboot", None), event("another", None)];
        assert_eq!(counts(&mut seen, &other).await.as_deref(), Some("another"));
        // Once it is no longer listed it is over; a later event with that id is a new one.
        seen.take(&started, Some(noon(0))).await;
    }
    let mut seen = open(&directory, "two").await;
    assert_eq!(counts(&mut seen, &[]).await, None);
    assert!(!directory.path().join("events.json").exists(), "nothing is left to be kept");
    assert_eq!(counts(&mut seen, &started).await.as_deref(), Some("reboot"));
}

#[tokio::test]
async fn an_event_that_was_announced_and_started_too_quickly_to_be_seen_is_over_after_the_boot() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut seen = open(&directory, "one").await;
    assert!(counts(&mut seen, &[event("reboot", Some(900))]).await.is_some());
    let mut seen = open(&directory, "two").await;
    assert_eq!(counts(&mut seen, &[event("reboot", None)]).await, None);
}

#[tokio::test]
async fn an_event_that_is_ahead_after_an_unrelated_reboot_counts_when_it_starts() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ahead, started) = ([event("reboot", Some(900))], [event("reboot", None)]);
    let mut seen = open(&directory, "one").await;
    assert!(counts(&mut seen, &ahead).await.is_some());
    let mut seen = open(&directory, "two").await;
    assert!(counts(&mut seen, &ahead).await.is_some());
    let mut seen = open(&directory, "two").await;
    assert!(counts(&mut seen, &started).await.is_some());
}

#[tokio::test]
async fn an_event_that_was_over_when_first_listed_does_not_count_once_it_carries_no_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut seen = open(&directory, "two").await;
    assert_eq!(counts(&mut seen, &[event("reboot", Some(-60))]).await, None);
    let started = [event("reboot", None)];
    assert_eq!(counts(&mut seen, &started).await, None);
    let mut seen = open(&directory, "two").await;
    assert_eq!(counts(&mut seen, &started).await, None, "after a restart of the agent");
}

#[tokio::test]
async fn what_a_disk_refused_is_written_when_it_takes_it_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    let file = missing.join("events.json");
    let mut seen = SeenEvents::open(file.clone(), "one").await;
    let started = [event("reboot", None)];
    assert!(counts(&mut seen, &started).await.is_some());
    assert!(!file.exists(), "its directory is missing");
    std::fs::create_dir(&missing).expect("made");
    assert!(counts(&mut seen, &started).await.is_some());
    let mut seen = SeenEvents::open(file, "two").await;
    assert_eq!(counts(&mut seen, &started).await, None, "an earlier boot was for it");
}

#[tokio::test]
async fn without_a_disk_or_a_boot_id_everything_counts_and_nothing_is_kept() {
    let started = [event("reboot", None)];
    let mut seen = SeenEvents::open("/proc/no/such/place".into(), "one").await;
    assert!(counts(&mut seen, &started).await.is_some());
    let directory = tempfile::tempdir().expect("a directory");
    for damage in ["", "{", "[]", "{\"version\":2,\"events\":{}}"] {
        let file = directory.path().join("events.json");
        std::fs::write(&file, damage).expect("written");
        let mut seen = open(&directory, "").await;
        assert!(counts(&mut seen, &started).await.is_some(), "{damage:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("as it was"), damage);
    }
}

#[tokio::test]
async fn a_service_that_lists_without_end_is_not_kept_without_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut seen = open(&directory, "one").await;
    let listed: Vec<_> =
        (0..1000).map(|n| event(&format!("{n}{}", "x".repeat(500)), None)).collect();
    assert!(counts(&mut seen, &listed).await.is_some());
    assert_eq!(seen.boots.len(), MAX_KEPT_EVENTS);
    assert!(seen.boots.keys().all(|key| key.chars().count() == LONGEST_ID));
}

proptest! {
    /// After a reboot, the machine ignores everything that had started before, and acts on everything
    /// whose time is yet to come.
    #[test]
    fn a_boot_in_between_separates_what_was_from_what_comes(
        before in prop::collection::vec((0..6_u8, prop::option::of(-5..5_i64)), 0..6),
        after in prop::collection::vec((0..6_u8, prop::option::of(-5..5_i64)), 0..6),
    ) {
        let mut seen = SeenEvents {
            file: KeptFile::at("/nowhere"),
            boot_id: "one".to_owned(),
            boots: BTreeMap::new(),
            refused: false,
            passed_over: None,
        };
        let of = |list: &[(u8, Option<i64>)]| -> Vec<CloudEvent> {
            list.iter().map(|(id, at)| event(&id.to_string(), *at)).collect()
        };
        let (before, after) = (of(&before), of(&after));
        seen.note(&before, Some(noon(-100)));
        seen.boot_id = "two".to_owned();
        for listed in &after {
            let known = before.iter().any(|old| old.id == listed.id);
            let expected = match listed.not_before {
                Some(at) => at >= noon(0),
                None => !known,
            };
            prop_assert_eq!(seen.is_ahead(listed, Some(noon(0))), expected, "{:?}", listed);
        }
    }
}
