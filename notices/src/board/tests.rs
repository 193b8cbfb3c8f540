use proptest::prelude::*;
use tokio::time::advance;

use super::*;

fn noon() -> WallTime {
    "2026-11-20T12:00:00Z".parse().expect("a time")
}

fn at(seconds: u64) -> Announcement {
    let at = noon().checked_add(Duration::from_secs(seconds)).expect("in range");
    Announcement::new(When::At(at), "at")
}

fn within(seconds: u64) -> Announcement {
    Announcement::new(When::In(Duration::from_secs(seconds)), "in")
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn in_force(board: &Board) -> Option<(String, Duration)> {
    let notices = board.notices();
    let notice = notices.borrow();
    notice.as_ref().map(|n| (n.source.to_string(), n.deadline - Instant::now()))
}

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_wins_and_the_next_one_follows_when_it_is_withdrawn() {
    let board = Board::new();
    let (file, operator) = (board.voice("file", None), board.voice("operator", None));
    assert_eq!(in_force(&board), None);
    file.say(&at(120), noon());
    operator.say(&at(60), noon());
    assert_eq!(in_force(&board), Some(("operator".to_owned(), secs(60))));
    operator.withdraw();
    assert_eq!(in_force(&board), Some(("file".to_owned(), secs(120))));
    file.withdraw();
    assert_eq!(in_force(&board), None);
    file.withdraw();
}

#[tokio::test(start_paused = true)]
async fn saying_the_same_again_changes_nothing() {
    let board = Board::new();
    let voice = board.voice("gcp", None);
    voice.say(&within(30), noon());
    let mut notices = board.notices();
    notices.borrow_and_update();
    advance(secs(5)).await;
    voice.say(&within(30), noon());
    assert!(!notices.has_changed().expect("alive"), "a duration counts from its first word");
    voice.say(&at(25), noon());
    assert!(notices.has_changed().expect("alive"), "another text");
    notices.borrow_and_update();
    advance(secs(5)).await;
    voice.say(&at(25), noon().checked_add(secs(5)).expect("in range"));
    assert!(!notices.has_changed().expect("alive"), "the same wall time");
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_moves_the_deadline_but_not_the_beginning() {
    let board = Board::new();
    let voice = board.voice("file", None);
    let begun = Instant::now();
    voice.say(&at(600), noon());
    advance(secs(10)).await;
    // The clock was nine minutes late.
    voice.say(&at(600), noon().checked_add(secs(550)).expect("in range"));
    let notice = board.notices().borrow().clone().expect("a notice");
    assert_eq!(notice.since, begun);
    assert_eq!(notice.deadline - Instant::now(), secs(50));
    // It was a day ahead: the deadline is over, but never before now.
    voice.say(&at(600), noon().checked_add(secs(86_400)).expect("in range"));
    assert_eq!(in_force(&board), Some(("file".to_owned(), secs(0))));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_over_stays_where_it_was() {
    let board = Board::new();
    let voice = board.voice("aws", None);
    voice.say(&at(5), noon());
    let mut notices = board.notices();
    let before = notices.borrow_and_update().clone();
    for _ in 0..10 {
        advance(secs(5)).await;
        voice.say(&at(5), noon().checked_add(secs(50)).expect("in range"));
    }
    assert!(!notices.has_changed().expect("alive"));
    assert_eq!(*notices.borrow(), before);
}

#[tokio::test(start_paused = true)]
async fn a_notice_far_ahead_is_held_back_until_its_lead() {
    let board = Board::new();
    let voice = board.voice("aws", Some(secs(600)));
    let runs = board.clone();
    let task = tokio::spawn(async move { runs.run().await });
    voice.say(&at(3600), noon());
    assert_eq!(in_force(&board), None);
    let standing = board.standings().pop().expect("a place");
    assert!(standing.notice.is_some() && !standing.effective);
    let mut notices = board.notices();
    let begun = Instant::now();
    notices.wait_for(Option::is_some).await.expect("alive");
    assert_eq!(begun.elapsed(), secs(3000));
    let notice = notices.borrow().clone().expect("a notice");
    assert_eq!((notice.since, notice.deadline), (Instant::now(), begun + secs(3600)));
    assert!(board.standings().pop().expect("a place").effective);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_held_back_notice_does_not_hide_a_later_one_that_counts() {
    let board = Board::new();
    let (cloud, operator) = (board.voice("aws", Some(secs(60))), board.voice("operator", None));
    cloud.say(&at(1000), noon());
    operator.say(&at(2000), noon());
    assert_eq!(in_force(&board), Some(("operator".to_owned(), secs(2000))));
}

#[tokio::test(start_paused = true)]
async fn a_problem_shows_and_leaves_the_notice() {
    let board = Board::new();
    let voice = board.voice("azure", None);
    voice.say(&at(60), noon());
    let mut changes = board.changes();
    changes.borrow_and_update();
    voice.problem(Some("no answer"));
    assert!(changes.has_changed().expect("alive"));
    let standing = board.standings().pop().expect("a place");
    assert_eq!(standing.problem.as_deref(), Some("no answer"));
    assert!(standing.notice.is_some());
    voice.problem(None);
    assert_eq!(board.standings().pop().expect("a place").problem, None);
}

#[tokio::test(start_paused = true)]
async fn times_beyond_all_measure_are_harmless() {
    let board = Board::new();
    let voice = board.voice("file", Some(Duration::MAX));
    for when in [When::At(WallTime::MAX), When::At(WallTime::MIN), When::In(Duration::MAX)] {
        voice.say(&Announcement::new(when, ""), noon());
        assert!(in_force(&board).is_some(), "{when:?}");
        voice.say(&Announcement::new(when, ""), WallTime::MIN);
        voice.say(&Announcement::new(when, ""), WallTime::MAX);
    }
}

#[derive(Clone, Debug)]
enum Does {
    Say(usize, u64),
    Withdraw(usize),
    Wait(u64),
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        (0..3_usize, 0..5000_u64).prop_map(|(voice, at)| Does::Say(voice, at)),
        (0..3_usize).prop_map(Does::Withdraw),
        (1..2000_u64).prop_map(Does::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_in_force_is_the_earliest_of_what_counts(steps in prop::collection::vec(does(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let board = Board::new();
            let leads = [None, Some(secs(600)), Some(secs(60))];
            let voices = leads.map(|lead| board.voice("x", lead));
            let runs = board.clone();
            let task = tokio::spawn(async move { runs.run().await });
            let begun = Instant::now();
            let mut said: [Option<Instant>; 3] = [None; 3];
            for step in steps {
                match step {
                    Does::Say(which, after) => {
                        let now = noon().checked_add(begun.elapsed()).expect("in range");
                        voices[which].say(&at(after), now);
                        let now = Instant::now();
                        let new = (begun + secs(after)).max(now);
                        // What is over stays where it was.
                        said[which] = said[which].filter(|old| *old <= now && new <= now).or(Some(new));
                    }
                    Does::Withdraw(which) => {
                        voices[which].withdraw();
                        said[which] = None;
                    }
                    Does::Wait(seconds) => tokio::time::sleep(secs(seconds)).await,
                }
                // Lets the board's own task see the time that has passed.
                tokio::time::sleep(Duration::from_millis(1)).await;
                let counts = |(deadline, lead): (Option<Instant>, Option<Duration>)| {
                    let deadline = deadline?;
                    let from = lead.and_then(|lead| deadline.checked_sub(lead));
                    from.is_none_or(|from| from <= Instant::now()).then_some(deadline)
                };
                let expected = said.into_iter().zip(leads).filter_map(counts).min();
                let told = board.notices().borrow().as_ref().map(|notice| notice.deadline);
                let close = |a: Instant, b: Instant| apart(a, b) < SAME;
                let agrees = match (expected, told) {
                    (Some(expected), Some(told)) => close(expected, told),
                    (expected, told) => expected == told,
                };
                assert!(agrees, "{expected:?} {told:?}");
            }
            task.abort();
        });
    }
}
