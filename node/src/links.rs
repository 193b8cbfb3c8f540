//! What plug-ins exchange with each other and with the node: no plug-in knows another.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use winddown_shared::{PressureCondition, ShutdownWork, StartTurn};

use crate::PodSource;
use winddown_control::api::Protection;

/// What plug-ins offer to other plug-ins or to the node.
#[derive(Default)]
pub(crate) struct Links {
    /// Whether the node is about to go down.
    pub(crate) end: Option<Box<dyn Observe<NodeEnd>>>,
    /// What speaks against a shutdown.
    pub(crate) objection: Option<Arc<dyn Objection>>,
    /// What those who drain the node should know about pods that come from no manifest.
    pub(crate) drain_remark: Option<&'static str>,
    /// What speaks against a shutdown, for display, with its changes; `None` while nothing does.
    pub(crate) held: Option<Box<dyn Observe<Option<String>>>>,
    pub(crate) pressure: Option<Box<dyn Observe<Vec<PressureCondition>>>>,
    /// Each one signals when refused pods are to be admitted again, if possible.
    pub(crate) relief: Vec<Box<dyn Observe<()>>>,
    /// The new pods that may start now; if `None`, all may.
    pub(crate) turns: Option<watch::Receiver<StartTurn>>,
    pub(crate) sources: Vec<PodSource>,
    /// The work at certain points of a shutdown.
    pub(crate) work: Vec<ShutdownWork>,
}

/// What speaks against a shutdown.
pub(crate) trait Objection: Send + Sync {
    /// For those who ask for a shutdown; `None` while nothing speaks against it.
    fn text(&self) -> Option<String>;

    /// For the report of a shutdown that happens anyway: a sentence for each reason.
    fn reasons(&self) -> Vec<String>;
}

/// A state that one plug-in offers to another.
pub(crate) trait Observe<T>: Send {
    /// The current state.
    fn now(&mut self) -> T;

    /// Resolves when the state differs from what [`now`](Self::now) returned; pending for ever if it can no longer
    /// change. Cancel-safe.
    fn changed(&mut self) -> BoxFuture<'_, ()>;
}

/// A signal of a third-party plug-in, without a value.
impl Observe<()> for watch::Receiver<()> {
    fn now(&mut self) {
        self.mark_unchanged();
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(next_change(self))
    }
}

/// Resolves on the next change; pending for ever if there can be none. Cancel-safe.
pub(crate) async fn next_change<T>(changes: &mut watch::Receiver<T>) {
    if changes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Whether the node is about to go down, and how.
#[derive(Clone, Debug)]
pub(crate) struct NodeEnd {
    /// Whether the node is going down, or has a notice that it will.
    pub(crate) is_near: bool,
    pub(crate) draining: Draining,
    /// Whether a shutdown would terminate the pods in order; `None` until that is known.
    pub(crate) protection: Option<Protection>,
    /// How the node went down before this boot, for display.
    pub(crate) last: String,
}

/// How far the operator's drain of the node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Draining<Run = ()> {
    /// The node is not being drained.
    #[default]
    No,
    /// The pods are being terminated.
    InProgress(Run),
    /// The pods have ended, and none comes back.
    Done,
}
