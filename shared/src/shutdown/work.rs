//! Work at certain points of a shutdown, in addition to terminating pods.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::display::pod_count;
use crate::{PluginName, PodRef};

/// Work of a plug-in at a point of a shutdown, for example to take the node out of a load balancer
/// before the first pod terminates, or to report final statuses before the node goes down.
///
/// The plan reserves time for it: work that hangs costs its bound, and takes no other time from pods. It must not block its
/// thread. All work at one point runs concurrently. It is dropped when its time is over or the shutdown is called off, and is
/// not part of a drain. If the agent is killed in the middle, the next one starts the work again with the rest of its
/// time; finished work is not repeated.
#[derive(Clone)]
pub struct ShutdownWork {
    /// The plug-in.
    pub by: PluginName,
    /// Short description for people: `take the node out of the load balancer`. A plug-in does it once at one point.
    pub what: &'static str,
    /// The point at which it runs.
    pub point: ShutdownPoint,
    /// The longest time it may take. All work together gets at most a quarter of a shutdown's time, so it may be less. `None`,
    /// for [`ShutdownPoint::BeforeRelease`], reserves no time: the work gets what the pods left, ten seconds at most.
    pub bound: Option<Duration>,
    begin: Begin,
}

type Begin = Arc<dyn Fn(WorkContext) -> BoxFuture<'static, Result<(), WorkError>> + Send + Sync>;

/// A point of a shutdown.
///
/// A group is identified by the priority of the pods that it terminates. Where groups are roles, ordinary pods have one
/// for each of their priorities, system pods [`SYSTEM_CRITICAL_PRIORITY`](crate::SYSTEM_CRITICAL_PRIORITY), before
/// which all ordinary pods have terminated, and those of the node
/// [`SYSTEM_NODE_CRITICAL_PRIORITY`](crate::SYSTEM_NODE_CRITICAL_PRIORITY); the control plane is one above that, etcd
/// two. A group without pods has its place all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownPoint {
    /// Before the first group, once pods are marked not ready.
    BeforePods,
    /// Before the group of this priority.
    Before(i32),
    /// When the pods of the group of this priority are gone or its time is over.
    After(i32),
    /// When all pods are gone or their time is over.
    AfterPods,
    /// After that, when only the report is left to do.
    BeforeRelease,
}

/// The state of a shutdown when work begins.
#[derive(Clone, Debug)]
pub struct WorkContext {
    /// The deadline of the work.
    pub until: Instant,
    /// Whether every pod has terminated and left nothing mounted.
    pub clean: bool,
    /// Whether an earlier agent was killed in the middle of this work.
    pub again: bool,
    /// Takes the work's remark for the report, however the work ends.
    pub remark: LateRemark,
}

/// A remark for the report, in a few words for people, that may be set until the report is written. Clones share one
/// remark.
#[derive(Clone, Debug, Default)]
pub struct LateRemark(Arc<Mutex<(String, bool)>>);

/// Why work was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The work failed; the text is for people.
    #[error("{0}")]
    Failed(Arc<str>),
    /// The final statuses of these pods could not be sent; the next agent sends them.
    #[error("the last status of {} was not sent", pod_count(.0.len()))]
    NotTold(Vec<PodRef>),
}

// === impl ShutdownWork ===

impl ShutdownWork {
    /// The divisor for the share of a shutdown's time that all work together gets at most: a quarter.
    pub const PART: u32 = 4;

    /// Creates work that `begin` starts, and that is dropped after `bound`.
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

    /// The same work with another bound.
    #[must_use]
    pub fn within(&self, bound: Option<Duration>) -> Self {
        Self { bound, ..self.clone() }
    }

    /// Starts the work.
    pub fn begin(&self, context: WorkContext) -> BoxFuture<'static, Result<(), WorkError>> {
        (self.begin)(context)
    }
}

impl fmt::Debug for ShutdownWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShutdownWork({}, {:?}, {})", self.by, self.what, self.point)
    }
}

// === impl LateRemark ===

impl LateRemark {
    /// Replaces the remark.
    pub fn set(&self, remark: impl Into<String>) {
        self.0.lock().0 = remark.into();
    }

    /// Adds that what it is about needed SIGKILL.
    pub fn set_killed(&self) {
        self.0.lock().1 = true;
    }

    /// Whether what it is about needed SIGKILL.
    pub fn is_killed(&self) -> bool {
        self.0.lock().1
    }

    /// The last remark; `None` if there is none.
    pub fn get(&self) -> Option<String> {
        Some(self.0.lock().0.clone()).filter(|said| !said.is_empty())
    }
}

impl PartialEq for LateRemark {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for LateRemark {}

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
