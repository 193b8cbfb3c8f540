//! The worked timelines of the reference, with winddown's numbers where it decides differently.

use super::{Node, Setup, asked, secs};
use crate::tests::{period, pod};
use crate::{CRITICAL_PRIORITY, Outcome, PodEnd, Policy};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);

async fn ended(node: &mut Node) -> f64 {
    node.prepare();
    node.released().await.as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn an_early_group_passes_its_spare_time_on_to_a_critical_pod_that_asks_for_it() {
    let pods = [pod("app", None, Some(30)), pod("critical", CRITICAL, Some(30))];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(3));
    node.killer.takes(pods[1].uid(), secs(1000));
    // The kubelet gives 10 s and is done at 13 s, with 15 s unused.
    assert_eq!(ended(&mut node).await, 30.0);
    assert_eq!(node.asked(), asked(&[("app", 0.0, 20), ("critical", 3.0, 27)]));
    assert_eq!(node.reports()[0].outcome, Outcome::Forced);
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_that_asks_for_nothing_gets_its_groups_time() {
    let pods = [pod("app", None, None), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(3));
    node.killer.takes(pods[1].uid(), secs(1000));
    assert_eq!(ended(&mut node).await, 13.0);
    assert_eq!(node.asked(), asked(&[("app", 0.0, 20), ("critical", 3.0, 10)]));
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_overruns_its_group_is_waited_for_beside_the_next_group() {
    let pods = [pod("app", None, Some(30)), pod("critical", CRITICAL, Some(30))];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.hangs(pods[0].uid(), secs(25));
    node.killer.takes(pods[1].uid(), secs(2));
    // The kubelet releases the node while the ordinary pod is still stopping.
    assert_eq!(ended(&mut node).await, 25.0);
    assert_eq!(node.asked(), asked(&[("app", 0.0, 20), ("critical", 20.1, 10)]));
    assert_eq!(node.reports()[0].count(PodEnd::Left), 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_at_two_seconds_the_critical_group_is_spared_and_pods_are_let_in_at_once() {
    let pods = [pod("app", None, None), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(3));
    node.prepare();
    node.until(secs(2)).await;
    assert!(node.gate.is_shut());
    node.login.fake.cancel();
    super::settle().await;
    // The kubelet stops both groups, and admits pods again at 15 s.
    assert!(!node.gate.is_shut());
    node.until(secs(60)).await;
    assert_eq!(node.asked(), asked(&[("app", 0.0, 20)]));
    assert_eq!((node.releases(), node.login.fake.is_held()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn without_ordinary_pods_the_critical_ones_are_asked_at_once() {
    let pods = [pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(4));
    assert_eq!(ended(&mut node).await, 4.0);
    assert_eq!(node.asked(), asked(&[("critical", 0.0, 10)]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_in_a_long_deletion_is_shortened_to_its_groups_time() {
    let pods = [pod("deleted", None, Some(300)), pod("critical", CRITICAL, None)];
    let mut node = Setup::with(pods.clone()).start();
    node.killer.takes(pods[0].uid(), secs(300));
    // The kubelet cannot shorten the stop and releases the lock with the pod alive.
    assert_eq!(ended(&mut node).await, 20.0);
    assert_eq!(node.asked(), asked(&[("deleted", 0.0, 20), ("critical", 20.0, 10)]));
    assert_eq!(node.reports()[0].outcome, Outcome::Forced);
}

#[tokio::test(start_paused = true)]
async fn three_groups_that_all_use_their_time_end_at_the_deadline() {
    let pods = [pod("a", None, Some(99)), pod("b", Some(7), Some(99)), pod("c", Some(9), Some(99))];
    let policy = Policy::by_priority([0, 7, 9].map(|priority| period(priority, 10))).unwrap();
    let mut node = Setup::with(pods.clone()).policy(policy).start();
    pods.iter().for_each(|pod| node.killer.takes(pod.uid(), secs(99)));
    assert_eq!(ended(&mut node).await, 30.0);
    assert_eq!(node.asked(), asked(&[("a", 0.0, 10), ("b", 10.0, 10), ("c", 20.0, 10)]));
}
