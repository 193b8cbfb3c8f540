//! Pods that are not ready before they are requested to stop, and resources that they hold afterwards.

use std::time::Duration;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, NFSVolumeSource, Volume};
use winddown_shared::Pod;

use super::agents::{Agent, Site};
use super::world::World;
use super::{settle, two_fields};
use crate::tests::{pod, secs};
use crate::{CRITICAL_PRIORITY, Outcome, ProgressPhase};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);
const NEVER: Duration = Duration::from_secs(100_000);

async fn started(world: World, drain: u64) -> (Site, Agent) {
    let policy = two_fields(30, 10).with_endpoint_drain(secs(drain));
    let site = Site::new(world, policy);
    let agent = site.agent();
    settle().await;
    (site, agent)
}

fn two(app: Duration, critical: Duration) -> World {
    let pods = [pod("app", None, Some(60)), pod("critical", CRITICAL, Some(60))];
    World::with(pods.into_iter().zip([app, critical]))
}

#[tokio::test(start_paused = true)]
async fn pods_turn_not_ready_at_once_and_are_asked_after_the_drain_period() {
    let (mut site, agent) = started(two(secs(1), secs(1)), 5).await;
    site.prepare();
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(took, secs(7));
    assert_eq!(site.world.lame_duck(site.start), [(0.0, true)]);
    assert_eq!(site.asked()[0], ("app".into(), 5.0, 20.0));
    assert_eq!(site.reports.all()[0].endpoint_drain, Some(secs(5)));
}

#[tokio::test(start_paused = true)]
async fn without_a_period_pods_turn_not_ready_all_the_same() {
    let (mut site, agent) = started(two(secs(1), secs(1)), 0).await;
    site.prepare();
    assert_eq!(site.reach(&agent, ProgressPhase::Released).await, secs(2));
    assert_eq!(site.world.lame_duck(site.start), [(0.0, true)]);
    assert_eq!(site.reports.all()[0].endpoint_drain, None);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_pods_does_not_wait() {
    let (mut site, agent) = started(World::default(), 5).await;
    site.prepare();
    assert_eq!(site.reach(&agent, ProgressPhase::Released).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn called_off_as_a_lame_duck_no_pod_is_asked_and_pods_turn_ready() {
    let (mut site, agent) = started(two(secs(1), secs(1)), 5).await;
    site.prepare();
    site.until(secs(3)).await;
    site.lock.fake.cancel();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    settle().await;
    assert!(site.asked().is_empty() && !agent.gate.is_shut());
    assert_eq!(site.world.lame_duck(site.start), [(0.0, true), (3.0, false)]);
    assert_eq!(site.reports.all()[0].outcome, Outcome::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn when_time_is_short_the_drain_period_goes_before_any_grace() {
    // The pods ask for 30 s; the login manager leaves 32 s.
    let (mut site, agent) = started(two(NEVER, NEVER), 5).await;
    site.lock.fake.modify(|state| state.delay = Some(secs(34)));
    site.prepare();
    assert_eq!(site.reach(&agent, ProgressPhase::Released).await, secs(32));
    let asked = site.asked();
    assert_eq!((asked[0].1, asked[0].2), (2.0, 20.0));
    assert_eq!(site.reports.all()[0].endpoint_drain, Some(secs(2)));
}

#[tokio::test(start_paused = true)]
async fn when_time_runs_short_in_the_drain_period_it_ends_at_once() {
    let (mut site, agent) = started(two(NEVER, NEVER), 5).await;
    site.prepare();
    site.until(secs(1)).await;
    site.lock.fake.modify(|state| state.delay = Some(secs(21)));
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert!(took <= secs(21), "{took:?}");
    let asked = site.asked();
    assert_eq!(asked[0].1, 1.0);
    assert_eq!(site.reports.all()[0].endpoint_drain, Some(secs(1)));
}

fn with_volume(name: &str, volume: Volume) -> Pod {
    let mut object = pod(name, None, Some(60)).object().clone();
    object.spec.as_mut().unwrap().volumes = Some(vec![Volume { name: "data".into(), ..volume }]);
    Pod::new(object).unwrap()
}

fn nfs(name: &str) -> Pod {
    with_volume(name, Volume { nfs: Some(NFSVolumeSource::default()), ..Volume::default() })
}

fn plain(name: &str) -> Pod {
    let empty_dir = Some(EmptyDirVolumeSource::default());
    with_volume(name, Volume { empty_dir, ..Volume::default() })
}

/// Returns when the critical group was requested to stop, and when the node was released.
async fn second_group(pods: &[(Pod, Duration)]) -> (f64, Duration, Site) {
    let world = World::with(pods.iter().map(|(pod, _)| (pod.clone(), secs(1))));
    world.add(pod("critical", CRITICAL, Some(60)), secs(1));
    pods.iter().for_each(|(pod, held)| world.holds(pod.name(), *held));
    let (mut site, agent) = started(world, 0).await;
    site.prepare();
    let took = site.reach(&agent, ProgressPhase::Released).await;
    let asked = site.asked().iter().find(|(name, ..)| name == "critical").unwrap().1;
    (asked, took, site)
}

#[tokio::test(start_paused = true)]
async fn the_last_group_waits_for_volumes_of_all_and_no_group_keeps_the_next_one_waiting() {
    let (asked, took, site) = second_group(&[(nfs("a"), secs(3)), (nfs("b"), secs(2))]).await;
    assert_eq!((asked, took), (1.0, secs(4)));
    let report = &site.reports.all()[0];
    assert_eq!(report.groups[0].ended, Some(secs(1)));
    assert!(report.pods().all(|(_, pod)| pod.mounts.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_a_mount_is_waited_for_at_the_end_only() {
    let (asked, took, _) = second_group(&[(plain("a"), secs(3))]).await;
    assert_eq!((asked, took), (1.0, secs(4)));
}

#[tokio::test(start_paused = true)]
async fn what_the_machines_end_takes_with_it_is_not_waited_for() {
    let on_the_host = |pod: &Pod| {
        let mut object = (**pod).clone();
        object.spec.as_mut().unwrap().host_network = Some(true);
        Pod::new(object).unwrap()
    };
    let (_, took, site) = second_group(&[(on_the_host(&plain("a")), NEVER)]).await;
    assert_eq!(took, secs(2));
    assert!(site.reports.all()[0].pods().all(|(_, pod)| pod.mounts.is_empty()));
    let (_, took, _) = second_group(&[(on_the_host(&nfs("a")), secs(3))]).await;
    assert_eq!(took, secs(4));
}

// Test_processShutdownEvent_VolumeUnmountTimeout.
#[tokio::test(start_paused = true)]
async fn a_hung_unmount_delays_the_end_up_to_its_bound_and_is_in_the_report() {
    let (asked, took, site) = second_group(&[(nfs("hung"), NEVER), (nfs("fine"), secs(1))]).await;
    // The group could have until 30 s; ten seconds after the exit are enough.
    assert_eq!((asked, took), (1.0, secs(11)));
    let report = &site.reports.all()[0];
    let mounts =
        |name: &str| report.pods().find(|(_, pod)| pod.name == name).unwrap().1.mounts.clone();
    assert_eq!((mounts("hung"), mounts("fine")), (vec!["/mnt/hung".to_owned()], vec![]));
    assert_eq!(report.outcome, Outcome::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_look_at_the_mounts_that_hangs_is_given_up_and_the_report_says_that_it_is_not_known() {
    let world = World::with([(nfs("hung"), secs(1))]);
    world.add(pod("critical", CRITICAL, Some(60)), secs(1));
    world.holds("hung", NEVER);
    world.mounts_hang();
    let (mut site, agent) = started(world, 0).await;
    site.prepare();
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(site.asked()[1].1, 1.0);
    assert!(took < secs(23), "{took:?}");
    let report = &site.reports.all()[0];
    assert_eq!(report.pods().next().unwrap().1.mounts, ["unknown: no answer in time"]);
}

#[tokio::test(start_paused = true)]
async fn a_hung_unmount_never_takes_the_next_groups_time() {
    let world = World::with([(nfs("hung"), secs(15))]);
    world.add(pod("critical", CRITICAL, Some(60)), NEVER);
    world.holds("hung", NEVER);
    let (mut site, agent) = started(world, 0).await;
    site.prepare();
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(site.asked()[1], ("critical".into(), 15.0, 15.0));
    assert!(took <= Duration::from_millis(31_200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_pods_hold_is_waited_for_within_the_budget_only() {
    let world = World::with([(pod("app", None, Some(60)), NEVER)]);
    world.holds("app", NEVER);
    let (mut site, agent) = started(world, 0).await;
    site.lock.fake.modify(|state| state.delay = Some(secs(20)));
    site.prepare();
    let took = site.reach(&agent, ProgressPhase::Released).await;
    // SIGKILL at 18 s; half of the reserve is the time for it to take effect.
    assert!(took > secs(18) && took < Duration::from_millis(19_200), "{took:?}");
    let report = &site.reports.all()[0];
    assert_eq!(report.pods().next().unwrap().1.mounts, ["/mnt/app"]);
}
