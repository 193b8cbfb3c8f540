//! Which pods stay while the node reboots.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use winddown_shared::{ON_REBOOT_ANNOTATION, Pod, ShutdownKind};

use super::agents::Site;
use super::world::World;
use super::{Setup, secs, settle, two_fields};
use crate::tests::pod;
use crate::{Outcome, PodEnd, Policy, ProgressPhase};

/// A pod that asks to stay.
fn asking(name: &str) -> Pod {
    annotated(name, "restart")
}

fn annotated(name: &str, value: &str) -> Pod {
    let mut object = pod(name, None, None).object().clone();
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(ON_REBOOT_ANNOTATION.into(), value.into());
    Pod::new(object).unwrap()
}

fn lets(namespace: &str) -> Policy {
    two_fields(30, 10).with_in_place([(namespace.to_owned(), true)].into())
}

/// Returns the pods that stay when the node goes down in this way. Asserts that the report and the requests agree.
async fn staying(policy: Policy, kind: ShutdownKind) -> Vec<String> {
    let pods = [asking("db"), pod("web", None, None)];
    let mut node = Setup::with(pods).policy(policy).start();
    node.prepare();
    node.login.fake.modify(|state| state.kind = kind);
    node.released().await;
    let mut asked = Vec::new();
    for call in node.killer.calls() {
        assert_eq!(call.request.grace, Some(secs(20)), "it ends like any other");
        let status = call.request.status.unwrap();
        assert_eq!(
            &*status.reason,
            if status.restarts_on_node { "NodeReboot" } else { "Terminated" }
        );
        assert_eq!(status.disruption_message.is_some(), !status.restarts_on_node);
        if status.restarts_on_node {
            asked.push(call.pod.name().to_string());
        }
    }
    let report = node.reports().pop().unwrap();
    let pods = report.groups.iter().flat_map(|group| &group.pods).filter(|pod| pod.stays_on_reboot);
    let reported: Vec<_> = pods.map(|pod| pod.name.clone()).collect();
    assert_eq!(reported, asked);
    asked
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_named_after_the_shutdown_is_awaited_for_pods_that_may_stay() {
    let namespace = pod("db", None, None).namespace().to_string();
    for (policy, named, asked_at, stays) in [
        (lets(&namespace), 50, 50, true),
        (lets(&namespace), 300, 200, false),
        (two_fields(30, 10), 50, 0, false),
    ] {
        let mut node = Setup::with([asking("db")]).policy(policy).start();
        node.login.fake.modify(|state| state.kind = ShutdownKind::Unknown);
        let begun = Instant::now();
        node.prepare();
        let named_at = begun + Duration::from_millis(named);
        let fake = node.login.fake.clone();
        let naming = tokio::spawn(async move {
            sleep_until(named_at).await;
            fake.modify(|state| state.kind = ShutdownKind::Reboot);
        });
        node.released().await;
        naming.await.unwrap();
        let call = node.killer.calls().pop().unwrap();
        let asked = call.at.duration_since(begun).as_millis();
        assert!((asked_at..asked_at + 10).contains(&asked), "{asked} ms, named at {named}");
        assert_eq!(call.request.status.unwrap().restarts_on_node, stays, "named at {named}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_stopped_while_it_waits_for_the_kind_leaves_the_endpoints_their_time() {
    let policy = lets(asking("db").namespace()).with_endpoint_drain(secs(5));
    let mut site = Site::new(World::with([(asking("db"), secs(1))]), policy);
    site.lock.fake.modify(|state| state.kind = ShutdownKind::Unknown);
    let first = site.agent();
    settle().await;
    site.prepare();
    site.until(Duration::from_millis(100)).await;
    first.stop.cancel();
    settle().await;
    site.kill(first).await;
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    assert_eq!(site.asked()[0].1, 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_stay_stays_on_a_reboot_and_fails_on_every_other_end() {
    let namespace = pod("db", None, None).namespace().to_string();
    for kind in [ShutdownKind::Reboot, ShutdownKind::Kexec, ShutdownKind::SoftReboot] {
        assert_eq!(staying(lets(&namespace), kind).await, ["db"], "{kind:?}");
        assert!(staying(lets("other"), kind).await.is_empty(), "{kind:?}");
        assert!(staying(two_fields(30, 10), kind).await.is_empty(), "{kind:?}: off by default");
    }
    for kind in [ShutdownKind::PowerOff, ShutdownKind::Halt, ShutdownKind::Unknown] {
        assert!(staying(lets(&namespace), kind).await.is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_survives_a_soft_reboot_is_not_asked_and_is_on_no_other_way_down() {
    use ShutdownKind::{Kexec, PowerOff, Reboot, SoftReboot, Unknown};
    let namespace = pod("db", None, None).namespace().to_string();
    let asked = async |pods: [Pod; 2], kind, can: bool| {
        let mut node = Setup::with(pods).policy(lets(&namespace)).start();
        if can {
            node.killer.all_survive();
        }
        node.login.fake.modify(|state| state.kind = kind);
        node.prepare();
        node.released().await;
        let report = node.reports().pop().unwrap();
        assert_eq!(report.outcome, Outcome::Clean, "{kind:?}");
        let pods = report.groups.iter().flat_map(|group| &group.pods);
        let survived: Vec<_> = pods
            .filter(|pod| pod.end == PodEnd::Survives)
            .map(|pod| (pod.name.clone(), pod.asked))
            .collect();
        let calls = node.killer.calls();
        let mut asked: Vec<_> = calls.iter().map(|call| call.pod.name().to_string()).collect();
        asked.sort();
        (asked, survived)
    };
    let pods = || [annotated("db", "survive"), asking("web")];
    let (ended, survived) = asked(pods(), SoftReboot, true).await;
    assert_eq!((ended, survived), (vec!["web".to_owned()], vec![("db".to_owned(), None)]));
    for (kind, can) in
        [(SoftReboot, false), (Reboot, true), (Kexec, true), (PowerOff, true), (Unknown, true)]
    {
        let (ended, survived) = asked(pods(), kind, can).await;
        assert_eq!((ended.len(), survived.len()), (2, 0), "{kind:?}, can: {can}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_becomes_known_during_a_soft_reboot_survives_it_too() {
    let namespace = pod("db", None, None).namespace().to_string();
    let web = asking("web");
    let mut node = Setup::with([web.clone()]).policy(lets(&namespace)).start();
    node.killer.all_survive();
    node.killer.takes(web.uid(), secs(3));
    node.login.fake.modify(|state| state.kind = ShutdownKind::SoftReboot);
    node.prepare();
    node.until(secs(1)).await;
    node.killer.add(annotated("db", "survive"));
    node.released().await;
    let ended: Vec<_> = node.asked().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(ended, ["web"]);
    assert_eq!(node.reports()[0].count(PodEnd::Survives), 1);
}

#[tokio::test(start_paused = true)]
async fn a_notice_in_the_middle_of_a_soft_reboot_ends_the_pods_that_would_have_survived_it() {
    let namespace = pod("db", None, None).namespace().to_string();
    let world = World::with([
        (annotated("db", "survive"), secs(2)),
        (pod("web", None, Some(20)), secs(10)),
    ]);
    let mut site = Site::new(world, lets(&namespace));
    let agent = site.agent();
    settle().await;
    site.lock.fake.modify(|state| state.kind = ShutdownKind::SoftReboot);
    site.prepare();
    let start = site.start;
    site.until(secs(1)).await;
    site.give_notice(secs(25));
    site.start = start;
    site.reach(&agent, ProgressPhase::Released).await;
    let asked: Vec<_> = site.asked().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(asked, ["web", "db"]);
    let report = &site.reports.all()[0];
    assert_eq!((report.outcome, report.count(PodEnd::Exited)), (Outcome::Clean, 2));
}

/// It is reclaimed: bound to it, the pods would be lost.
#[tokio::test(start_paused = true)]
async fn a_notice_in_the_middle_of_a_reboot_fails_the_pods_that_were_to_stay_and_leaves_their_grace()
 {
    let namespace = pod("db", None, None).namespace().to_string();
    let world = World::with([(asking("db"), secs(12)), (asking("late"), secs(60))]);
    let mut site = Site::new(world, lets(&namespace));
    let agent = site.agent();
    settle().await;
    site.lock.fake.modify(|state| state.kind = ShutdownKind::Reboot);
    site.prepare();
    let start = site.start;
    site.until(secs(5)).await;
    let stays = |site: &Site| {
        let lives = site.world.lives();
        lives.iter().map(|life| life.status.as_ref().unwrap().restarts_on_node).collect::<Vec<_>>()
    };
    assert_eq!(stays(&site), [true, true]);
    // Later than the shutdown's own end.
    site.give_notice(secs(300));
    site.start = start;
    settle().await;
    assert_eq!(stays(&site), [false, false]);
    site.reach(&agent, ProgressPhase::Released).await;
    let report = &site.reports.all()[0];
    let pods = report.groups.iter().flat_map(|group| &group.pods);
    let pods: Vec<_> =
        pods.map(|pod| (&*pod.name, pod.end, pod.grace, pod.stays_on_reboot)).collect();
    let given = secs(20);
    assert_eq!(
        pods,
        [("db", PodEnd::Exited, given, false), ("late", PodEnd::Killed, given, false)]
    );
    let late = &site.world.lives()[1];
    assert_eq!(late.gone, Some((start + given, true)), "{:?}", late.signals);
}
