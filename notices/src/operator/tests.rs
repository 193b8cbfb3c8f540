use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::Board;

const NOON: &str = "2026-11-20T12:00:00Z";

fn noon() -> WallTime {
    NOON.parse().expect("a time")
}

fn open(directory: &Path, boot: &str) -> (Board, Operator) {
    let board = Board::new();
    let voice = board.voice("operator", None);
    let file = directory.join("operator-notice.json");
    let operator = Operator::open(voice, file, boot, WallClock::fixed(noon()));
    (board, operator)
}

fn after(seconds: u64) -> WallTime {
    noon().checked_add(Duration::from_secs(seconds)).expect("a time")
}

#[tokio::test]
async fn a_notice_outlives_the_agent_but_not_the_boot() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, operator) = open(directory.path(), "boot-1");
    operator.give(after(120), "maintenance").await;
    drop(operator);

    let (board, again) = open(directory.path(), "boot-1");
    let notice = board.notices().borrow().clone().expect("the notice of before");
    assert_eq!((&*notice.source, &*notice.text), ("operator", "maintenance"));
    let left = notice.deadline.saturating_duration_since(Instant::now());
    assert!(left > Duration::from_secs(100) && left <= Duration::from_secs(120), "{left:?}");
    assert!(again.said().is_some());

    let (board, _) = open(directory.path(), "boot-2");
    assert!(board.notices().borrow().is_none());

    let (_, unknown) = open(directory.path(), "");
    unknown.give(after(120), "maintenance").await;
    let (board, _) = open(directory.path(), "");
    assert!(board.notices().borrow().is_none(), "it may be of any boot");
}

#[tokio::test]
async fn a_withdrawn_notice_is_gone_for_good() {
    let directory = tempfile::tempdir().expect("a directory");
    let (board, operator) = open(directory.path(), "boot-1");
    assert!(!operator.withdraw().await, "there was none");
    operator.give(after(60), "").await;
    assert!(operator.withdraw().await);
    assert!(board.notices().borrow().is_none());
    let (board, _) = open(directory.path(), "boot-1");
    assert!(board.notices().borrow().is_none());
}

#[tokio::test]
async fn a_disk_that_refuses_costs_only_the_memory_of_it() {
    let (board, operator) = open(Path::new("/proc/no/such/place"), "boot-1");
    operator.give(after(60), "x").await;
    assert!(board.notices().borrow().is_some());
    assert!(operator.withdraw().await);
    assert!(board.notices().borrow().is_none());
}

#[tokio::test]
async fn a_damaged_file_is_no_notice() {
    let directory = tempfile::tempdir().expect("a directory");
    for damage in ["", "{", "[]", "{\"version\":1}", "\u{0}\u{0}", &"9".repeat(10_000)] {
        std::fs::write(directory.path().join("operator-notice.json"), damage).expect("written");
        let (board, operator) = open(directory.path(), "boot-1");
        assert!(board.notices().borrow().is_none(), "{damage:?}");
        operator.give(after(5), "").await;
        let (board, _) = open(directory.path(), "boot-1");
        assert!(board.notices().borrow().is_some(), "the next one mends it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_moves_the_deadline_within_seconds_both_ways() {
    use std::sync::atomic::{AtomicI64, Ordering};
    let directory = tempfile::tempdir().expect("a directory");
    let off = Arc::new(AtomicI64::new(0));
    let (seconds, origin) = (Arc::clone(&off), Instant::now());
    let wall = WallClock::new(move || {
        let off = jiff::SignedDuration::from_secs(seconds.load(Ordering::SeqCst));
        (noon() + origin.elapsed()).checked_add(off).expect("in range")
    });
    let board = Board::new();
    let file = directory.path().join("operator-notice.json");
    let operator = Operator::open(board.voice("operator", None), file, "boot-1", wall);
    let follows = operator.clone();
    let task = tokio::spawn(async move { follows.follow().await });
    operator.give(after(3600), "maintenance").await;
    let mut notices = board.notices();
    let first = notices.borrow_and_update().clone().expect("in force");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        !notices.has_changed().expect("the board lives"),
        "a clock that only goes on is no news"
    );
    for step in [1800, -1200] {
        off.store(step, Ordering::SeqCst);
        let stepped = Instant::now();
        notices.changed().await.expect("the board lives");
        assert!(stepped.elapsed() <= COMPARE, "{:?}", stepped.elapsed());
        let now = notices.borrow_and_update().clone().expect("in force");
        let moved = Duration::from_secs(step.unsigned_abs());
        let expected = if step > 0 { first.deadline - moved } else { first.deadline + moved };
        assert_eq!(now.deadline, expected);
        assert_eq!((now.since, &now.text), (first.since, &first.text));
    }
    // Without a notice nothing is compared, and the next one is.
    operator.withdraw().await;
    notices.borrow_and_update();
    tokio::time::sleep(Duration::from_secs(60)).await;
    operator.give(after(3600), "again").await;
    notices.changed().await.expect("the board lives");
    off.store(0, Ordering::SeqCst);
    notices.borrow_and_update();
    tokio::time::timeout(COMPARE * 2, notices.changed()).await.expect("in time").expect("alive");
    task.abort();
}
