//! What is done at certain points of a shutdown beside ending pods.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::display::pod_count;
use crate::{PluginName, PodLabel};

/// Work of a plug-in at a point of a shutdown: to take the node out of a load balancer before the first
/// pod ends, to tell others of the pods' ends before the node goes.
///
/// The plan keeps the time for it: work that hangs costs its bound and no pod anything else. What is done at
/// one point goes on together. It is dropped when its time is over and when the shutdown is called off,
/// and is no part of a drain. The agent may be killed in the middle: then the next one begins it again, in
/// the rest of its time; what had ended is not repeated.
#[derive(Clone)]
pub struct ShutdownWork {
    /// Whose it is.
    pub by: PluginName,
    /// What is done, in a few words for people: `take the node out of the load balancer`. A plug-in does
    /// the same thing once at one point.
    pub what: &'static str,
    /// When.
    pub point: ShutdownPoint,
    /// The most time it takes. All work together gets a quarter of a shutdown's time at most, so this may
    /// become less. None, which is for [`ShutdownPoint::BeforeRelease`]: the plan keeps none, and it gets
    /// what the pods left, ten seconds at most.
    pub bound: Option<Duration>,
    begin: Begin,
}

type Begin = Arc<dyn Fn(WorkContext) -> BoxFuture<'static, Result<(), WorkError>> + Send + Sync>;

/// A point of a shutdown.
///
/// A group is named by a priority: it is the one that ends pods of that priority. Where groups are roles,
/// ordinary pods have one for each of their priorities, system pods
/// [`SYSTEM_CRITICAL_PRIORITY`](crate::SYSTEM_CRITICAL_PRIORITY), before which all ordinary pods have ended,
/// and those of the node [`SYSTEM_NODE_CRITICAL_PRIORITY`](crate::SYSTEM_NODE_CRITICAL_PRIORITY); the control
/// plane is one above that, etcd two. A group without pods has its place all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownPoint {
    /// Before the first group, while pods are not ready any more.
    BeforePods,
    /// Before the group of this priority.
    Before(i32),
    /// When the pods of that group are gone or its time is over.
    After(i32),
    /// When all pods are gone or their time is over.
    AfterPods,
    /// After that, when nothing is left but the report.
    BeforeRelease,
}

/// How a shutdown stands when work begins.
#[derive(Clone, Debug)]
pub struct WorkContext {
    /// When the work's time is over, at the latest.
    pub until: Instant,
    /// Every pod has ended, and none left anything mounted.
    pub clean: bool,
    /// An agent before this one was killed in the middle of it.
    pub again: bool,
    /// Takes what the report says of the work, however it ends.
    pub remark: WorkRemark,
}

/// What work says of itself for the report, in a few words for people. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct WorkRemark(watch::Sender<String>);

/// Why work was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// It failed; why, for people.
    #[error("{0}")]
    Failed(Arc<str>),
    /// The final statuses of these pods could not be sent; the next agent sends them.
    #[error("the last status of {} was not sent", pod_count(.0.len()))]
    NotTold(Vec<PodLabel>),
}

// === impl ShutdownWork ===

impl ShutdownWork {
    /// All work together gets this part of a shutdown's time at most, the fourth.
    pub const PART: u32 = 4;

    /// Work that `begin` makes, which is dropped after `bound`.
    pub fn new<F>(
        by: PluginName,
        what: &'static str,
        point: ShutdownPoint,
        bound: impl Into<Option<Duration>>,
        begin: impl Fn(WorkContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), WorkError>> + Send + 'static,
    {
        let begin: Begin = Arc::new(move |context| Box::pin(begin(context)));
        Self { by, what, point, bound: bound.into(), begin }
    }

    /// The same with another bound.
    #[must_use]
    pub fn within(&self, bound: Option<Duration>) -> Self {
        Self { bound, ..self.clone() }
    }

    /// Begins it.
    pub fn begin(&self, context: WorkContext) -> BoxFuture<'static, Result<(), WorkError>> {
        (self.begin)(context)
    }
}

impl fmt::Debug for ShutdownWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShutdownWork({}, {:?}, {})", self.by, self.what, self.point)
    }
}

// === impl WorkRemark ===

impl WorkRemark {
    /// Says this in place of what was said before.
    pub fn set(&self, remark: impl Into<String>) {
        self.0.send_replace(remark.into());
    }

    /// What was said last; none if nothing was.
    pub fn said(&self) -> Option<String> {
        Some(self.0.borrow().clone()).filter(|said| !said.is_empty())
    }
}

// === impl ShutdownPoint ===

impl fmt::Display for ShutdownPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforePods => f.write_str("before the pods"),
            Self::Before(priority) => write!(f, "before pods of priority {priority}"),
            Self::After(priority) => write!(f, "after pods of priority {priority}"),
            Self::AfterPods => f.write_str("after the pods"),
            Self::BeforeRelease => f.write_str("before the shutdown is released"),
        }
    }
}

// === impl WorkError ===

impl From<String> for WorkError {
    fn from(why: String) -> Self {
        Self::Failed(why.into())
    }
}
