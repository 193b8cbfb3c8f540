use std::time::Duration;

use super::super::correlate::{CorrelationStep, Correlator};
use super::super::queue::Queued;
use super::*;

/// The step in words: `new <message>`, `<count>` or `held`.
fn observe(correlator: &mut Correlator, draft: EventDraft, since: Instant) -> String {
    let queued = Queued { draft, at: at(0), since, number: 0 };
    match correlator.observe(&queued) {
        CorrelationStep::Create { key, message } => {
            correlator.written(&key, "written".into());
            format!("new {message}")
        }
        CorrelationStep::Repeat { count, .. } => count.to_string(),
        CorrelationStep::HoldBack => "held".to_owned(),
    }
}

fn after(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn the_same_event_again_is_one_series() {
    let (mut correlator, start) = (Correlator::new(), Instant::now());
    let mut seen = |message: &str, seconds| {
        observe(&mut correlator, routine("a", message), after(start, seconds))
    };
    assert_eq!(seen("m", 0), "new m");
    assert_eq!(seen("m", 1), "2");
    assert_eq!(seen("other", 2), "new other");
    assert_eq!(seen("m", 500), "3");
    assert_eq!(seen("m", 1099), "4", "a series lasts ten minutes from its last event");
    assert_eq!(seen("m", 1700), "new m");
}

#[tokio::test(start_paused = true)]
async fn reason_object_part_and_kind_tell_series_apart() {
    let (mut correlator, now) = (Correlator::new(), Instant::now());
    let first = routine("a", "m");
    let container = first.about.clone().at("spec.containers{x}");
    for draft in [
        first.clone(),
        EventDraft { reason: "Other".into(), ..first.clone() },
        EventDraft { kind: EventKind::Warning, ..first.clone() },
        EventDraft { about: container, ..first.clone() },
        routine("b", "m"),
    ] {
        assert_eq!(observe(&mut correlator, draft, now), "new m");
    }
    assert_eq!(observe(&mut correlator, first, now), "2");
}

#[tokio::test(start_paused = true)]
async fn more_than_ten_messages_for_one_reason_become_one_series() {
    let (mut correlator, start) = (Correlator::new(), Instant::now());
    let mut seen = |i: u64, seconds| {
        observe(&mut correlator, routine("a", &format!("try {i}")), after(start, seconds))
    };
    for i in 0..10 {
        assert_eq!(seen(i, i), format!("new try {i}"));
    }
    assert_eq!(seen(10, 10), "new (combined from similar events): try 10");
    assert_eq!(seen(11, 11), "2");
    assert_eq!(seen(3, 12), "2", "a message that was there before goes on as its own series");
    assert_eq!(seen(12, 1000), "new try 12", "after ten minutes it is told anew");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_has_too_many_is_held_back_and_counts_all_the_same() {
    let (mut correlator, start) = (Correlator::new(), Instant::now());
    let mut seen =
        |name: &str, seconds| observe(&mut correlator, routine(name, "m"), after(start, seconds));
    assert_eq!(seen("a", 0), "new m");
    for count in 2..=25 {
        assert_eq!(seen("a", 0), count.to_string());
    }
    for _ in 26..=40 {
        assert_eq!(seen("a", 1), "held");
    }
    assert_eq!(seen("b", 1), "new m", "each object has its own measure");
    assert_eq!(seen("a", 301), "41", "one more every five minutes");
    assert_eq!(seen("a", 302), "held");
}

#[tokio::test(start_paused = true)]
async fn decisions_are_never_held_back() {
    let (mut correlator, now) = (Correlator::new(), Instant::now());
    for count in 1..100 {
        let seen = observe(&mut correlator, routine("a", "m").decided(), now);
        assert_eq!(seen, if count == 1 { "new m".to_owned() } else { count.to_string() });
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_bounded() {
    let (mut correlator, start) = (Correlator::new(), Instant::now());
    for i in 0..100_000_u32 {
        let now = start + Duration::from_secs(i.into());
        observe(&mut correlator, routine(&format!("pod-{i}"), "m"), now);
    }
    assert!(format!("{correlator:?}").len() < 8_000_000, "it forgets what is over");
}
