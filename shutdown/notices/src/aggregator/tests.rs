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

fn in_effect(aggregator: &NoticeAggregator) -> Option<(String, Duration)> {
    let notices = aggregator.notices();
    let state = notices.borrow();
    state.in_effect.first().map(|n| (n.source.to_string(), n.deadline - Instant::now()))
}

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_wins_and_the_next_one_follows_when_it_is_withdrawn() {
    let aggregator = NoticeAggregator::new();
    let (file, operator) =
        (aggregator.publisher("file", None), aggregator.publisher("operator", None));
    assert_eq!(in_effect(&aggregator), None);
    file.publish(&at(120), noon());
    operator.publish(&at(60), noon());
    assert_eq!(in_effect(&aggregator), Some(("operator".to_owned(), secs(60))));
    operator.withdraw();
    assert_eq!(in_effect(&aggregator), Some(("file".to_owned(), secs(120))));
    file.withdraw();
    assert_eq!(in_effect(&aggregator), None);
    file.withdraw();
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_was_over_when_it_was_first_heard_of_stays_one_without_a_time() {
    let aggregator = NoticeAggregator::new();
    let (aws, begun) = (aggregator.publisher("aws", Some(secs(600))), Instant::now());
    for later in [3600, 3700, 9000] {
        aws.publish(&at(0), noon().checked_add(secs(later)).expect("in range"));
        let notice = aws.published().expect("a notice");
        assert_eq!((notice.since, notice.deadline), (begun, begun), "{later}");
        advance(secs(100)).await;
    }
}

#[test]
fn a_source_is_to_be_read_from_the_moment_it_is_there_until_it_was() {
    let aggregator = NoticeAggregator::new();
    let file = aggregator.publisher("file", None);
    let unheard = || aggregator.notices().borrow().unheard.clone();
    assert_eq!(unheard(), ["file".into()].into());
    file.problem(Some("it cannot be read"));
    assert_eq!(unheard(), ["file".into()].into());
    file.withdraw();
    assert!(unheard().is_empty());
}

#[test]
fn a_source_was_heard_once_each_of_its_publishers_has_said_what_it_announces() {
    let aggregator = NoticeAggregator::new();
    let (file, preempted, maintenance) = (
        aggregator.publisher("file", None),
        aggregator.publisher("gcp", Some(secs(600))),
        aggregator.publisher("gcp", Some(secs(600))),
    );
    let mut notices = aggregator.notices();
    let mut heard = || {
        let state = notices.borrow_and_update();
        state.heard.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    file.problem(Some("it cannot be read"));
    assert!(heard().is_empty());
    preempted.withdraw();
    assert!(heard().is_empty(), "the other publisher may announce something");
    maintenance.publish(&at(86_400), noon());
    assert_eq!(heard(), ["gcp"], "though the notice is held back");
    file.withdraw();
    assert_eq!(heard(), ["file", "gcp"]);
    file.withdraw();
    assert!(!notices.has_changed().expect("alive"));
}

#[tokio::test(start_paused = true)]
async fn saying_the_same_again_changes_nothing() {
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("gcp", None);
    publisher.publish(&within(30), noon());
    let mut notices = aggregator.notices();
    notices.borrow_and_update();
    advance(secs(5)).await;
    publisher.publish(&within(30), noon());
    assert!(!notices.has_changed().expect("alive"), "a duration counts from its first word");
    publisher.publish(&at(25), noon());
    assert!(notices.has_changed().expect("alive"), "another text");
    notices.borrow_and_update();
    advance(secs(5)).await;
    publisher.publish(&at(25), noon().checked_add(secs(5)).expect("in range"));
    assert!(!notices.has_changed().expect("alive"), "the same wall time");
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_moves_the_deadline_but_not_the_beginning() {
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("file", None);
    let begun = Instant::now();
    publisher.publish(&at(600), noon());
    advance(secs(10)).await;
    // The clock was nine minutes late.
    publisher.publish(&at(600), noon().checked_add(secs(550)).expect("in range"));
    let notice = aggregator.notices().borrow().in_effect.first().cloned().expect("a notice");
    assert_eq!(notice.since, begun);
    assert_eq!(notice.deadline - Instant::now(), secs(50));
    // It was a day ahead: the deadline is over, but never before now.
    publisher.publish(&at(600), noon().checked_add(secs(86_400)).expect("in range"));
    assert_eq!(in_effect(&aggregator), Some(("file".to_owned(), secs(0))));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_over_stays_where_it_was() {
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("aws", None);
    publisher.publish(&at(5), noon());
    let mut notices = aggregator.notices();
    let before = notices.borrow_and_update().in_effect.clone();
    for _ in 0..10 {
        advance(secs(5)).await;
        publisher.publish(&at(5), noon().checked_add(secs(50)).expect("in range"));
    }
    assert!(!notices.has_changed().expect("alive"));
    assert_eq!(notices.borrow().in_effect, before);
}

#[tokio::test(start_paused = true)]
async fn a_notice_far_ahead_is_held_back_until_its_lead() {
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("aws", Some(secs(600)));
    let runs = aggregator.clone();
    let task = tokio::spawn(async move { runs.run().await });
    publisher.publish(&at(3600), noon());
    assert_eq!(in_effect(&aggregator), None);
    let status = aggregator.source_statuses().pop().expect("a place");
    assert!(status.notice.is_some() && !status.effective);
    let mut notices = aggregator.notices();
    let begun = Instant::now();
    notices.wait_for(|state| !state.in_effect.is_empty()).await.expect("alive");
    assert_eq!(begun.elapsed(), secs(3000));
    let notice = notices.borrow().in_effect.first().cloned().expect("a notice");
    assert_eq!((notice.since, notice.deadline), (Instant::now(), begun + secs(3600)));
    assert!(aggregator.source_statuses().pop().expect("a place").effective);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lead_that_changes_moves_a_notice_that_is_held_back_and_no_other() {
    let aggregator = NoticeAggregator::new();
    let (file, operator) =
        (aggregator.publisher("file", Some(secs(600))), aggregator.publisher("operator", None));
    let runs = aggregator.clone();
    let task = tokio::spawn(async move { runs.run().await });
    let begun = Instant::now();
    let mut notices = aggregator.notices();
    file.publish(&at(3600), noon());
    aggregator.set_lead(secs(1800));
    notices.wait_for(|state| !state.in_effect.is_empty()).await.expect("alive");
    assert_eq!(begun.elapsed(), secs(1800));
    let notice = notices.borrow_and_update().in_effect.first().cloned().expect("a notice");
    assert_eq!((notice.since, notice.deadline), (Instant::now(), begun + secs(3600)));
    aggregator.set_lead(secs(60));
    assert_eq!(notices.borrow().in_effect, [notice], "a shutdown that began goes on");
    file.withdraw();
    file.publish(&within(1800), noon());
    assert_eq!(in_effect(&aggregator), None);
    aggregator.set_lead(secs(7200));
    let notice = aggregator.notices().borrow().in_effect.first().cloned().expect("a notice");
    assert_eq!(notice.since, Instant::now(), "the budget counts from now, not from the past");
    operator.publish(&at(7200), noon());
    aggregator.set_lead(secs(60));
    let effective = |of: SourceStatus| of.effective;
    assert!(aggregator.source_statuses().into_iter().all(effective), "one without a lead has none");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_held_back_notice_does_not_hide_a_later_one_that_counts() {
    let aggregator = NoticeAggregator::new();
    let (cloud, operator) =
        (aggregator.publisher("aws", Some(secs(60))), aggregator.publisher("operator", None));
    cloud.publish(&at(1000), noon());
    operator.publish(&at(2000), noon());
    assert_eq!(in_effect(&aggregator), Some(("operator".to_owned(), secs(2000))));
}

#[tokio::test(start_paused = true)]
async fn a_problem_shows_and_leaves_the_notice() {
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("azure", None);
    publisher.publish(&at(60), noon());
    let mut changes = aggregator.changes();
    changes.borrow_and_update();
    publisher.problem(Some("no answer"));
    assert!(changes.has_changed().expect("alive"));
    let status = aggregator.source_statuses().pop().expect("a place");
    assert_eq!(status.problem.as_deref(), Some("no answer"));
    assert!(status.notice.is_some());
    publisher.problem(None);
    assert_eq!(aggregator.source_statuses().pop().expect("a place").problem, None);
}

#[tokio::test(start_paused = true)]
async fn times_beyond_all_measure_are_harmless() {
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("file", Some(Duration::MAX));
    for when in [When::At(WallTime::MAX), When::At(WallTime::MIN), When::In(Duration::MAX)] {
        publisher.publish(&Announcement::new(when, ""), noon());
        assert!(in_effect(&aggregator).is_some(), "{when:?}");
        publisher.publish(&Announcement::new(when, ""), WallTime::MIN);
        publisher.publish(&Announcement::new(when, ""), WallTime::MAX);
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
        (0..3_usize, 0..5000_u64).prop_map(|(publisher, at)| Does::Say(publisher, at)),
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
            let aggregator = NoticeAggregator::new();
            let leads = [None, Some(secs(600)), Some(secs(60))];
            let publishers = leads.map(|lead| aggregator.publisher("x", lead));
            let runs = aggregator.clone();
            let task = tokio::spawn(async move { runs.run().await });
            let begun = Instant::now();
            let mut published: [Option<Instant>; 3] = [None; 3];
            for step in steps {
                match step {
                    Does::Say(which, after) => {
                        let now = noon().checked_add(begun.elapsed()).expect("in range");
                        publishers[which].publish(&at(after), now);
                        let now = Instant::now();
                        let new = (begun + secs(after)).max(now);
                        // What is over stays where it was.
                        published[which] = published[which].filter(|old| *old <= now && new <= now).or(Some(new));
                    }
                    Does::Withdraw(which) => {
                        publishers[which].withdraw();
                        published[which] = None;
                    }
                    Does::Wait(seconds) => tokio::time::sleep(secs(seconds)).await,
                }
                // Lets the aggregator's own task see the time that has passed.
                tokio::time::sleep(Duration::from_millis(1)).await;
                let counts = |(deadline, lead): (Option<Instant>, Option<Duration>)| {
                    let deadline = deadline?;
                    let from = lead.and_then(|lead| deadline.checked_sub(lead));
                    from.is_none_or(|from| from <= Instant::now()).then_some(deadline)
                };
                let expected = published.into_iter().zip(leads).filter_map(counts).min();
                let told = aggregator.notices().borrow().in_effect.first().map(|notice| notice.deadline);
                let close = |a: Instant, b: Instant| apart(a, b) < SAME_DEADLINE_TOLERANCE;
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
