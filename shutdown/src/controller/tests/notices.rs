//! Notices, alone and together with the login manager.

use std::time::Duration;

use tokio::sync::watch;
use winddown_shared::{GateReason, NoticeState};

use super::agents::{Agent, Site};
use super::world::World;
use super::{settle, two_fields};
use crate::tests::{pod, secs, with_role};
use crate::{CRITICAL_PRIORITY, Outcome, PodEnd, Policy, ProgressPhase, Trigger};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);
const NEVER: Duration = Duration::from_secs(100_000);

/// An ordinary and a critical pod with their own grace; neither ends by itself.
fn stubborn(app: i64, critical: i64) -> World {
    World::with([
        (pod("app", None, Some(app)), NEVER),
        (pod("critical", CRITICAL, Some(critical)), NEVER),
    ])
}

async fn started(world: World) -> (Site, Agent) {
    let site = Site::new(world, two_fields(30, 10));
    let agent = site.agent();
    settle().await;
    (site, agent)
}

fn rows(rows: &[(&str, f64, f64)]) -> Vec<(String, f64, f64)> {
    rows.iter().map(|(name, at, grace)| ((*name).to_string(), *at, *grace)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_notice_ends_the_pods_before_its_deadline_and_keeps_the_lock() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    site.give_notice(secs(120));
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(took, secs(30));
    assert_eq!(site.asked(), rows(&[("app", 0.0, 20.0), ("critical", 20.0, 10.0)]));
    assert!(agent.gate.is_shut() && site.lock.fake.is_held());
    let report = &site.reports.all()[0];
    assert_eq!((report.trigger, report.outcome), (Trigger::Notice, Outcome::Forced));
    let notice = report.notice.as_ref().unwrap();
    assert_eq!((&*notice.source, &*notice.text, notice.deadline), ("aws", "spot", secs(120)));
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_leaves_more_time_than_the_policy_goes_to_the_pods_own_grace() {
    let (mut site, agent) = started(stubborn(300, 10)).await;
    site.give_notice(secs(120));
    // 120 s less the reserve of 2 s, less 10 s for the critical pod.
    assert_eq!(site.reach(&agent, ProgressPhase::Released).await, secs(118));
    assert_eq!(site.asked(), rows(&[("app", 0.0, 108.0), ("critical", 108.0, 10.0)]));
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_leaves_less_time_cuts_the_pods_that_do_not_fit() {
    for (left, app, critical) in [(20, 9.0, 9.0), (10, 4.0, 5.0), (3, 1.0, 1.0)] {
        let (mut site, agent) = started(stubborn(60, 60)).await;
        site.give_notice(secs(left));
        let took = site.reach(&agent, ProgressPhase::Released).await;
        assert!(took <= secs(left), "{left}: {took:?}");
        let graces: Vec<_> = site.asked().iter().map(|(_, _, grace)| *grace).collect();
        assert_eq!(graces, [app, critical], "{left}");
        assert!(site.reports.all()[0].budget.is_short());
    }
}

/// It means "at any moment", which may be in hours.
#[tokio::test(start_paused = true)]
async fn a_notice_whose_time_is_over_when_it_comes_gives_the_pods_the_policys_own_time() {
    for after_another in [false, true] {
        let (mut site, agent) = started(stubborn(600, 60)).await;
        if after_another {
            site.give_notice(secs(300));
            site.until(secs(5)).await;
        }
        site.give_notice(Duration::ZERO);
        let took = site.reach(&agent, ProgressPhase::Released).await;
        assert!(took >= secs(30) && took <= secs(32), "{after_another}: {took:?}");
        let (app, critical) = (&site.asked()[0], &site.asked()[1]);
        assert!(app.2 >= 20.0 && critical.2 >= 10.0, "{after_another}: {app:?} {critical:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_without_a_time_and_one_with_a_time_leave_what_the_shorter_of_them_leaves() {
    for (overdue, later, at_most) in [(0, 10, 10), (0, 3600, 32), (3600, 0, 35), (3600, 10, 15)] {
        let (mut site, agent) = started(stubborn(600, 60)).await;
        site.give_notice(secs(overdue));
        site.until(secs(5)).await;
        site.give_notice_from("operator", secs(later));
        let took = site.reach(&agent, ProgressPhase::Released).await;
        let least = secs(at_most).mul_f64(0.8);
        assert!(least <= took && took <= secs(at_most + 5), "{overdue}, {later}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_whose_time_is_over_hides_no_later_one_from_pods_that_came_back() {
    let (mut site, agent) = started(stubborn(600, 60)).await;
    site.give_notice(Duration::ZERO);
    site.reach(&agent, ProgressPhase::Released).await;
    site.until(secs(100)).await;
    site.world.add(pod("back", None, Some(20)), NEVER);
    site.start = tokio::time::Instant::now();
    site.give_notice_from("operator", secs(10));
    site.until(secs(11)).await;
    let asked = site.asked().into_iter().find(|(name, ..)| name == "back");
    assert_eq!(asked, Some(("back".to_owned(), 0.0, 9.0)));
}

#[tokio::test(start_paused = true)]
async fn a_notice_in_the_middle_of_a_shutdown_shortens_what_is_left() {
    let (mut site, agent) = started(stubborn(60, 60)).await;
    site.prepare();
    site.until(secs(5)).await;
    let start = site.start;
    site.give_notice(secs(10));
    site.start = start;
    let took = site.reach(&agent, ProgressPhase::Released).await;
    // Gone at 15 s, less a tenth: 13.5 s for the pods, 8 whole ones of them are left, in equal parts.
    assert!(took <= secs(15), "{took:?}");
    let lives = site.world.lives();
    let signals = |i: usize| -> Vec<(u128, u128)> {
        let ms = |at: tokio::time::Instant| at.duration_since(start).as_millis();
        lives[i].signals.iter().map(|(at, kill_at)| (ms(*at), ms(*kill_at))).collect()
    };
    assert_eq!(signals(0), [(0, 20_000), (5000, 9000)]);
    assert_eq!(signals(1), [(9000, 13_000)]);
    let report = &site.reports.all()[0];
    assert_eq!((report.trigger, report.outcome), (Trigger::LoginManager, Outcome::Forced));
    assert_eq!(report.notice.as_ref().map(|notice| notice.deadline), Some(secs(15)));
    let app = report.pods().next().unwrap().1;
    assert_eq!((app.grace, app.wanted_grace), (secs(9), Some(secs(60))));
    assert!(!site.lock.fake.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_notice_in_the_middle_of_a_group_lets_its_drivers_end_last_all_the_same() {
    let world = World::with([
        (with_role(&pod("driver", CRITICAL, Some(30)), "driver"), secs(1)),
        (pod("app", CRITICAL, Some(60)), NEVER),
    ]);
    let mut site = Site::new(world, two_fields(100, 90));
    site.lock.fake.modify(|state| state.delay = Some(secs(120)));
    let agent = site.agent();
    settle().await;
    site.prepare();
    site.until(secs(5)).await;
    let start = site.start;
    site.give_notice(secs(20));
    site.start = start;
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert!(took <= secs(25), "{took:?}");
    let report = &site.reports.all()[0];
    let of = |name: &str| report.pods().find(|(_, pod)| pod.name == name).unwrap().1;
    let (app, driver) = (of("app"), of("driver"));
    assert!(app.exit.is_some() && driver.asked >= app.exit, "{report:?}");
    assert_eq!((app.end, driver.end), (PodEnd::Killed, PodEnd::Exited));
}

#[tokio::test(start_paused = true)]
async fn the_report_names_the_notice_that_left_the_least_time_also_after_it_was_withdrawn() {
    let (mut site, agent) = started(stubborn(60, 60)).await;
    site.prepare();
    let start = site.start;
    for (at, left) in [(2, 40), (3, 9), (4, 60)] {
        site.start = start;
        site.until(secs(at)).await;
        // One takes the place of the other.
        site.give_notice(secs(left));
        settle().await;
    }
    site.start = start;
    site.reach(&agent, ProgressPhase::Released).await;
    let notice = site.reports.all()[0].notice.clone();
    assert_eq!(notice.map(|notice| notice.deadline), Some(secs(12)));
}

#[tokio::test(start_paused = true)]
async fn a_notice_with_more_time_than_is_left_changes_nothing_but_the_report() {
    let (mut site, agent) = started(stubborn(60, 60)).await;
    site.prepare();
    site.until(secs(5)).await;
    let start = site.start;
    site.give_notice(secs(300));
    site.start = start;
    assert_eq!(site.reach(&agent, ProgressPhase::Released).await, secs(30));
    assert_eq!(site.world.lives()[0].signals.len(), 1);
    assert!(site.reports.all()[0].notice.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_login_manager_with_less_time_than_the_notice_shortens_what_is_left() {
    let (mut site, agent) = started(stubborn(300, 300)).await;
    site.give_notice(secs(120));
    site.until(secs(10)).await;
    let start = site.start;
    site.prepare();
    site.start = start;
    // It waits for 40 s from its own signal: 48 s less what is kept back.
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(took, secs(48));
    assert_eq!((site.locks_gone(), site.lock.fake.is_held()), (1, false));
    let report = &site.reports.all()[0];
    assert_eq!((report.trigger, report.budget.delay), (Trigger::Notice, Some(secs(50))));
}

#[tokio::test(start_paused = true)]
async fn a_login_manager_whose_delay_shrinks_is_followed_and_one_that_grows_is_not() {
    let (mut site, agent) = started(stubborn(60, 60)).await;
    site.prepare();
    site.until(secs(2)).await;
    site.lock.fake.modify(|state| state.delay = Some(secs(20)));
    site.until(secs(3)).await;
    site.lock.fake.modify(|state| state.delay = Some(secs(300)));
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(took, secs(18));
    site.assert_no_grace_grew();
}

/// The machine is still up, so something else decides by then: the service manager, which stops the agent's unit.
#[tokio::test(start_paused = true)]
async fn a_delay_that_is_over_when_it_is_heard_of_takes_nothing_from_the_pods() {
    let (mut site, agent) = started(stubborn(60, 60)).await;
    site.prepare();
    site.until(secs(20)).await;
    site.lock.fake.modify(|state| state.delay = Some(secs(6)));
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(took, secs(30));
    let report = &site.reports.all()[0];
    assert_eq!(report.count(PodEnd::Killed), 2);
}

/// Whatever the way on which the time is taken away: a login manager's delay, a notice.
#[tokio::test(start_paused = true)]
async fn a_run_whose_time_is_taken_away_still_asks_every_pod_and_kills_it() {
    for (by_notice, left) in [(false, 0.05), (false, 1.0), (true, 0.05), (true, 1.0), (true, 3.0)] {
        let (mut site, agent) = started(stubborn(60, 60)).await;
        site.prepare();
        site.until(secs(20)).await;
        let start = site.start;
        let left = Duration::from_secs_f64(left);
        match by_notice {
            true => site.give_notice(left),
            false => site.lock.fake.modify(|state| state.delay = Some(secs(20) + left)),
        }
        site.start = start;
        let took = site.reach(&agent, ProgressPhase::Released).await;
        let report = &site.reports.all()[0];
        assert_eq!(report.count(PodEnd::Killed), 2, "{by_notice} {left:?} {took:?}");
        assert!(took <= secs(23), "{by_notice} {left:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_is_withdrawn_spares_the_groups_not_started() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    site.give_notice(secs(120));
    site.until(secs(5)).await;
    site.withdraw_notice();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    settle().await;
    assert!(!agent.gate.is_shut());
    let report = &site.reports.all()[0];
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert_eq!((report.count(PodEnd::Terminating), report.count(PodEnd::Spared)), (1, 1));
    assert_eq!(site.world.lame_duck(site.start), [(0.0, true), (5.0, false)]);
    assert!(site.world.lives()[1].signals.is_empty() && site.lock.fake.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_is_withdrawn_while_the_login_manager_shuts_down_calls_nothing_off() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    site.give_notice(secs(120));
    site.until(secs(5)).await;
    let start = site.start;
    site.prepare();
    site.start = start;
    settle().await;
    site.withdraw_notice();
    assert_eq!(site.reach(&agent, ProgressPhase::Released).await, secs(30));
    assert_eq!((site.locks_gone(), site.reports.all().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_under_a_notice_goes_on_for_the_notice() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    site.prepare();
    site.until(secs(5)).await;
    let start = site.start;
    site.give_notice(secs(120));
    site.start = start;
    settle().await;
    site.lock.fake.cancel();
    assert_eq!(site.reach(&agent, ProgressPhase::Released).await, secs(30));
    assert!(agent.gate.is_shut() && site.lock.fake.is_held());
    assert_eq!((site.locks_gone(), site.reports.all()[0].outcome), (0, Outcome::Forced));
}

#[tokio::test(start_paused = true)]
async fn after_a_notice_the_gate_stays_shut_and_the_login_manager_is_let_go_at_once() {
    let (mut site, agent) = started(stubborn(1, 1)).await;
    site.give_notice(secs(120));
    site.reach(&agent, ProgressPhase::Released).await;
    site.until(secs(60)).await;
    assert!(agent.gate.is_shut() && site.lock.fake.is_held());
    site.prepare();
    settle().await;
    assert_eq!((site.locks_gone(), site.lock.fake.is_held()), (1, false));
    assert_eq!(site.reports.all().len(), 1, "there was nothing left to do");
    assert!(agent.gate.is_shut());
}

/// Beside a kubelet the gate does not keep pods away.
#[tokio::test(start_paused = true)]
async fn pods_that_came_back_after_the_run_of_a_notice_are_terminated_when_the_node_goes_down() {
    for (restarted, without_word) in [(false, false), (false, true), (true, false)] {
        let (mut site, mut agent) = started(stubborn(1, 1)).await;
        site.give_notice(secs(120));
        site.reach(&agent, ProgressPhase::Released).await;
        site.until(secs(60)).await;
        site.world.add(pod("back", None, Some(20)), secs(5));
        match without_word {
            true => site.stop_unit(),
            false if restarted => {
                site.kill(agent).await;
                site.prepare();
                agent = site.agent();
            }
            false => site.prepare(),
        }
        site.until(secs(4)).await;
        assert!(agent.gate.is_shut() && site.lock.fake.is_held());
        site.until(secs(6)).await;
        let asked = site.asked().into_iter().find(|(name, ..)| name == "back");
        assert_eq!(asked.map(|(_, at, grace)| (at, grace)), Some((0.0, 20.0)), "{restarted}");
        assert_eq!(site.locks_gone(), usize::from(!without_word), "{restarted}");
        // By the wall clock of the tests both runs began at the same time, so this is the second one's.
        let report = site.reports.all().pop().unwrap();
        let pods: Vec<_> = report.pods().map(|(_, pod)| &*pod.name).collect();
        assert_eq!(pods, ["back"]);
    }
}

/// The node is still up, so the notice did not say when it goes down.
#[tokio::test(start_paused = true)]
async fn a_shutdown_after_the_time_of_a_notice_gives_pods_that_came_back_the_policys_own_time() {
    for (left, at, without_word) in
        [(120, 130, false), (120, 130, true), (20, 130, false), (0, 10, false), (0, 130, false)]
    {
        let (mut site, agent) = started(stubborn(1, 1)).await;
        site.give_notice(secs(left));
        site.reach(&agent, ProgressPhase::Released).await;
        site.until(secs(at)).await;
        site.world.add(pod("back", None, Some(20)), secs(5));
        match without_word {
            true => site.stop_unit(),
            false => site.prepare(),
        }
        site.until(secs(4)).await;
        assert!(site.lock.fake.is_held(), "{left}, {at}");
        site.until(secs(6)).await;
        let asked = site.asked().into_iter().find(|(name, ..)| name == "back");
        assert_eq!(asked.map(|(_, at, grace)| (at, grace)), Some((0.0, 20.0)), "{left}, {at}");
        let report = site.reports.all().pop().unwrap();
        assert_eq!((report.outcome, report.budget.pods), (Outcome::Clean, secs(30)), "{left}");
        assert_eq!(report.notice, None, "it says nothing of this shutdown");
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_was_over_before_the_run_hides_no_other_and_cuts_nothing_when_that_is_withdrawn()
 {
    for overdue in [0, 20] {
        let (mut site, agent) = started(stubborn(1, 1)).await;
        site.give_notice(secs(overdue));
        site.reach(&agent, ProgressPhase::Released).await;
        site.until(secs(40)).await;
        site.world.add(pod("back", None, Some(300)), NEVER);
        site.start = tokio::time::Instant::now();
        site.give_notice_from("operator", secs(600));
        site.until(secs(50)).await;
        site.withdraw_notice_of("operator");
        site.until(secs(60)).await;
        let lives = site.world.lives();
        let back = lives.iter().find(|life| &**life.pod.name() == "back").unwrap();
        let signals: Vec<_> = back.signals.iter().map(|(at, kill)| *kill - *at).collect();
        assert_eq!(signals, [secs(300)], "{overdue}");
        // One without a time that is over by its own period, and one with a time that is not over.
        site.prepare();
        site.give_notice_from("operator", secs(10));
        assert!(site.reach(&agent, ProgressPhase::Released).await <= secs(10), "{overdue}");
    }
}

/// The earlier notice says "at any moment", and for a while leaves less time than the later one.
#[tokio::test(start_paused = true)]
async fn a_notice_without_a_time_from_before_the_run_hides_no_later_one_from_it() {
    let (mut site, agent) = started(stubborn(1, 1)).await;
    site.give_notice(Duration::ZERO);
    site.reach(&agent, ProgressPhase::Released).await;
    site.until(secs(12)).await;
    site.world.add(pod("back", None, Some(60)), NEVER);
    site.prepare();
    // Over at 24 s, and the earlier one's period at 20 s.
    site.give_notice_from("operator", secs(24));
    settle().await;
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert!(took > secs(20) && took <= secs(24), "{took:?}");
    let report = site.reports.all().pop().unwrap();
    assert_eq!(report.notice.map(|notice| notice.source), Some("operator".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn pods_that_came_back_after_the_run_of_a_notice_are_terminated_for_the_next_one() {
    for cancelled_between in [false, true] {
        let (mut site, agent) = started(stubborn(1, 1)).await;
        site.give_notice(secs(120));
        site.reach(&agent, ProgressPhase::Released).await;
        if cancelled_between {
            site.prepare();
            settle().await;
            site.lock.fake.cancel();
        }
        site.until(secs(60)).await;
        site.world.add(pod("back", None, Some(20)), secs(5));
        settle().await;
        assert!(!site.asked().iter().any(|(name, ..)| name == "back"), "no one has asked again");
        site.give_notice(secs(120));
        site.until(secs(6)).await;
        let asked = site.asked().into_iter().find(|(name, ..)| name == "back");
        let asked = asked.map(|(_, at, grace)| (at, grace));
        assert_eq!(asked, Some((0.0, 20.0)), "{cancelled_between}");
        site.give_notice(secs(100));
        settle().await;
        assert_eq!(site.reports.all().len(), 1, "nothing was left for a third run");
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_whose_run_is_over_hides_no_later_one_that_leaves_more_time() {
    let (mut site, agent) = started(stubborn(1, 1)).await;
    site.give_notice(secs(120));
    site.reach(&agent, ProgressPhase::Released).await;
    site.until(secs(60)).await;
    site.world.add(pod("back", None, Some(20)), secs(5));
    site.start = tokio::time::Instant::now();
    site.give_notice_from("operator", secs(180));
    site.until(secs(6)).await;
    let report = site.reports.all().pop().unwrap();
    let asked: Vec<_> = report.pods().map(|(_, pod)| (&*pod.name, pod.asked, pod.grace)).collect();
    assert_eq!(asked, [("back", Some(Duration::ZERO), secs(20))], "the run began with its notice");
    assert_eq!(
        report.notice.map(|notice| notice.deadline),
        Some(secs(60)),
        "the first still counts"
    );
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_is_withdrawn_after_its_run_opens_the_gate_and_the_next_one_counts() {
    let (mut site, agent) = started(stubborn(1, 1)).await;
    site.give_notice(secs(120));
    site.reach(&agent, ProgressPhase::Released).await;
    site.withdraw_notice();
    settle().await;
    assert!(!agent.gate.is_shut());
    site.world.add(pod("back", None, Some(1)), NEVER);
    site.give_notice(secs(60));
    site.until(secs(10)).await;
    assert_eq!(site.reports.all()[0].pods().count(), 1);
    assert!(agent.gate.is_shut());
}

#[tokio::test(start_paused = true)]
async fn an_agent_killed_under_a_notice_is_replaced_before_anybody_repeats_the_notice() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    site.give_notice(secs(120));
    site.until(secs(5)).await;
    site.kill(agent).await;
    site.notices.send_replace(NoticeState::default());
    let agent = site.agent();
    assert!(agent.gate.is_shut());
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert!((29..=30).contains(&took.as_secs()), "{took:?}");
    site.assert_no_grace_grew();
    let report = &site.reports.all()[0];
    assert_eq!((report.trigger, report.resumed.len()), (Trigger::Notice, 1));
    // No source repeats the notice, so it is dropped when its deadline has passed.
    site.until(secs(119)).await;
    assert!(agent.gate.is_shut());
    site.until(secs(121)).await;
    assert!(!agent.gate.is_shut());
}

/// A metadata service that does not answer says nothing of what it announced before.
#[tokio::test(start_paused = true)]
async fn a_notice_of_an_earlier_agent_outlasts_its_time_until_its_source_can_be_read() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    site.give_notice(secs(120));
    site.until(secs(5)).await;
    site.kill(agent).await;
    let unheard = NoticeState { unheard: ["aws".into()].into(), ..NoticeState::default() };
    site.notices.send_replace(unheard);
    let agent = site.agent();
    site.reach(&agent, ProgressPhase::Released).await;
    site.until(secs(600)).await;
    assert!(agent.gate.is_shut());
    site.withdraw_notice_of("aws");
    site.until(secs(601)).await;
    assert!(!agent.gate.is_shut());
}

#[tokio::test(start_paused = true)]
async fn a_notice_withdrawn_while_no_agent_ran_is_dropped_when_its_source_is_read_and_not_before() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    site.give_notice(secs(120));
    site.until(secs(5)).await;
    site.kill(agent).await;
    let heard =
        |source: &str| NoticeState { heard: [source.into()].into(), ..NoticeState::default() };
    site.notices.send_replace(heard("operator"));
    let agent = site.agent();
    site.until(secs(7)).await;
    assert!(agent.gate.is_shut(), "another source cannot withdraw it");
    site.notices.send_replace(heard("aws"));
    site.reach(&agent, ProgressPhase::Cancelled).await;
    settle().await;
    assert!(!agent.gate.is_shut());
    let report = &site.reports.all()[0];
    assert_eq!((report.count(PodEnd::Terminating), report.count(PodEnd::Spared)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_notice_of_an_earlier_agent_outlives_that_of_another_source() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    site.give_notice(secs(120));
    site.until(secs(5)).await;
    site.kill(agent).await;
    site.notices.send_replace(NoticeState::default());
    let agent = site.agent();
    site.give_notice_from("operator", secs(600));
    site.until(secs(6)).await;
    site.withdraw_notice_of("operator");
    site.until(secs(8)).await;
    assert!(agent.gate.is_shut(), "its own source has not been read");
    site.withdraw_notice_of("aws");
    site.reach(&agent, ProgressPhase::Cancelled).await;
}

#[tokio::test(start_paused = true)]
async fn a_notice_outlives_its_source() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    site.give_notice(secs(120));
    site.until(secs(5)).await;
    site.notices = watch::Sender::default();
    site.until(secs(8)).await;
    assert!(agent.gate.is_shut());
    site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(site.reports.all()[0].count(PodEnd::Spared), 0);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_ends_no_pods_does_so_under_a_notice_too() {
    let (mut site, agent) = started(stubborn(1, 1)).await;
    site.policy.send_replace(std::sync::Arc::new(Policy::disabled()));
    site.give_notice(secs(60));
    site.until(secs(10)).await;
    assert!(site.asked().is_empty() && !agent.gate.is_shut());
    site.prepare();
    settle().await;
    assert!(!site.lock.fake.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_enabled_while_a_notice_is_in_effect_ends_the_pods_from_then_on() {
    // One that leaves enough time, one that says no time, which leaves the policy's own.
    for (left, app, at_most) in [(130, 20.0, 30), (0, 20.0, 32), (110, 9.0, 20)] {
        let (mut site, agent) = started(stubborn(20, 10)).await;
        site.policy.send_replace(std::sync::Arc::new(Policy::disabled()));
        site.give_notice(secs(left));
        site.until(secs(90)).await;
        let phase = agent.progress.subscribe().borrow().phase;
        assert_eq!((phase, agent.gate.is_shut()), (ProgressPhase::Idle, false), "no run yet");
        site.policy.send_replace(std::sync::Arc::new(two_fields(30, 10)));
        site.start = tokio::time::Instant::now();
        let took = site.reach(&agent, ProgressPhase::Released).await;
        assert!(took <= secs(at_most), "{left}: {took:?}");
        assert_eq!(site.asked()[0], ("app".to_owned(), 0.0, app), "{left}");
        assert!(agent.gate.is_shut() && site.lock.fake.is_held());
        assert_eq!(site.reports.all()[0].took, took);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_ends_no_pods_when_a_notice_comes_may_do_so_when_the_node_goes_down() {
    let (mut site, _agent) = started(stubborn(1, 1)).await;
    site.policy.send_replace(std::sync::Arc::new(Policy::disabled()));
    site.give_notice(secs(600));
    settle().await;
    site.policy.send_replace(std::sync::Arc::new(two_fields(30, 10)));
    site.prepare();
    site.until(secs(10)).await;
    assert_eq!(site.asked(), rows(&[("app", 0.0, 1.0), ("critical", 1.0, 1.0)]));
}

#[tokio::test(start_paused = true)]
async fn the_gate_says_whether_a_notice_or_the_login_manager_keeps_it_shut() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    let reasons = |agent: &Agent| agent.gate.reasons().iter().collect::<Vec<_>>();
    site.give_notice(secs(120));
    settle().await;
    assert_eq!(reasons(&agent), [GateReason::Notice]);
    site.prepare();
    settle().await;
    assert_eq!(reasons(&agent), [GateReason::Shutdown, GateReason::Notice]);
    site.withdraw_notice();
    settle().await;
    assert_eq!(reasons(&agent), [GateReason::Shutdown]);
    site.lock.fake.cancel();
    settle().await;
    assert_eq!(reasons(&agent), []);
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_is_withdrawn_ends_neither_the_drain_nor_its_lame_duck() {
    let (mut site, agent) = started(stubborn(20, 10)).await;
    agent.gate.shut(GateReason::Drain);
    site.world.lame_duck_for(GateReason::Drain);
    site.give_notice(secs(120));
    site.until(secs(5)).await;
    site.withdraw_notice();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    settle().await;
    assert_eq!(agent.gate.reasons().iter().collect::<Vec<_>>(), [GateReason::Drain]);
    assert_eq!(site.world.lame_duck(site.start), [(0.0, true)], "never ended");
}
