use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::NoticeAggregator;

const NOON: &str = "2026-11-20T12:00:00Z";

fn noon() -> WallTime {
    NOON.parse().expect("a time")
}

fn open(directory: &Path, boot: &str) -> (NoticeAggregator, OperatorSource) {
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("operator", None);
    let up = BootClock::new(|| Duration::from_secs(1000));
    let wall = WallClock::fixed(noon());
    let operator = OperatorSource::open(publisher, &[directory.to_owned()], boot, wall, up);
    (aggregator, operator)
}

/// Two places, of which the first is in memory, with an agent that is restarted whenever it is asked for.
struct Places([tempfile::TempDir; 2]);

impl Places {
    fn new() -> Self {
        Self([(); 2].map(|()| tempfile::tempdir().expect("a directory")))
    }

    fn open(&self) -> (NoticeAggregator, OperatorSource) {
        let aggregator = NoticeAggregator::new();
        let publisher = aggregator.publisher("operator", None);
        let up = BootClock::new(|| {
            Duration::from_secs(1000) + Duration::from_millis(ASKED.fetch_add(1, Ordering::SeqCst))
        });
        let places = self.0.each_ref().map(|place| place.path().to_owned());
        let wall = WallClock::fixed(noon());
        let operator = OperatorSource::open(publisher, &places, "boot-1", wall, up);
        (aggregator, operator)
    }

    /// Makes a place refuse what is written, and keep what it has.
    fn refuse(&self, place: usize, refuses: bool) {
        let place = self.0[place].path();
        for name in ["operator-notice.json", "operator-drain.json"] {
            let (file, aside) = (place.join(name), place.join(format!("{name}.aside")));
            // Nothing takes the place of a directory with something in it.
            if refuses {
                let _ = std::fs::rename(&file, &aside);
                std::fs::create_dir_all(file.join("full")).expect("made");
            } else {
                std::fs::remove_dir_all(&file).expect("removed");
                let _ = std::fs::rename(&aside, &file);
            }
        }
    }
}

/// Of two entries, the newer one must have the later time.
static ASKED: AtomicU64 = AtomicU64::new(0);

fn after(seconds: u64) -> Deadline {
    Deadline::At(noon().checked_add(Duration::from_secs(seconds)).expect("a time"))
}

/// Clocks that run with the paused one, each off by a number of seconds.
fn clocks() -> (WallClock, Arc<AtomicI64>, BootClock, Arc<AtomicI64>) {
    let (wall_off, boot_off) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let (wall, boot, origin) = (Arc::clone(&wall_off), Arc::clone(&boot_off), Instant::now());
    let read = move |since: WallTime, off: &AtomicI64| {
        let off = jiff::SignedDuration::from_secs(off.load(Ordering::SeqCst));
        (since + origin.elapsed()).checked_add(off).expect("in range")
    };
    let up = move || read(WallTime::UNIX_EPOCH, &boot).duration_since(WallTime::UNIX_EPOCH);
    (
        WallClock::new(move || read(noon(), &wall)),
        wall_off,
        BootClock::new(move || up().unsigned_abs()),
        boot_off,
    )
}

#[tokio::test]
async fn a_notice_outlives_the_agent_but_not_the_boot() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, operator) = open(directory.path(), "boot-1");
    operator.announce(after(120), "maintenance").await;
    drop(operator);

    let (aggregator, again) = open(directory.path(), "boot-1");
    let notice =
        aggregator.notices().borrow().in_effect.first().cloned().expect("the notice of before");
    assert_eq!((&*notice.source, &*notice.text), ("operator", "maintenance"));
    let left = notice.deadline.saturating_duration_since(Instant::now());
    assert!(left > Duration::from_secs(100) && left <= Duration::from_secs(120), "{left:?}");
    assert!(again.published().is_some());

    let (aggregator, _) = open(directory.path(), "boot-2");
    assert!(aggregator.notices().borrow().in_effect.is_empty());

    let (_, unknown) = open(directory.path(), "");
    unknown.announce(after(120), "maintenance").await;
    let (aggregator, _) = open(directory.path(), "");
    assert!(aggregator.notices().borrow().in_effect.is_empty(), "it may be of any boot");
}

#[tokio::test]
async fn a_withdrawn_notice_is_gone_for_good() {
    let directory = tempfile::tempdir().expect("a directory");
    let (aggregator, operator) = open(directory.path(), "boot-1");
    assert!(!operator.withdraw().await, "there was none");
    operator.announce(after(60), "").await;
    assert!(operator.withdraw().await);
    assert!(aggregator.notices().borrow().in_effect.is_empty());
    let (aggregator, _) = open(directory.path(), "boot-1");
    assert!(aggregator.notices().borrow().in_effect.is_empty());
}

#[tokio::test]
async fn an_operator_is_heard_who_has_said_something_to_this_agent_or_one_before_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let is_heard = |aggregator: &NoticeAggregator| !aggregator.notices().borrow().heard.is_empty();
    let (aggregator, operator) = open(directory.path(), "boot-1");
    assert!(!is_heard(&aggregator), "a run may go on for a notice that no disk took");
    operator.withdraw().await;
    assert!(is_heard(&aggregator));
    operator.announce(after(60), "").await;
    let (aggregator, _) = open(directory.path(), "boot-1");
    assert!(is_heard(&aggregator));
}

#[tokio::test]
async fn a_disk_that_refuses_costs_only_the_memory_of_it() {
    let (aggregator, operator) = open(Path::new("/proc/no/such/place"), "boot-1");
    operator.announce(after(60), "x").await;
    assert!(!aggregator.notices().borrow().in_effect.is_empty());
    assert!(operator.withdraw().await);
    assert!(aggregator.notices().borrow().in_effect.is_empty());
}

#[tokio::test]
async fn a_damaged_file_is_no_notice() {
    let directory = tempfile::tempdir().expect("a directory");
    for damage in ["", "{", "[]", "{\"version\":1}", "\u{0}\u{0}", &"9".repeat(10_000)] {
        std::fs::write(directory.path().join("operator-notice.json"), damage).expect("written");
        let (aggregator, operator) = open(directory.path(), "boot-1");
        assert!(aggregator.notices().borrow().in_effect.is_empty(), "{damage:?}");
        operator.announce(after(5), "").await;
        let (aggregator, _) = open(directory.path(), "boot-1");
        assert!(!aggregator.notices().borrow().in_effect.is_empty(), "the next one fixes it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_moves_the_deadline_within_seconds_both_ways() {
    let directory = tempfile::tempdir().expect("a directory");
    let (wall, off, boot, _) = clocks();
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("operator", None);
    let operator =
        OperatorSource::open(publisher, &[directory.path().to_owned()], "boot-1", wall, boot);
    let follows = operator.clone();
    let task = tokio::spawn(async move { follows.follow().await });
    operator.announce(after(3600), "maintenance").await;
    let mut notices = aggregator.notices();
    let first = notices.borrow_and_update().in_effect.first().cloned().expect("in force");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        !notices.has_changed().expect("the aggregator lives"),
        "a clock that only goes on is no news"
    );
    for step in [1800, -1200] {
        off.store(step, Ordering::SeqCst);
        let stepped = Instant::now();
        notices.changed().await.expect("the aggregator lives");
        assert!(stepped.elapsed() <= COMPARE, "{:?}", stepped.elapsed());
        let now = notices.borrow_and_update().in_effect.first().cloned().expect("in force");
        let moved = Duration::from_secs(step.unsigned_abs());
        let expected = if step > 0 { first.deadline - moved } else { first.deadline + moved };
        assert_eq!(now.deadline, expected);
        assert_eq!((now.since, &now.text), (first.since, &first.text));
    }
    // Without a notice nothing is compared, and the next one is.
    operator.withdraw().await;
    notices.borrow_and_update();
    tokio::time::sleep(Duration::from_secs(60)).await;
    operator.announce(after(3600), "again").await;
    notices.changed().await.expect("the aggregator lives");
    off.store(0, Ordering::SeqCst);
    notices.borrow_and_update();
    tokio::time::timeout(COMPARE * 2, notices.changed()).await.expect("in time").expect("alive");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_duration_is_moved_by_no_wall_clock_but_by_the_machines_sleep() {
    let directory = tempfile::tempdir().expect("a directory");
    let (wall, wall_off, boot, boot_off) = clocks();
    let open = |aggregator: &NoticeAggregator| {
        let publisher = aggregator.publisher("operator", None);
        OperatorSource::open(
            publisher,
            &[directory.path().to_owned()],
            "boot-1",
            wall.clone(),
            boot.clone(),
        )
    };
    let aggregator = NoticeAggregator::new();
    let operator = open(&aggregator);
    let follows = operator.clone();
    let task = tokio::spawn(async move { follows.follow().await });
    let ten_minutes = || Deadline::SinceBoot(boot.now() + Duration::from_secs(600));
    let (begun, mut notices) = (Instant::now(), aggregator.notices());
    operator.announce(ten_minutes(), "maintenance").await;
    let deadline =
        notices.borrow_and_update().in_effect.first().cloned().expect("in force").deadline;
    assert_eq!(deadline, begun + Duration::from_secs(600));
    for step in [3600, -3600, 0] {
        wall_off.store(step, Ordering::SeqCst);
        tokio::time::sleep(COMPARE * 3).await;
        assert!(
            !notices.has_changed().expect("the aggregator lives"),
            "the clock was set by {step} s"
        );
    }

    // The machine sleeps for a minute, which the clock that decides does not count.
    boot_off.store(60, Ordering::SeqCst);
    let slept = Instant::now();
    notices.changed().await.expect("the aggregator lives");
    assert!(slept.elapsed() <= COMPARE, "{:?}", slept.elapsed());
    let after_sleep = notices.borrow_and_update().in_effect.first().cloned().expect("in force");
    assert_eq!(after_sleep.deadline, deadline - Duration::from_secs(60));

    // The same words, given later, are another deadline.
    tokio::time::sleep(Duration::from_secs(120)).await;
    operator.announce(ten_minutes(), "maintenance").await;
    let given = notices.borrow_and_update().in_effect.first().cloned().expect("in force");
    assert_eq!(given.deadline, Instant::now() + Duration::from_secs(600));

    // No agent runs for a while, and the wall clock is set meanwhile.
    task.abort();
    drop(operator);
    tokio::time::sleep(Duration::from_secs(60)).await;
    wall_off.store(86_400, Ordering::SeqCst);
    let again = NoticeAggregator::new();
    let _operator = open(&again);
    let kept = again.notices().borrow().in_effect.first().cloned().expect("in force");
    assert_eq!(kept.deadline, given.deadline);
}

#[tokio::test]
async fn what_is_kept_is_not_of_a_system_that_was_started_anew_on_the_same_kernel() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, operator) = open(directory.path(), "boot-1");
    let drain = Drain::default();
    operator.announce(after(120), "maintenance").await;
    operator.store_drain(Some(drain.clone())).await;
    // It was said a thousand seconds after the kernel's boot.
    for (started, holds) in [(0, true), (1000, true), (1001, false)] {
        let up = BootClock::new(|| Duration::from_secs(2000))
            .with_system_start(Duration::from_secs(started));
        let wall = WallClock::fixed(noon());
        let publisher = NoticeAggregator::new().publisher("operator", None);
        let again =
            OperatorSource::open(publisher, &[directory.path().to_owned()], "boot-1", wall, up);
        assert_eq!(again.published().is_some(), holds, "{started}");
        assert_eq!(again.earlier_drain(), holds.then_some(drain.clone()), "{started}");
    }
    for boot in ["boot-2", ""] {
        assert_eq!(open(directory.path(), boot).1.earlier_drain(), None, "{boot:?}");
    }
    operator.store_drain(None).await;
    assert_eq!(open(directory.path(), "boot-1").1.earlier_drain(), None);
}

#[tokio::test]
async fn a_drain_that_is_found_has_what_was_left_of_its_time_however_much_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, operator) = open(directory.path(), "boot-1");
    let drain = |time| Drain { time: Some(time), ..Drain::default() };
    let given = Duration::from_millis(89_100);
    operator.store_drain(Some(drain(given))).await;
    for later in [0, 60, 90, 500] {
        let up = BootClock::new(move || Duration::from_secs(1000 + later));
        let publisher = NoticeAggregator::new().publisher("operator", None);
        let wall = WallClock::fixed(noon());
        let again =
            OperatorSource::open(publisher, &[directory.path().to_owned()], "boot-1", wall, up);
        let left = Duration::from_secs(90);
        assert_eq!(again.earlier_drain(), Some(drain(left)), "{later} s later");
    }
}

#[tokio::test]
async fn a_notice_that_only_a_run_has_kept_is_in_force_until_it_is_withdrawn() {
    let directory = tempfile::tempdir().expect("a directory");
    let (aggregator, operator) = open(directory.path(), "boot-1");
    let in_effect = || aggregator.notices().borrow().in_effect.first().cloned();
    // It is a thousand seconds after the kernel's boot.
    operator.restore(Duration::from_secs(1000), "past");
    assert!(in_effect().is_none());
    operator.restore(Duration::from_secs(1060), "rack 7 moves");
    operator.restore(Duration::from_secs(1001), "another");
    let notice = in_effect().expect("a notice");
    assert_eq!((&*notice.source, &*notice.text), ("operator", "rack 7 moves"));
    assert!(operator.withdraw().await && in_effect().is_none());
    // The record of the run still has it.
    let (aggregator, operator) = open(directory.path(), "boot-1");
    operator.restore(Duration::from_secs(1060), "rack 7 moves");
    assert!(aggregator.notices().borrow().in_effect.is_empty());
    assert!(!aggregator.notices().borrow().heard.is_empty());
}

#[tokio::test]
async fn what_one_of_two_places_takes_is_known_to_the_next_agent() {
    for refusing in [0, 1] {
        let places = Places::new();
        let (_, operator) = places.open();
        operator.announce(after(60), "rack 7 moves").await;
        operator.store_drain(Some(Drain::default())).await;
        places.refuse(refusing, true);
        assert!(operator.withdraw().await);
        operator.store_drain(None).await;
        assert_eq!(operator.problem(&OperatorSubject::ALL), None);
        places.refuse(refusing, false);
        let (aggregator, operator) = places.open();
        assert!(aggregator.notices().borrow().in_effect.is_empty(), "{refusing}");
        assert_eq!(operator.earlier_drain(), None, "{refusing}");

        places.refuse(refusing, true);
        operator.announce(after(60), "rack 8 moves").await;
        operator.store_drain(Some(Drain::default())).await;
        assert_eq!(operator.problem(&OperatorSubject::ALL), None);
        places.refuse(refusing, false);
        let (aggregator, operator) = places.open();
        let text = aggregator.notices().borrow().in_effect.first().map(|n| n.text.to_string());
        assert_eq!(text.as_deref(), Some("rack 8 moves"), "{refusing}");
        assert_eq!(operator.earlier_drain(), Some(Drain::default()), "{refusing}");
    }
}

#[tokio::test]
async fn what_no_place_takes_is_a_problem_until_one_does() {
    let places = Places::new();
    let (aggregator, operator) = places.open();
    let shown = || aggregator.source_statuses()[0].problem.as_deref().map(str::to_owned);
    operator.announce(after(60), "").await;
    places.refuse(0, true);
    places.refuse(1, true);
    operator.withdraw().await;
    let notice = operator.problem(&[OperatorSubject::Notice]).expect("a problem");
    assert!(notice.contains("operator-notice.json"), "{notice}");
    assert!(notice.contains("undrain` again"), "{notice}");
    operator.store_drain(Some(Drain::default())).await;
    let drain = operator.problem(&[OperatorSubject::Drain]).expect("a problem");
    assert!(drain.contains("that the node is drained") && !drain.contains("undrain"), "{drain}");
    assert_eq!(shown(), Some(format!("{notice}; {drain}")));
    places.refuse(1, false);
    operator.withdraw().await;
    operator.store_drain(None).await;
    assert_eq!((operator.problem(&OperatorSubject::ALL), shown()), (None, None));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_a_problem_and_not_an_answer() {
    let places = Places::new();
    let (_, operator) = places.open();
    let by = RequestReport { uid: Some(1000), ..RequestReport::default() };
    let drain = Drain { requested_by: Some(by), ..Drain::default() };
    operator.store_drain(Some(drain.clone())).await;
    let file = |place: usize| places.0[place].path().join("operator-drain.json");
    std::fs::write(file(1), "{").expect("written");
    let (_, operator) = places.open();
    assert_eq!(
        (operator.earlier_drain(), operator.problem(&OperatorSubject::ALL)),
        (Some(drain), None)
    );
    std::fs::remove_file(file(0)).expect("removed");
    let (aggregator, operator) = places.open();
    let said = operator.problem(&[OperatorSubject::Drain]).expect("a problem");
    assert!(said.contains("drain the node again if it was drained"), "{said}");
    assert_eq!(aggregator.source_statuses()[0].problem.as_deref(), Some(&*said));
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_gives_again_is_a_notice_of_its_own_and_no_moment_is_without_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let (aggregator, operator) = open(directory.path(), "boot-1");
    let notices = aggregator.notices();
    let since = || notices.borrow().in_effect.first().map(|notice| notice.since);
    operator.announce(after(60), "battery").await;
    let first = since();
    assert_eq!(first, Some(Instant::now()));
    tokio::time::sleep(Duration::from_secs(20)).await;
    for left in [60, 90] {
        let mut seen = aggregator.notices();
        operator.announce(after(left), "battery").await;
        assert_eq!(since(), Some(Instant::now()), "a run for the first one may be over");
        assert!(seen.has_changed().expect("alive"), "{left}");
        assert!(!seen.borrow_and_update().in_effect.is_empty());
    }
}
