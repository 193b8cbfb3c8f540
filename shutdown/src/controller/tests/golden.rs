//! Golden traces of the reference that concern the controller: the externally visible steps, in order.
//! Traces of the login manager's bus are tested with the bus.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use winddown_shared::{Event, LockState};

use super::agents::{Agent, Arrivals, Site};
use super::world::World;
use super::{settle, two_fields};
use crate::tests::{period, pod, secs};
use crate::{CRITICAL_PRIORITY, PodEnd, Policy, ProgressPhase, RunPhase};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);

async fn node() -> (Site, Agent) {
    let world = World::with([
        (pod("normal", None, Some(30)), secs(3)),
        (pod("critical", CRITICAL, Some(30)), secs(2)),
    ]);
    let site = Site::new(world, two_fields(30, 10));
    let agent = site.agent();
    settle().await;
    (site, agent)
}

// GT-2 shutdown of one normal and one critical pod.
#[tokio::test(start_paused = true)]
async fn golden_shutdown_gate_then_lame_duck_then_record_then_pods_in_order_then_report_then_lock()
{
    let (mut site, agent) = node().await;
    site.prepare();
    settle().await;
    assert!(agent.gate.is_shut());
    assert_eq!(site.world.lame_duck(site.start), [(0.0, true)]);
    assert_eq!(*site.disk.phases.lock().unwrap(), [RunPhase::Ending]);
    site.until(Duration::from_millis(2900)).await;
    assert_eq!(site.asked().len(), 1);
    site.reach(&agent, ProgressPhase::Released).await;
    let asked: Vec<_> = site.asked().into_iter().map(|(name, at, _)| (name, at)).collect();
    assert_eq!(asked, [("normal".to_owned(), 0.0), ("critical".to_owned(), 3.0)]);
    use RunPhase::{Ending, Released, Reporting};
    assert_eq!(*site.disk.phases.lock().unwrap(), [Ending, Ending, Reporting, Released]);
    assert_eq!((site.reports.all().len(), site.locks_gone()), (1, 1));
    assert!(matches!(site.recorder.events()[0], Event::ShutdownStarted { pods: 2, .. }));
    assert!(matches!(site.recorder.events().last(), Some(Event::ShutdownFinished { left: 0, .. })));
}

// GT-3 cancel while idle.
#[tokio::test(start_paused = true)]
async fn golden_cancel_while_idle_changes_nothing_and_the_lock_is_held() {
    let (site, agent) = node().await;
    site.lock.fake.cancel();
    settle().await;
    assert!(!agent.gate.is_shut() && site.lock.fake.is_held());
    assert!(site.asked().is_empty() && site.reports.all().is_empty());
    assert!(site.recorder.events().is_empty() && site.disk.phases.lock().unwrap().is_empty());
}

// GT-4 a pod that arrives during a shutdown.
#[tokio::test(start_paused = true)]
async fn golden_a_pod_that_arrives_during_a_shutdown_is_refused_to_the_end() {
    let (mut site, agent) = node().await;
    let arrivals = Arrivals::default();
    site.prepare();
    settle().await;
    let knocking = arrivals.knock(&agent.gate);
    site.reach(&agent, ProgressPhase::Released).await;
    site.until(secs(60)).await;
    knocking.abort();
    assert!(arrivals.admitted().is_empty());
}

// GT-5 the bus is lost: this neither starts nor ends a shutdown.
#[tokio::test(start_paused = true)]
async fn golden_a_lost_bus_is_no_news_idle_or_in_the_middle() {
    let (mut site, agent) = node().await;
    let lose = |site: &Site| {
        site.lock.fake.modify(|state| state.lock = LockState::Waiting { why: "bus lost".into() });
    };
    lose(&site);
    settle().await;
    assert!(!agent.gate.is_shut());
    site.lock.fake.cancel();
    site.prepare();
    site.until(secs(1)).await;
    lose(&site);
    site.until(secs(2)).await;
    assert!(agent.gate.is_shut());
    site.lock.fake.modify(|state| state.lock = LockState::Held);
    assert_eq!(site.reach(&agent, ProgressPhase::Released).await, secs(5));
    assert_eq!(site.locks_gone(), 1);
}

// Called off while the bus was away, and learned of when it is back.
#[tokio::test(start_paused = true)]
async fn probe_a_shutdown_called_off_while_the_bus_was_away_is_called_off_when_it_is_back() {
    let (mut site, agent) = node().await;
    site.prepare();
    site.until(secs(1)).await;
    site.lock.fake.modify(|state| state.lock = LockState::Waiting { why: "bus lost".into() });
    site.until(secs(2)).await;
    site.lock.fake.cancel();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    settle().await;
    assert!(!agent.gate.is_shut() && site.lock.fake.is_held());
    assert_eq!(site.asked().len(), 1);
}

// Called off after a second of three groups: the other two survive.
#[tokio::test(start_paused = true)]
async fn probe_called_off_in_the_first_of_three_groups_the_others_survive() {
    let pods = [0, 5, 9].map(|p| (pod(&format!("p{p}"), Some(p), None), secs(3)));
    let policy = Policy::by_priority([0, 5, 9].map(|p| period(p, 10))).unwrap();
    let mut site = Site::new(World::with(pods), policy);
    let agent = site.agent();
    settle().await;
    site.prepare();
    site.until(secs(1)).await;
    site.lock.fake.cancel();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    site.until(secs(60)).await;
    let gone: Vec<_> = site.world.lives().iter().map(|life| life.gone.is_some()).collect();
    assert_eq!(gone, [true, false, false]);
    assert!(site.recorder.events().contains(&Event::ShutdownCancelled { spared_groups: 2 }));
}

// A restart while the node goes down: no pod is admitted, the rest are stopped, the lock is released once.
#[tokio::test(start_paused = true)]
async fn probe_an_agent_restarted_again_and_again_lets_the_node_go_once_and_in_time() {
    let (mut site, mut agent) = node().await;
    site.prepare();
    for step in 1..40 {
        site.until(Duration::from_millis(step * 100)).await;
        site.kill(agent).await;
        agent = site.agent();
        assert!(agent.gate.is_shut());
    }
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert!(took < secs(7), "{took:?}");
    assert_eq!((site.locks_gone(), site.reports.all().len()), (1, 1));
    assert_eq!(site.reports.all()[0].resumed.len(), 39);
}

// Called off and begun again while the report is written: that lock is another shutdown's.
#[tokio::test(start_paused = true)]
async fn probe_a_second_shutdown_that_begins_while_the_first_is_reported_keeps_its_lock() {
    let (mut site, agent) = node().await;
    let held = Arc::new(Mutex::new(Vec::new()));
    let (login, seen) = (site.lock.fake.clone(), Arc::clone(&held));
    let meanwhile = move || {
        let mut seen = seen.lock().unwrap();
        seen.push(login.is_held());
        if seen.len() == 1 {
            login.cancel();
            login.prepare();
        }
    };
    *site.reports.meanwhile.lock().unwrap() = Some(Box::new(meanwhile));
    site.prepare();
    site.until(secs(60)).await;
    assert_eq!(*held.lock().unwrap(), [true, true]);
    assert_eq!((site.locks_gone(), site.lock.fake.is_held()), (1, false));
    assert!(agent.gate.is_shut());
}

// Called off while the disk is busy: no pod has been requested to stop, and none is.
#[tokio::test(start_paused = true)]
async fn probe_called_off_while_the_first_record_is_written_nobody_is_asked() {
    let (mut site, agent) = node().await;
    site.cancel_at_the_next_record(&agent);
    site.prepare();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    site.until(secs(60)).await;
    assert!(site.asked().is_empty() && !agent.gate.is_shut());
    let report = &site.reports.all()[0];
    let spared = |pod: &crate::PodReport| pod.end == PodEnd::Spared && pod.asked.is_none();
    assert!(report.pods().all(|(_, pod)| spared(pod)), "{report:?}");
    assert_eq!(report.groups[0].started, None);
}
