//! A plug-in that refuses pods for some time has them tried again afterwards.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use winddown_control::StatusApi as _;
use winddown_node::{Node, PodSource};
use winddown_shared::testing::{FakeRuntime, pod};
use winddown_shared::{
    AdmitHandler, DesiredPods, NodeHandle, OtherPods, Plugin, PluginName, Pod, Rejection,
};

/// A plug-in that refuses pods while its state is true.
#[derive(Clone)]
struct Closed {
    closed: watch::Receiver<bool>,
    retryable: bool,
}

impl Plugin for Closed {
    fn name(&self) -> PluginName {
        PluginName::new("closed")
    }

    fn admission(&self) -> Option<Arc<dyn AdmitHandler>> {
        Some(Arc::new(self.clone()))
    }

    fn run(mut self: Box<Self>, node: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while self.closed.changed().await.is_ok() {
                node.retry_rejected();
            }
        })
    }
}

impl AdmitHandler for Closed {
    fn admit(&self, _: &Pod, _: &OtherPods) -> Result<(), Rejection> {
        if !*self.closed.borrow() {
            return Ok(());
        }
        Err(Rejection::new("Closed", "It is closed").retryable(self.retryable))
    }
}

/// Whether a pod that was refused while the plug-in was closed runs a second after it opened.
async fn runs_after_opening(retryable: bool, source: impl FnOnce(PodSource) -> PodSource) -> bool {
    let (runtime, web) = (FakeRuntime::default(), pod("web"));
    let wanted = DesiredPods::all(vec![web.clone()]);
    let wanted = watch::Sender::new(Some(Arc::new(wanted)));
    let closed = watch::Sender::new(true);
    let node = Node::builder(Arc::new(runtime.clone()))
        .source(source(wanted.subscribe().into()))
        .plugin(Closed { closed: closed.subscribe(), retryable })
        .start()
        .unwrap();
    node.pods_are_known().await;
    // Longer than any backoff after a refusal: time alone does not bring such a pod back.
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!runtime.runs(web.uid()));
    assert_eq!(&*node.status().rejected[0].reason, "Closed");
    closed.send_replace(false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let runs = runtime.runs(web.uid());
    assert_eq!(node.status().rejected.is_empty(), runs);
    node.shut_down().await;
    runs
}

#[tokio::test(start_paused = true)]
async fn pods_that_a_plug_in_refused_start_when_it_says_so() {
    assert!(runs_after_opening(true, |source| source).await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_refused_for_what_it_is_stays_refused() {
    assert!(!runs_after_opening(false, |source| source).await);
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_that_its_controller_replaces_stays_refused() {
    assert!(!runs_after_opening(true, PodSource::refused_for_good).await);
}
