//! An agent that is killed at any step of a shutdown, and the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, sleep};
use winddown_shared::{BootClock, Event, LockState, Pod};

use super::agents::{Agent, Arrivals, Site};
use super::two_fields;
use super::world::{Fault, World};
use crate::tests::{pod, secs};
use crate::{CRITICAL_PRIORITY, Outcome, PodEnd, PodReport, Policy, ProgressPhase, RunPhase};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);
const NEVER: Duration = Duration::from_secs(100_000);
const DRAIN: Duration = Duration::from_secs(2);

/// The phases that are recorded, in order: two groups, in each of which a pod is killed.
const STEPS: [RunPhase; 8] = [
    RunPhase::LameDuck,
    RunPhase::Ending,
    RunPhase::Ending,
    RunPhase::Ending,
    RunPhase::Ending,
    RunPhase::Ending,
    RunPhase::Reporting,
    RunPhase::Released,
];

fn pods() -> Vec<(Pod, Duration)> {
    vec![
        (pod("quick", None, Some(30)), secs(1)),
        (pod("slow", None, Some(30)), secs(6)),
        (pod("stubborn", None, Some(5)), NEVER),
        (pod("critical", CRITICAL, Some(30)), secs(4)),
        (pod("deaf", CRITICAL, Some(3)), NEVER),
    ]
}

pub(super) fn site() -> Site {
    Site::new(World::with(pods()), two_fields(30, 10).with_endpoint_drain(DRAIN))
}

pub(super) fn site_with_memory() -> Site {
    Site::with_memory(World::with(pods()), two_fields(30, 10).with_endpoint_drain(DRAIN))
}

/// Every fault there is.
fn faults() -> Vec<Fault> {
    let records =
        (0..STEPS.len()).flat_map(|nth| [false, true].map(|kept| Fault::Record { nth, kept }));
    let kills =
        (0..pods().len()).flat_map(|nth| [false, true].map(|sent| Fault::Kill { nth, sent }));
    let reports = [false, true].map(|kept| Fault::Report { kept });
    let releases = [false, true].map(|gone| Fault::Release { gone });
    records.chain(kills).chain(reports).chain(releases).collect()
}

/// How each pod ended: by itself or not.
fn ends(site: &Site) -> BTreeMap<String, bool> {
    let end = |life: &super::world::Life| {
        let (_, forced) = life.gone.unwrap_or_else(|| panic!("{:?} still runs", life.pod));
        (life.pod.name().to_string(), forced)
    };
    site.world.lives().iter().map(end).collect()
}

async fn undisturbed(mut site: Site) -> (BTreeMap<String, bool>, Duration) {
    let agent = site.agent();
    site.prepare();
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(*site.disk.phases.lock().unwrap(), STEPS);
    (ends(&site), took)
}

#[tokio::test(start_paused = true)]
async fn an_undisturbed_shutdown_goes_through_every_step_once() {
    for site in [site(), site_with_memory()] {
        let (ends, took) = undisturbed(site).await;
        assert_eq!(ends.values().filter(|forced| **forced).count(), 2);
        // 2 s as a lame duck, 6 s for the slow pod, 4 s for the critical one.
        assert_eq!(took, secs(12));
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_step_the_result_is_the_same() {
    killed_at_any_step(site).await;
}

#[tokio::test(start_paused = true)]
async fn with_the_record_in_memory_the_result_is_the_same_too() {
    killed_at_any_step(site_with_memory).await;
}

#[tokio::test(start_paused = true)]
async fn that_the_shutdown_did_not_wait_is_said_once_however_many_agents_find_it_so() {
    let mut site = site();
    let unlocked = LockState::Waiting { why: "logind refuses it".into() };
    site.lock.fake.modify(|state| (state.lock, state.has_lock) = (unlocked, false));
    site.world.0.fuse.set(Some(Fault::Report { kept: false }));
    let first = site.agent();
    site.prepare();
    site.world.0.fuse.blown.notified().await;
    site.kill(first).await;
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    let reports = site.reports.all();
    assert_eq!((reports.len(), reports[0].warnings.len()), (1, 1), "{:?}", reports[0].warnings);
}

async fn killed_at_any_step(site: fn() -> Site) {
    let (expected, took) = undisturbed(site()).await;
    for fault in faults() {
        for away in [0, 300, 2500].map(Duration::from_millis) {
            let mut site = site();
            let arrivals = Arrivals::default();
            site.world.0.fuse.set(Some(fault));
            let first = site.agent();
            site.prepare();
            site.world.0.fuse.blown.notified().await;
            site.kill(first).await;
            sleep(away).await;
            let killed_at = Instant::now();
            let second = site.agent();
            let knocking = arrivals.knock(&second.gate);
            site.reach(&second, ProgressPhase::Released).await;
            sleep(secs(5)).await;
            knocking.abort();

            let says = format!("{fault:?}, away for {away:?}");
            assert_eq!(ends(&site), expected, "{says}");
            let before_any_record = fault == Fault::Record { nth: 0, kept: false };
            let admitted = arrivals.admitted();
            // Without a record, the gate closes with the login manager's first signal.
            let early = |at: &Instant| before_any_record && *at == killed_at;
            assert!(admitted.iter().all(early), "{says}: {admitted:?}");
            site.assert_no_grace_grew();
            assert_eq!((site.locks_gone(), site.lock.fake.is_held()), (1, false), "{says}");
            let reports = site.reports.all();
            assert_eq!(reports.len(), 1, "{says}: one report");
            assert_eq!(reports[0].pods().count(), 5, "{says}: a whole one");
            assert!(
                reports[0].pods().all(|(_, pod)| pod.end.has_terminated()),
                "{says}: {reports:?}"
            );
            let slack = if before_any_record { away + secs(1) } else { Duration::ZERO };
            assert!(reports[0].took <= secs(30) + slack, "{says}: {:?}", reports[0].took);
            assert!(reports[0].took <= took + away + secs(1) + slack, "{says}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_gives_the_rest_of_the_grace_and_says_that_it_went_on() {
    let mut site = site();
    let first = site.agent();
    site.prepare();
    site.until(Duration::from_millis(4300)).await;
    site.kill(first).await;
    site.until(Duration::from_millis(5000)).await;
    let second = site.agent();
    assert!(second.gate.is_shut(), "from the first moment");
    site.reach(&second, ProgressPhase::Released).await;

    let lives = site.world.lives();
    let signals = |name: &str| {
        let life = lives.iter().find(|life| &**life.pod.name() == name).unwrap();
        let ms = |at: Instant| at.duration_since(site.start).as_millis();
        life.signals.iter().map(|(at, kill_at)| (ms(*at), ms(*kill_at))).collect::<Vec<_>>()
    };
    // Asked at 2 s with 5 s; at 5 s there are 2 s left.
    assert_eq!(signals("stubborn"), [(2000, 7000), (5000, 7000)]);
    // Asked at 2 s with 20 s.
    assert_eq!(signals("slow"), [(2000, 22_000), (5000, 22_000)]);
    assert_eq!(signals("quick"), [(2000, 22_000)], "it was gone");
    assert_eq!(signals("critical")[0].0, 8000);
    let report = &site.reports.all()[0];
    assert_eq!(report.resumed, [secs(5)]);
    assert_eq!((report.outcome, report.took), (Outcome::Forced, secs(12)));
    assert_eq!(report.endpoint_drain, Some(DRAIN));
    let quick = report.pods().find(|(_, pod)| pod.name == "quick").unwrap().1;
    assert_eq!((quick.end, quick.asked), (PodEnd::Exited, Some(secs(2))));
    assert_eq!(
        (quick.exit, quick.error.as_deref()),
        (Some(secs(3)), None),
        "as the first agent saw"
    );
}

/// As with a runtime in the agent's own memory: neither pod was seen to terminate, and one was never asked to.
#[tokio::test(start_paused = true)]
async fn pods_that_die_with_the_agent_are_gone_and_their_shutdown_is_not_clean() {
    let pods = [(pod("web", None, Some(20)), secs(6)), (pod("dns", CRITICAL, Some(9)), secs(1))];
    let mut site = Site::new(World::with(pods), two_fields(30, 10));
    let first = site.agent();
    site.prepare();
    site.until(secs(1)).await;
    site.kill(first).await;
    site.world.pods_are_lost();
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;

    let report = &site.reports.all()[0];
    let ends: Vec<_> = report.pods().map(|(_, pod)| (&*pod.name, pod.end, pod.exit)).collect();
    assert_eq!(ends, [("web", PodEnd::Exited, None), ("dns", PodEnd::Gone, None)]);
    let why =
        "it was gone when the agent came back, and the runtime does not say when it terminated";
    assert!(report.pods().all(|(_, pod)| pod.error.as_deref() == Some(why)));
    assert!(!report.is_graceful());
    let said = report.headline();
    let wanted = "Incomplete shutdown: 1 of 2 pods was gone when the agent came back, in an unknown order, after ";
    assert!(said.starts_with(wanted), "{said}");
    assert!(report.groups.iter().all(|group| !group.is_spared()));
    let progress = second.progress.subscribe().borrow().clone();
    assert!(progress.groups.iter().all(|group| group.ended == group.pods), "{progress:?}");
    let last = site.recorder.events().pop();
    assert!(
        matches!(last, Some(Event::ShutdownFinished { left: 0, unknown: true, .. })),
        "{last:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_end_that_no_agent_saw_is_reported_as_the_runtime_has_it() {
    let mut site = site();
    site.world.tells_ends();
    let first = site.agent();
    site.prepare();
    site.until(Duration::from_millis(2500)).await;
    site.kill(first).await;
    site.until(Duration::from_millis(5000)).await;
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    let lives = site.world.lives();
    let quick = lives.iter().find(|life| &**life.pod.name() == "quick").unwrap();
    let ended = quick.gone.unwrap().0 - site.start;
    let report = &site.reports.all()[0];
    let quick = report.pods().find(|(_, pod)| pod.name == "quick").unwrap().1;
    assert_eq!((quick.end, quick.exit, &quick.error), (PodEnd::Exited, Some(ended), &None));
    assert!(ended < secs(5), "before the next agent came: {ended:?}");
}

#[tokio::test(start_paused = true)]
async fn the_groups_keep_the_times_that_they_were_given() {
    let world = World::with([
        (pod("hung", None, Some(60)), NEVER),
        (pod("critical", CRITICAL, Some(60)), NEVER),
    ]);
    world.sticks("hung");
    let mut site = Site::new(world, two_fields(30, 10));
    let first = site.agent();
    sleep(Duration::from_millis(1)).await;
    site.prepare();
    site.until(secs(15)).await;
    site.kill(first).await;
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    let asked = site.asked();
    assert_eq!((asked[1].1, asked[1].2), (20.1, 10.0));
    let report = &site.reports.all()[0];
    let ends: Vec<_> = report.groups.iter().map(|group| group.latest_end).collect();
    assert_eq!(ends, [secs(20), secs(30)]);
}

#[tokio::test(start_paused = true)]
async fn ordinary_pods_that_are_gone_leave_their_group_to_the_next_agent() {
    let world = World::with([
        (pod("web", Some(0), Some(60)), secs(1)),
        (pod("broker", Some(5), Some(60)), NEVER),
        (pod("database", Some(100), Some(60)), NEVER),
    ]);
    let mut site = Site::new(world, Policy::by_role(secs(30), secs(10)).unwrap());
    let first = site.agent();
    sleep(Duration::from_millis(1)).await;
    site.prepare();
    site.until(secs(15)).await;
    site.kill(first).await;
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    let report = &site.reports.all()[0];
    let ends: Vec<_> = report.groups[..3].iter().map(|group| group.latest_end).collect();
    assert_eq!(ends, [secs(10), secs(20), secs(30)]);
    let names: Vec<_> = report.pods().map(|(group, pod)| (group.priority, &*pod.name)).collect();
    assert_eq!(names, [(0, "web"), (5, "broker"), (100, "database")]);
}

#[tokio::test(start_paused = true)]
async fn what_has_shortened_the_run_is_remembered_by_the_next_agent() {
    let mut site =
        Site::new(World::with([(pod("app", None, Some(60)), NEVER)]), two_fields(30, 10));
    let first = site.agent();
    sleep(Duration::from_millis(1)).await;
    site.prepare();
    site.until(secs(2)).await;
    site.lock.fake.modify(|state| state.delay = Some(secs(20)));
    site.until(secs(5)).await;
    site.kill(first).await;
    site.lock.fake.modify(|state| state.delay = None);
    let second = site.agent();
    let took = site.reach(&second, ProgressPhase::Released).await;
    // A grace that is short of whole seconds by a moment is not cut by a whole one.
    assert!(took <= Duration::from_millis(18_250), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn time_that_became_less_while_no_agent_was_there_cuts_what_was_promised() {
    let mut site =
        Site::new(World::with([(pod("app", None, Some(60)), NEVER)]), two_fields(30, 10));
    let first = site.agent();
    sleep(Duration::from_millis(1)).await;
    site.prepare();
    site.until(secs(5)).await;
    site.kill(first).await;
    site.lock.fake.modify(|state| state.delay = Some(secs(20)));
    let second = site.agent();
    let took = site.reach(&second, ProgressPhase::Released).await;
    // A grace that is short of whole seconds by a moment is not cut by a whole one.
    let most = Duration::from_millis(18_250);
    assert!(took <= most, "{took:?}");
    let app = &site.world.lives()[0];
    let kill_at = app.signals[1].1.duration_since(site.start);
    assert!(kill_at <= most, "{kill_at:?}");
}

#[tokio::test(start_paused = true)]
async fn a_login_manager_that_waits_for_ever_is_no_reason_to_overflow() {
    let mut site = site();
    site.lock.fake.modify(|state| state.delay = Some(Duration::from_micros(u64::MAX)));
    let first = site.agent();
    site.prepare();
    site.until(secs(5)).await;
    site.kill(first).await;
    site.lock.fake.modify(|state| {
        (state.preparing, state.delay) = (false, None);
        state.lock = LockState::Waiting { why: "gone".into() };
    });
    let second = site.agent();
    site.until(secs(6)).await;
    assert!(second.gate.is_shut());
    let delay = Some(Duration::from_micros(u64::MAX));
    site.lock.fake.modify(|state| (state.preparing, state.delay) = (true, delay));
    site.reach(&second, ProgressPhase::Released).await;
    assert_eq!(site.reports.all()[0].resumed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn groups_that_are_over_are_not_waited_for_again_and_their_ends_stay_in_the_report() {
    let mut site = site();
    let first = site.agent();
    site.prepare();
    // In the second group, which began at 8 s.
    site.until(Duration::from_millis(8500)).await;
    site.kill(first).await;
    site.agent();
    let second = site.agent();
    let took = site.reach(&second, ProgressPhase::Released).await;
    assert_eq!(took, secs(12));
    let report = &site.reports.all()[0];
    assert_eq!(report.groups[0].ended, Some(secs(8)));
    let exits: Vec<_> = report.groups[0].pods.iter().map(|pod| (&*pod.name, pod.exit)).collect();
    let exit = |name, at| (name, Some(secs(at)));
    assert_eq!(exits, [exit("quick", 3), exit("slow", 8), exit("stubborn", 7)]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_outlived_its_group_is_asked_again_and_does_not_hold_up_the_next() {
    let pods = [0, 5, 9].map(|p| (pod(&format!("p{p}"), Some(p), Some(60)), secs(3)));
    let policy = crate::Policy::by_priority([0, 5, 9].map(|p| crate::tests::period(p, 10)));
    let world = World::with(pods);
    world.add(pod("hung", Some(0), Some(5)), NEVER);
    world.sticks("hung");
    let mut site = Site::new(world, policy.unwrap());
    let first = site.agent();
    site.prepare();
    // The first group is over at 10.1 s, the second goes on until 13.1 s.
    site.until(secs(12)).await;
    site.kill(first).await;
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    let asked: Vec<_> = site.asked().into_iter().map(|(name, at, _)| (name, at)).collect();
    assert_eq!(asked[2..], [("p5".to_owned(), 10.1), ("p9".to_owned(), 13.1)]);
    let report = &site.reports.all()[0];
    let hung = report.pods().find(|(_, pod)| pod.name == "hung").unwrap().1;
    assert_eq!((hung.end, hung.asked), (PodEnd::StillRunning, Some(Duration::ZERO)));
    assert_eq!(report.outcome, Outcome::Incomplete);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_stopped_in_the_middle_leaves_the_report_to_the_next() {
    let mut site = site();
    let first = site.agent();
    site.prepare();
    site.until(secs(4)).await;
    first.stop.cancel();
    let Agent { task, .. } = first;
    task.await.unwrap();
    assert!(site.reports.all().is_empty() && site.lock.fake.is_held());
    site.world.agent_is_gone();
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    assert_eq!(site.reports.all().len(), 1);
    assert_eq!(site.reports.all()[0].outcome, Outcome::Forced);
    site.assert_no_grace_grew();
}

/// The pod workers, which stop with the agent, may have given up on its pods by the time that the run learns of the stop.
#[tokio::test(start_paused = true)]
async fn an_agent_that_is_stopped_in_the_middle_takes_no_group_for_over() {
    for at in [4, 9] {
        let mut site = site();
        let first = site.agent();
        site.prepare();
        site.until(secs(at)).await;
        site.world.gives_up();
        first.stop.cancel();
        sleep(Duration::from_millis(1)).await;
        assert!(first.task.is_finished() && site.lock.fake.is_held());
        site.kill(first).await;
        let second = site.agent();
        site.reach(&second, ProgressPhase::Released).await;
        let asked = site.asked();
        let critical = asked.iter().find(|(name, ..)| name == "critical").unwrap();
        assert!(critical.1 >= 8.0, "after {at} s: {asked:?}");
        assert_eq!(site.reports.all()[0].outcome, Outcome::Forced, "after {at} s");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_waits_for_the_volumes_of_pods_that_had_exited_under_the_last() {
    let pods = [(pod("db", None, Some(30)), secs(1))];
    let mut site = Site::new(World::with(pods), two_fields(30, 10));
    site.world.holds("db", secs(5));
    let first = site.agent();
    site.prepare();
    site.until(secs(2)).await;
    site.kill(first).await;
    let second = site.agent();
    assert_eq!(site.reach(&second, ProgressPhase::Released).await.as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_changed_meanwhile_keeps_what_was_promised() {
    let mut site = site();
    let first = site.agent();
    site.prepare();
    site.until(secs(5)).await;
    site.kill(first).await;
    let policy = crate::Policy::by_priority([0, 5, 7].map(|p| crate::tests::period(p, 10)));
    site.policy.send_replace(std::sync::Arc::new(policy.unwrap()));
    let second = site.agent();
    let took = site.reach(&second, ProgressPhase::Released).await;
    assert!(took <= secs(30), "{took:?}");
    site.assert_no_grace_grew();
    let report = &site.reports.all()[0];
    assert_eq!(report.pods().count(), 5);
    for group in report.groups.iter().filter(|group| !group.pods.is_empty()) {
        let (asked, exits) = (|pod: &PodReport| pod.asked, |pod: &PodReport| pod.exit);
        let (asked, exits) = (group.pods.iter().filter_map(asked), group.pods.iter().map(exits));
        assert_eq!((group.started, group.ended), (asked.min(), exits.max().flatten()), "{group:?}");
    }
}

/// A site whose run was begun by `policy` when its agent is replaced, in the middle, by one without graceful shutdown.
async fn disabled_in_the_middle(policy: Policy) -> (Site, Agent) {
    let mut site = Site::new(World::with(pods()), policy.with_endpoint_drain(DRAIN));
    let first = site.agent();
    site.prepare();
    site.until(secs(5)).await;
    site.kill(first).await;
    site.policy.send_replace(std::sync::Arc::new(Policy::disabled()));
    let second = site.agent();
    (site, second)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_an_agent_with_graceful_shutdown_began_is_completed_by_one_without() {
    let by_role = Policy::by_role(secs(30), secs(10)).unwrap();
    for policy in [two_fields(30, 10), by_role] {
        let (site, agent) = disabled_in_the_middle(policy.clone()).await;
        let took = site.reach(&agent, ProgressPhase::Released).await;
        assert_eq!((took, site.locks_gone()), (secs(12), 1), "{policy:?}");
        site.assert_no_grace_grew();
        let report = &site.reports.all()[0];
        assert_eq!((report.outcome, report.pods().count()), (Outcome::Forced, 5), "{policy:?}");
        assert!(report.pods().all(|(_, pod)| pod.asked.is_some()), "{report:?}");
        assert_eq!(site.disk.phases.lock().unwrap().last(), Some(&RunPhase::Released));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_is_reported_by_an_agent_without_graceful_shutdown() {
    let (site, agent) = disabled_in_the_middle(two_fields(30, 10)).await;
    site.until(secs(6)).await;
    site.lock.fake.cancel();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    assert_eq!(site.reports.all()[0].outcome, Outcome::Cancelled);
    assert_eq!(site.disk.phases.lock().unwrap().last(), Some(&RunPhase::Cancelled));
    assert!(!agent.gate.is_shut());
}

/// As tokio's clock does, which the agent that began it goes by.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_run_stands_still_while_the_machine_is_suspended_and_no_agent_runs() {
    for suspended in [0, 3600].map(secs) {
        let mut site = site();
        let first = site.agent();
        site.prepare();
        let boot = secs(77);
        site.until(secs(5)).await;
        site.kill(first).await;
        let started = site.start;
        let clock = BootClock::new(move || boot + started.elapsed() + suspended);
        let second = site.agent_by(clock.with_suspended(move || suspended));
        site.until(secs(6)).await;
        site.kill(second).await;
        let clock = BootClock::new(move || boot + started.elapsed() + 2 * suspended);
        let third = site.agent_by(clock.with_suspended(move || 2 * suspended));
        assert_eq!(site.reach(&third, ProgressPhase::Released).await, secs(12), "{suspended:?}");
        site.assert_no_grace_grew();
        let report = &site.reports.all()[0];
        assert!(report.pods().all(|(_, pod)| pod.grace > secs(1)), "{report:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn whatever_is_killed_when_everything_ends_in_time_and_no_grace_grows(
        shapes in prop::collection::vec((0..3u8, 0..40i64, 0..45_000u64), 0..12),
        kills in prop::collection::vec((1..12_000u64, 0..1500u64), 0..5),
        drain in 0..4u64,
        delay in 5..45u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(random_run(&shapes, &kills, drain, delay))?;
    }
}

async fn random_run(
    shapes: &[(u8, i64, u64)],
    kills: &[(u64, u64)],
    drain: u64,
    delay: u64,
) -> Result<(), TestCaseError> {
    let pods = shapes.iter().enumerate().map(|(i, (group, grace, needs))| {
        let priority = [None, Some(1000), CRITICAL][usize::from(*group)];
        let grace = (*grace > 0).then_some(*grace);
        (pod(&format!("p{i}"), priority, grace), Duration::from_millis(*needs))
    });
    let policy = two_fields(30, 10).with_endpoint_drain(secs(drain));
    let mut site = Site::new(World::with(pods), policy);
    site.lock.fake.modify(|state| state.delay = Some(secs(delay)));
    let mut agent = site.agent();
    sleep(Duration::from_millis(1)).await;
    site.prepare();
    let mut away_at_end = Duration::ZERO;
    for (after, away) in kills {
        let ended = site.reach(&agent, ProgressPhase::Released);
        let after = Duration::from_millis(*after);
        if tokio::time::timeout(after, ended).await.is_ok() {
            break;
        }
        site.kill(agent).await;
        sleep(Duration::from_millis(*away)).await;
        agent = site.agent();
        prop_assert!(agent.gate.is_shut());
        away_at_end = site.start.elapsed();
    }
    let took = site.reach(&agent, ProgressPhase::Released).await;
    // An agent that starts when the time is already over still needs a moment.
    let most = secs(delay).max(away_at_end + secs(2));
    prop_assert!(took <= most, "{took:?} of {most:?}");
    site.assert_no_grace_grew();
    prop_assert_eq!(site.locks_gone(), 1);
    let reports = site.reports.all();
    prop_assert_eq!(reports.len(), 1);
    prop_assert_eq!(reports[0].pods().count(), shapes.len());
    let known = reports[0].pods().all(|(_, pod)| pod.asked.is_some());
    prop_assert!(known, "{:?}", reports[0]);
    Ok(())
}
