use tokio::sync::watch;
use tokio::time::sleep;
use winddown_control::ActApi as _;
use winddown_control::api::DrainRequest;
use winddown_control::protection::{KubeletFacts, KubeletPresence};
use winddown_shared::testing::{FakeInhibitor, FakeRuntime};
use winddown_shutdown::Policy;

use super::*;
use crate::links::{Draining, NodeEnd, Observe};
use crate::plugin::{NodePlugin, PluginRegistry};
use crate::shutdown::Shutdown;
use crate::{Node, NodeBuilder};

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Takes what the cluster plug-in would be told.
#[derive(Clone, Default)]
struct Told(Arc<winddown_shared::Mutex<Option<Box<dyn Observe<NodeEnd>>>>>);

impl NodePlugin<FakeRuntime> for Told {
    fn register(self: Box<Self>, node: &mut PluginRegistry<FakeRuntime>) {
        node.start(move |links| *self.0.lock() = links.end.take());
    }
}

impl Told {
    fn reason(&self) -> Option<ProtectionReason> {
        self.0.lock().as_mut().unwrap().now().protection.map(|verdict| verdict.reason)
    }

    /// Waits for a change, as long as that takes.
    async fn next(&self) -> (u64, Option<ProtectionReason>) {
        let begun = Instant::now();
        let before = self.reason();
        let mut end = self.0.lock().take().unwrap();
        while end.now().protection.map(|verdict| verdict.reason) == before {
            end.changed().await;
        }
        *self.0.lock() = Some(end);
        (begun.elapsed().as_secs(), self.reason())
    }
}

/// A companion whose kubelet's own graceful shutdown is `wants`.
fn beside(
    login: &FakeInhibitor,
    wants: &watch::Sender<Duration>,
    state: &std::path::Path,
) -> (Node<FakeRuntime>, Told) {
    let (told, seen) = (Told::default(), wants.subscribe());
    let policy = Policy::from_periods(secs(30), secs(10)).unwrap();
    let look = move || {
        let wants = Some(*seen.borrow());
        let kubelet = KubeletFacts {
            presence: Some(KubeletPresence::Runs),
            wants,
            lock: Some(false),
            ..KubeletFacts::default()
        };
        std::future::ready(kubelet)
    };
    let shutdown = Shutdown::new(Arc::new(login.clone()), policy, state).kubelet_inspector(look);
    let node: NodeBuilder<FakeRuntime> = Node::builder(Arc::new(FakeRuntime::default()));
    let node = node.admits_all(true).plugin(shutdown).plugin(told.clone()).start().unwrap();
    (node, told)
}

#[tokio::test(start_paused = true)]
async fn the_cluster_is_told_of_a_kubelet_that_terminates_its_pods_again_although_nobody_asks_for_the_status()
 {
    let (state, login) = (tempfile::tempdir().unwrap(), FakeInhibitor::holding(secs(40)));
    let wants = watch::Sender::new(Duration::ZERO);
    let (node, told) = beside(&login, &wants, state.path());
    assert_eq!(told.next().await, (0, Some(ProtectionReason::LockHeld)));
    wants.send_replace(secs(60));
    let (after, reason) = told.next().await;
    assert_eq!(reason, Some(ProtectionReason::KubeletTerminatesToo));
    assert!((60..=120).contains(&after), "{after}");
    wants.send_replace(Duration::ZERO);
    let (after, reason) = told.next().await;
    assert_eq!(reason, Some(ProtectionReason::LockHeld));
    assert!(after <= 60, "{after}");
    node.shut_down().await;
}

/// The cluster was told that the node is shutting down, and its lease was not renewed.
#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_on_a_drained_node_does_not_say_that_the_node_goes_down() {
    let (state, login) = (tempfile::tempdir().unwrap(), FakeInhibitor::holding(secs(40)));
    let wants = watch::Sender::new(Duration::ZERO);
    let (node, _) = beside(&login, &wants, state.path());
    node.pods_are_known().await;
    let mut drain = node.drain(DrainRequest::default()).await.unwrap();
    while drain.recv().await.is_some() {}
    node.shut_down().await;
    let (node, told) = beside(&login, &wants, state.path());
    let end = told.0.lock().as_mut().unwrap().now();
    assert_eq!((end.is_near, end.draining), (false, Draining::Done));
    node.shut_down().await;
}

/// The agent before it has said what counts: nothing that this one does not know takes its place.
#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_on_an_unprotected_node_never_calls_it_protected() {
    let (state, login) = (tempfile::tempdir().unwrap(), FakeInhibitor::holding(secs(40)));
    let (node, told) = beside(&login, &watch::Sender::new(secs(60)), state.path());
    assert_eq!(told.reason(), None);
    assert_eq!(told.next().await, (60, Some(ProtectionReason::KubeletTerminatesToo)));
    node.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_counts_after_a_whole_minute_and_says_why() {
    let (state, login) = (tempfile::tempdir().unwrap(), FakeInhibitor::holding(secs(40)));
    let (node, told) = beside(&login, &watch::Sender::new(Duration::ZERO), state.path());
    told.next().await;
    login.modify(|state| state.lock = LockState::Waiting { why: "logind is away".into() });
    sleep(secs(50)).await;
    login.modify(|state| state.lock = LockState::Held);
    sleep(secs(1)).await;
    login.modify(|state| state.lock = LockState::Waiting { why: "logind is away".into() });
    sleep(secs(59)).await;
    assert_eq!(told.reason(), Some(ProtectionReason::LockHeld), "a new minute began");
    sleep(secs(2)).await;
    let verdict = told.0.lock().as_mut().unwrap().now().protection.unwrap();
    assert_eq!(verdict.reason, ProtectionReason::LockNotHeld);
    assert!(verdict.text.ends_with("(logind is away)"), "{verdict:?}");
    node.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_limited_node_that_loses_its_lock_for_a_moment_is_not_called_unprotected() {
    let (state, login) = (tempfile::tempdir().unwrap(), FakeInhibitor::holding(secs(20)));
    let (node, told) = beside(&login, &watch::Sender::new(Duration::ZERO), state.path());
    assert_eq!(told.next().await, (60, Some(ProtectionReason::DelayTooShort)));
    sleep(secs(300)).await;
    for lost in [1, 59] {
        login.modify(|state| state.lock = LockState::Waiting { why: "logind is away".into() });
        sleep(secs(lost)).await;
        assert_eq!(told.reason(), Some(ProtectionReason::DelayTooShort), "after {lost} s");
        login.modify(|state| state.lock = LockState::Held);
        sleep(secs(300)).await;
        assert_eq!(told.reason(), Some(ProtectionReason::DelayTooShort));
    }
    login.modify(|state| state.lock = LockState::Waiting { why: "logind is away".into() });
    assert_eq!(told.next().await, (60, Some(ProtectionReason::LockNotHeld)));
    node.shut_down().await;
}
