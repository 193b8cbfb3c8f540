//! What an agent finds when it starts.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use winddown_shared::testing::{FakeInhibitor, FakeKiller};
use winddown_shared::{
    BootClock, Event, GateState, LockState, MachineState, ShutdownKind, WallClock, WallTime,
    WayDown,
};

use super::agents::{Agent, Site};
use super::world::World;
use super::{settle, two_fields};
use crate::tests::{pod, secs};
use crate::{
    Outcome, PodEnd, Policy, ProgressPhase, RunPhase, RunRecord, ShutdownController, ShutdownParts,
};

const NEVER: Duration = Duration::from_secs(100_000);
const POWER_OFF: MachineState =
    MachineState::GoingDown(WayDown { kind: ShutdownKind::PowerOff, limit: None });

/// A site whose agent was killed in the middle of a shutdown, after two seconds.
async fn killed() -> Site {
    killed_with([(pod("app", None, Some(20)), secs(4)), (pod("other", None, Some(20)), NEVER)])
        .await
}

async fn killed_with<const N: usize>(pods: [(winddown_shared::Pod, Duration); N]) -> Site {
    let mut site = Site::new(World::with(pods), two_fields(30, 10));
    let agent = site.agent();
    settle().await;
    site.prepare();
    site.until(secs(2)).await;
    site.kill(agent).await;
    site
}

fn phase(site: &Site) -> RunPhase {
    let clock = BootClock::new(Duration::default);
    RunRecord::of_boot(&site.places, ("boot", &clock), site.system_start).unwrap().phase
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_was_called_off_meanwhile_is_reported_and_pods_are_let_in() {
    let dns = pod("dns", Some(2_000_000_000), Some(5));
    let site = killed_with([(pod("app", None, Some(20)), secs(4)), (dns, NEVER)]).await;
    site.lock.fake.cancel();
    let agent = site.agent();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    settle().await;
    assert!(!agent.gate.is_shut());
    let reports = site.reports.all();
    assert_eq!((reports.len(), reports[0].outcome), (1, Outcome::Cancelled));
    assert_eq!(reports[0].took.as_secs(), 2, "as long as it was under way");
    assert_eq!(reports[0].warnings, ["the run was cancelled before an agent continued it"]);
    assert!(site.recorder.events().contains(&Event::ShutdownCancelled { spared_groups: 1 }));
    assert_eq!(phase(&site), RunPhase::Cancelled);
    // The next agent has nothing to resume.
    let third = site.agent();
    assert!(!third.gate.is_shut());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_asked_is_ending_when_the_next_agent_is_called_off_before_it_asks_again() {
    let site = killed_with([(pod("app", None, Some(20)), secs(9))]).await;
    let agent = site.agent();
    site.cancel_at_the_next_record(&agent);
    site.reach(&agent, ProgressPhase::Cancelled).await;
    let report = &site.reports.all()[0];
    assert_eq!((report.outcome, report.count(PodEnd::Terminating)), (Outcome::Cancelled, 1));
}

#[tokio::test(start_paused = true)]
async fn a_silent_login_manager_is_waited_for_as_long_as_the_run_would_have_lasted() {
    let waiting = LockState::Waiting { why: "not connected yet".into() };
    let absent = LockState::Absent { why: "there is no bus".into() };
    // The service manager stops nothing while the login manager waits for locks.
    for (lock, machine) in [
        (waiting.clone(), MachineState::Unknown),
        (waiting, MachineState::StaysUp),
        (absent.clone(), MachineState::Unknown),
        (absent, MachineState::StaysUp),
    ] {
        let site = killed().await;
        site.lock.fake.modify(|state| (state.preparing, state.delay) = (false, None));
        site.lock.fake.modify(|state| state.lock = lock.clone());
        site.lock.fake.set_machine(machine);
        let agent = site.agent();
        site.until(secs(5)).await;
        let (_, on) = site.world.lame_duck(site.start)[1];
        assert!(on, "pods are not ready for the new agent either");
        site.until(secs(31)).await;
        assert!(agent.gate.is_shut(), "{lock:?}, {machine:?}");
        site.until(secs(33)).await;
        assert!(!agent.gate.is_shut());
        let told = site.recorder.events();
        assert!(
            matches!(
                told.last(),
                Some(Event::ShutdownFinished { unknown: true, released: false, .. })
            ),
            "the run has an end: {told:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_manager_that_grants_no_lock_is_believed_that_no_shutdown_is_under_way() {
    let site = killed().await;
    site.lock.fake.cancel();
    let refused = LockState::Waiting { why: "not allowed".into() };
    site.lock.fake.modify(|state| state.lock = refused);
    let agent = site.agent();
    tokio::time::sleep(secs(3)).await;
    assert!(!agent.gate.is_shut());
}

#[tokio::test(start_paused = true)]
async fn a_notice_withdrawn_while_no_agent_ran_counts_where_there_is_no_login_manager() {
    let mut site =
        Site::new(World::with([(pod("app", None, Some(20)), NEVER)]), two_fields(30, 10));
    let absent = LockState::Absent { why: "there is no bus".into() };
    site.lock.fake.modify(|state| (state.lock, state.delay) = (absent, None));
    let agent = site.agent();
    settle().await;
    site.give_notice(secs(120));
    site.until(secs(2)).await;
    site.kill(agent).await;
    site.withdraw_notice();
    let agent = site.agent();
    settle().await;
    assert!(!agent.gate.is_shut());
}

/// The machine goes down past the login manager, which says that nothing is under way. The agent is killed in the middle
/// of the run, or after it.
async fn killed_past_the_login_manager(after: Duration) -> Site {
    let pods = [(pod("app", None, Some(20)), secs(4))];
    let mut site = Site::new(World::with(pods), two_fields(30, 10));
    let agent = site.agent();
    settle().await;
    site.stop_unit();
    site.until(after).await;
    site.kill(agent).await;
    site
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_only_the_service_manager_knows_is_not_cancelled_for_the_next_agent() {
    for (after, disabled, resumed) in
        [(2, false, vec![secs(2)]), (2, true, vec![secs(2)]), (9, false, Vec::new())]
    {
        let site = killed_past_the_login_manager(secs(after)).await;
        if disabled {
            site.policy.send_replace(std::sync::Arc::new(Policy::disabled()));
        }
        site.lock.fake.set_machine(POWER_OFF);
        let agent = site.agent();
        site.until(secs(60)).await;
        assert!(agent.gate.is_shut(), "killed after {after} s");
        let reports = site.reports.all();
        assert_eq!((reports.len(), reports[0].outcome), (1, Outcome::Clean));
        assert_eq!(
            reports[0].resumed.iter().map(|at| secs(at.as_secs())).collect::<Vec<_>>(),
            resumed
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_manager_that_did_not_answer_is_asked_again_when_the_login_manager_says_something()
 {
    let site = killed_past_the_login_manager(secs(2)).await;
    let agent = site.agent();
    site.until(secs(5)).await;
    assert!(site.reports.all().is_empty(), "it is unknown whether the node goes down");
    site.lock.fake.set_machine(POWER_OFF);
    site.lock.fake.modify(|state| state.delay = Some(secs(41)));
    site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(site.reports.all()[0].resumed.iter().map(Duration::as_secs).sum::<u64>(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_run_for_a_notice_that_was_over_is_not_run_again_while_the_notice_is_in_force() {
    let mut site =
        Site::new(World::with([(pod("app", None, Some(20)), secs(4))]), two_fields(30, 10));
    let first = site.agent();
    settle().await;
    site.give_notice(secs(120));
    site.reach(&first, ProgressPhase::Released).await;
    site.kill(first).await;
    site.world.add(pod("back", None, Some(3)), NEVER);
    let _second = site.agent();
    site.until(secs(60)).await;
    assert!(site.world.lives()[1].signals.is_empty(), "as if its agent still ran");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_login_manager_that_knows_of_nothing_any_more_counts_from_its_announcement() {
    let mut site =
        Site::new(World::with([(pod("app", None, Some(300)), NEVER)]), two_fields(90, 10));
    let agent = site.agent();
    settle().await;
    site.give_notice(secs(120));
    site.until(secs(7)).await;
    site.lock.fake.prepare();
    site.until(secs(10)).await;
    site.kill(agent).await;
    site.lock.fake.cancel();
    site.withdraw_notice();
    site.lock.fake.set_machine(POWER_OFF);
    let agent = site.agent();
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert!(took > secs(40) && took <= secs(47), "{took:?}");
}

/// Another supervisor than systemd starts the next agent, so that no stop of its unit tells it.
#[tokio::test(start_paused = true)]
async fn the_limit_of_the_service_manager_shortens_the_run_that_the_next_agent_finds() {
    let mut site =
        Site::new(World::with([(pod("app", None, Some(300)), NEVER)]), two_fields(90, 10));
    let agent = site.agent();
    settle().await;
    site.prepare();
    site.until(secs(5)).await;
    site.kill(agent).await;
    site.lock.fake.cancel();
    let way = WayDown { kind: ShutdownKind::Reboot, limit: Some(secs(40)) };
    site.lock.fake.set_machine(MachineState::GoingDown(way));
    let agent = site.agent();
    // The other units keep half of it.
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert!(took > secs(20) && took <= secs(25), "{took:?}");
    let budget = &site.reports.all()[0].budget;
    assert_eq!(budget.delay.map(|delay| delay.as_secs()), Some(25));
    assert_eq!(budget.delay_set_by.as_deref(), Some("JobTimeoutSec of reboot.target"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_the_service_manager_does_not_know_either_is_cancelled() {
    for (after, outcome) in [(2, Outcome::Cancelled), (9, Outcome::Clean)] {
        let site = killed_past_the_login_manager(secs(after)).await;
        site.lock.fake.set_machine(MachineState::StaysUp);
        let agent = site.agent();
        settle().await;
        assert!(!agent.gate.is_shut(), "killed after {after} s");
        let report = site.reports.all().pop().unwrap();
        assert_eq!((report.outcome, report.node_stayed_up), (outcome, after == 9));
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_of_the_service_manager_no_shutdown_is_taken_for_cancelled() {
    for (after, outcome) in [(2, Outcome::Interrupted), (9, Outcome::Clean)] {
        let site = killed_past_the_login_manager(secs(after)).await;
        let agent = site.agent();
        site.until(secs(29)).await;
        assert!(agent.gate.is_shut(), "killed after {after} s");
        site.until(secs(60)).await;
        assert!(!agent.gate.is_shut(), "the time of the run is over");
        let report = site.reports.all().pop().unwrap();
        assert_eq!((report.outcome, report.node_stayed_up), (outcome, false));
        let events = site.recorder.events();
        assert!(!events.iter().any(|e| matches!(e, Event::ShutdownCancelled { .. })), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_last_pod_ended_while_no_agent_was_there_is_over_when_the_next_one_looks() {
    let pods = [
        (pod("app", None, Some(20)), secs(4)),
        (pod("critical", Some(crate::CRITICAL_PRIORITY), Some(20)), secs(1)),
    ];
    let mut site = Site::new(World::with(pods), two_fields(30, 10));
    let agent = site.agent();
    settle().await;
    site.prepare();
    site.until(secs(2)).await;
    site.kill(agent).await;
    site.until(secs(5)).await;
    let agent = site.agent();
    assert_eq!(site.reach(&agent, ProgressPhase::Released).await, secs(6));
    let groups = &site.reports.all()[0].groups;
    assert_eq!((groups[0].started, groups[0].ended), (Some(secs(0)), Some(secs(5))));
    assert_eq!((groups[1].started, groups[1].ended), (Some(secs(5)), Some(secs(6))));
}

#[tokio::test(start_paused = true)]
async fn a_login_manager_that_speaks_late_is_followed_with_the_time_that_is_left() {
    for is_disabled in [false, true] {
        let site = killed().await;
        site.lock.fake.modify(|state| {
            (state.preparing, state.delay) = (false, None);
            state.lock = LockState::Waiting { why: "not connected yet".into() };
        });
        if is_disabled {
            site.policy.send_replace(std::sync::Arc::new(Policy::disabled()));
        }
        let agent = site.agent();
        site.until(secs(7)).await;
        assert_eq!(site.world.lives()[1].signals.len(), 1, "no one is asked on a guess");
        site.lock.fake.modify(|state| {
            state.preparing = true;
            state.since = Some(tokio::time::Instant::now());
            state.lock = LockState::Held;
        });
        let took = site.reach(&agent, ProgressPhase::Released).await;
        assert_eq!(took.as_secs(), 20);
        site.assert_no_grace_grew();
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_when_the_unit_is_stopped_past_the_login_manager_that_announced_it() {
    let pods = [(pod("app", None, Some(20)), secs(4))];
    let mut site = Site::new(World::with(pods), two_fields(30, 10));
    let agent = site.agent();
    site.prepare();
    site.until(secs(2)).await;
    site.stop_unit();
    site.reach(&agent, ProgressPhase::Released).await;
    let reports = site.reports.all();
    assert_eq!((reports.len(), reports[0].outcome), (1, Outcome::Clean));
    assert_eq!(site.world.lives()[0].signals.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_a_run_is_in_force_until_it_is_over() {
    let mut site =
        Site::new(World::with([(pod("app", None, Some(20)), secs(4))]), two_fields(30, 10));
    let agent = site.agent();
    site.prepare();
    site.until(secs(2)).await;
    let disabled = std::sync::Arc::new(Policy::disabled());
    assert!(agent.progress.policy_in_force(&disabled).is_enabled());
    site.reach(&agent, ProgressPhase::Released).await;
    settle().await;
    assert!(!agent.progress.policy_in_force(&disabled).is_enabled());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_over_is_not_run_again() {
    let mut site = killed().await;
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    site.kill(second).await;
    assert_eq!(phase(&site), RunPhase::Released);
    let third = site.agent();
    assert!(third.gate.is_shut());
    site.reach(&third, ProgressPhase::Released).await;
    assert_eq!((site.reports.all().len(), site.locks_gone()), (1, 1));
    // Called off after all: what comes next is a shutdown of its own.
    site.lock.fake.cancel();
    settle().await;
    assert!(!third.gate.is_shut());
    assert!(site.reports.all()[0].node_stayed_up);
    assert_eq!(phase(&site), RunPhase::Cancelled);
    site.world.add(pod("back", None, Some(3)), NEVER);
    site.prepare();
    site.until(secs(10)).await;
    assert_eq!(site.locks_gone(), 2);
    assert_eq!(site.world.lives()[2].signals.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_soft_reboot_pods_are_let_in_with_the_login_managers_first_word() {
    let site = killed().await;
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    site.kill(second).await;
    site.lock.fake.cancel();
    let third = site.agent();
    // A pod of the API server that is refused now would have failed for good.
    assert!(matches!(third.gate.state(), GateState::Undecided { .. }));
    settle().await;
    assert_eq!(third.gate.state(), GateState::Open);
    assert_eq!(site.reports.all().len(), 1);
    let events = site.recorder.events();
    assert!(!events.iter().any(|e| matches!(e, Event::ShutdownCancelled { .. })), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_report_stays_as_it_is_when_the_system_was_started_anew_under_the_same_kernel() {
    for started_anew in [true, false] {
        let mut site = killed().await;
        let second = site.agent();
        site.reach(&second, ProgressPhase::Released).await;
        site.kill(second).await;
        site.lock.fake.cancel();
        if started_anew {
            site.system_start = secs(77) + site.start.elapsed() + secs(60);
        }
        let _third = site.agent();
        settle().await;
        let reports = site.reports.all();
        let last = reports.last().map(|report| (report.outcome, report.node_stayed_up));
        assert_eq!(last, Some((Outcome::Forced, !started_anew)), "{started_anew}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_record_is_begun_with_what_the_login_manager_says() {
    let pods = [(pod("app", None, Some(20)), secs(1))];
    let mut site = Site::new(World::with(pods), two_fields(30, 10));
    site.prepare();
    site.until(secs(5)).await;
    let agent = site.agent();
    site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(site.asked(), [("app".to_owned(), 5.0, 20.0)]);
    assert!(site.reports.all()[0].resumed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_comes_when_the_time_is_over_is_quick() {
    let site = killed().await;
    site.until(secs(36)).await;
    let agent: Agent = site.agent();
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert!(took <= secs(38), "{took:?}");
    let other = &site.world.lives()[1];
    assert_eq!(other.signals.len(), 2);
}

/// Without a record: the agent was started late.
#[tokio::test(start_paused = true)]
async fn new_pods_wait_from_the_login_managers_word_on_until_the_run_has_decided() {
    let logind = FakeInhibitor::holding(secs(30));
    logind.modify(|state| state.lock = LockState::Waiting { why: "connecting".into() });
    let parts = ShutdownParts::new(
        Arc::new(FakeKiller::default()),
        Arc::new(logind.clone()),
        two_fields(30, 10),
        WallClock::fixed(WallTime::UNIX_EPOCH),
        BootClock::new(Duration::default),
        "boot",
    );
    let gate = parts.gate.clone();
    let controller = ShutdownController::new(parts);
    assert_eq!(gate.state(), GateState::Open);
    let (earlier, ()) = tokio::join!(controller.take_over(), async { logind.prepare() });
    assert!(earlier.is_empty());
    assert!(matches!(gate.state(), GateState::Undecided { .. }));
    let run = tokio::spawn(controller.run(CancellationToken::new()));
    gate.states().wait_for(|state| *state == GateState::Shut).await.unwrap();
    run.abort();
}
