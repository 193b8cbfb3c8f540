//! What plug-ins have for each other, and for the node: none of them knows another.

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use winddown_shared::{LockState, ShutdownWork, StartTurn};

use crate::Source;

/// What one plug-in has for another, or for the node.
#[derive(Default)]
pub(crate) struct Links {
    /// How the node stands to its end.
    pub(crate) end: Option<Box<dyn Shows<NodeEnd>>>,
    /// What the node runs short of.
    pub(crate) shortage: Option<Box<dyn Shows<Shortage>>>,
    /// Each tells when pods that were refused are to be asked about again.
    pub(crate) relief: Vec<Box<dyn Shows<()>>>,
    /// Which new pods may start now; none: all may.
    pub(crate) turns: Option<watch::Receiver<StartTurn>>,
    /// Where pods come from.
    pub(crate) sources: Vec<Source>,
    /// What is done at certain points of a shutdown.
    pub(crate) work: Vec<ShutdownWork>,
}

/// A state of one plug-in, for another.
pub(crate) trait Shows<T>: Send {
    /// As it is now.
    fn now(&mut self) -> T;

    /// Resolves when it is another one than [`now`](Self::now) said; never, when it changes no more.
    /// Cancel-safe.
    fn changed(&mut self) -> BoxFuture<'_, ()>;
}

/// A plug-in of another party, which says only when.
impl Shows<()> for watch::Receiver<()> {
    fn now(&mut self) {
        self.mark_unchanged();
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if watch::Receiver::changed(self).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

/// How the node stands to its end.
#[derive(Clone, Debug)]
pub(crate) struct NodeEnd {
    /// It goes down, or was told that it will.
    pub(crate) is_near: bool,
    pub(crate) draining: Draining,
    /// Whether its shutdown would wait for the pods.
    pub(crate) lock: LockState,
    /// Which pods hold shutdowns, for people; none while none does.
    pub(crate) held: Option<String>,
    /// How it went down before this boot, for people.
    pub(crate) last: String,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Draining {
    /// There is none.
    #[default]
    No,
    /// Pods are ending.
    InProgress,
    /// They have ended, and none comes back.
    Done,
}

/// What the node runs short of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) memory: bool,
    pub(crate) disk: bool,
    pub(crate) pid: bool,
}
