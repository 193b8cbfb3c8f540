use std::time::Duration;

use tokio::time::timeout;
use winddown_shared::PodUid;

use super::changes;

#[tokio::test(start_paused = true)]
async fn a_pod_that_changes_twice_before_anybody_looks_is_told_once() {
    let (sender, mut changes) = changes();
    for uid in ["a", "b", "a"] {
        sender.changed(&PodUid::new(uid));
    }
    assert_eq!(changes.next().await, Some(PodUid::new("a")));
    sender.changed(&PodUid::new("a"));
    assert_eq!(changes.next().await, Some(PodUid::new("b")));
    assert_eq!(changes.next().await, Some(PodUid::new("a")));
    assert!(timeout(Duration::from_secs(1), changes.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_was_told_before_the_last_sender_went_is_still_heard() {
    let (sender, mut changes) = changes();
    let other = sender.clone();
    other.changed(&PodUid::new("a"));
    drop((sender, other));
    assert_eq!(changes.next().await, Some(PodUid::new("a")));
    assert_eq!(changes.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_for_a_receiver_that_is_gone() {
    let (sender, changes) = changes();
    drop(changes);
    sender.changed(&PodUid::new("a"));
    assert!(sender.0.lock().order.is_empty());
}
