use std::time::Duration;

use proptest::prelude::*;

use super::super::body;
use super::super::queue::{EventQueue, Fate};
use super::*;

fn messages(events: &Events) -> Vec<String> {
    std::iter::from_fn(|| events.take()).map(|draft| draft.message.to_string()).collect()
}

#[tokio::test]
async fn a_full_queue_drops_the_oldest_routine_event_and_never_blocks() {
    let events = events(3);
    events.send(routine("a", "decision").decided());
    for message in ["1", "2", "3", "4"] {
        events.send(routine("a", message));
    }
    assert_eq!(events.counts().dropped, 2);
    assert_eq!(messages(&events), ["decision", "3", "4"]);
}

#[tokio::test]
async fn decisions_only_make_way_for_decisions() {
    let events = events(2);
    for message in ["1", "2"] {
        events.send(routine("a", message).decided());
    }
    events.send(routine("a", "routine"));
    assert_eq!(events.counts().dropped, 1);
    events.send(routine("a", "3").decided());
    assert_eq!(messages(&events), ["2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_what_is_being_written_and_says_what_is_left() {
    let queue = Arc::new(EventQueue::new(10, wall()));
    for (message, decided) in [("1", false), ("2", false), ("3", true)] {
        let draft = routine("a", message);
        queue.push(if decided { draft.decided() } else { draft });
    }
    let first = queue.next().await;
    assert_eq!(&*first.draft.message, "1");
    let deadline = Instant::now() + Duration::from_secs(2);
    let flushed = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.flush(deadline).await }
    });
    queue.flushes().wait_for(|count| *count > 0).await.unwrap();
    queue.done(&first, Fate::Written);
    // From now on decisions go first.
    let third = queue.next().await;
    assert_eq!(&*third.draft.message, "3");
    queue.done(&third, Fate::Refused);
    assert_eq!(flushed.await.unwrap(), [Subject::pod(&pod("a"))]);
    assert_eq!(Instant::now(), deadline);
    let counts = queue.counts();
    assert_eq!((counts.written, counts.refused, counts.waiting), (1, 1, 1));
    assert_eq!(queue.flush(Instant::now()).await.len(), 1);
    let second = queue.next().await;
    queue.done(&second, Fate::HeldBack);
    assert_eq!(queue.flush(Instant::now() + Duration::from_secs(9)).await, []);
}

/// Otherwise the writer would be in haste for as long as the agent lives, whatever the API server does.
#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_ends_the_haste() {
    let queue = EventQueue::new(10, wall());
    queue.push(routine("a", "1"));
    let called_off = Duration::from_secs(1);
    let flush = queue.flush(Instant::now() + Duration::from_secs(9));
    assert!(tokio::time::timeout(called_off, flush).await.is_err());
    assert_eq!(*queue.flushes().borrow(), 0);
    assert_eq!(queue.flush(Instant::now() + called_off).await.len(), 1);
    assert_eq!(*queue.flushes().borrow(), 0);
}

#[tokio::test]
async fn names_differ_and_are_the_same_for_each_attempt() {
    let queue = EventQueue::new(10, wall());
    for _ in 0..3 {
        queue.push(routine("a", "m"));
    }
    let mut names = Vec::new();
    for _ in 0..3 {
        let queued = queue.next().await;
        queue.done(&queued, Fate::Written);
        names.push(body::name(&queued));
        assert_eq!(body::name(&queued), names[names.len() - 1]);
    }
    names.dedup();
    assert_eq!(names.len(), 3);
    assert!(names[0].starts_with("a."), "{names:?}");
}

proptest! {
    #[test]
    fn no_text_is_longer_than_the_api_takes(
        name in "[a-z0-9.-]{0,300}",
        message in "\\PC{0,1200}",
        reason in "\\PC{0,200}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let queue = EventQueue::new(1, wall());
        let draft = EventDraft::warning(Subject::pod(&pod(&name)), reason, message.as_str());
        queue.push(draft);
        let queued = runtime.block_on(queue.next());
        let event = body::body(&queued, &body::name(&queued), &message, "my-agent", "n1");
        prop_assert!(event.metadata.name.unwrap().len() <= 253);
        let note = event.note.unwrap();
        prop_assert!(note.len() <= 1024);
        prop_assert!(message.starts_with(note.strip_suffix("...").unwrap_or(&note)));
        prop_assert!(event.reason.unwrap().len() <= 128 && event.action.unwrap().len() <= 128);
    }
}

#[tokio::test]
async fn an_event_says_who_reports_and_about_what() {
    let queue = EventQueue::new(1, wall());
    let draft = EventDraft { annotations: vec![("k", "v".into())], ..routine("a", "m") };
    queue.push(draft);
    let queued = queue.next().await;
    let event = body::body(&queued, "a.1", "m", "my-agent", "n1");
    let json = serde_json::to_value(event).unwrap();
    let expected = serde_json::json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a.1", "namespace": "shop", "annotations": {"k": "v"}},
        "eventTime": "2027-01-15T08:00:00.000000Z",
        "type": "Normal",
        "reason": "Killing",
        "action": "Killing",
        "note": "m",
        "reportingController": "my-agent",
        "reportingInstance": "n1",
        "regarding":
            {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "a", "uid": "uid-a"},
    });
    assert_eq!(json, expected);
}
