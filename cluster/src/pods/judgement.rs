//! What the node says of a pod before anything is read or written for it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use winddown_shared::{AdmitHandler, OtherPods, Pod, Rejection};

use super::admitted::AdmittedPods;
use super::known::KnownPods;
use super::seams::PrepareError;

/// How the node admits pods before it has them, and what they ask for later.
#[derive(Clone)]
pub struct NodeAdmission {
    /// Asked about each pod before anything is read or written for it, and again at each attempt to resolve what it refers
    /// to. What it refuses must be refused by [`PodController::refusals`](super::PodController::refusals) as well.
    pub judge: Judge,
    /// Asked about each pod whose references are resolved. What its runtime cannot run waits, as with a kubelet that cannot
    /// mount a volume: if it failed, its controller would make one after the other.
    pub supports: Supports,
    /// Whether a pod that the node has may have these resources from now on; if not, it keeps those that it was given.
    pub resize: Resize,
    /// The pods that `judge` has admitted. They are forgotten here when they neither wait nor run.
    pub admitted: AdmittedPods,
}

/// Judges a pod as the API has it. The node admits or refuses the pod once it has it.
pub type Judge = Arc<dyn Fn(Pod) -> BoxFuture<'static, Judgement> + Send + Sync>;

/// Whether the runtime can run a pod. Records what it cannot do.
pub type Supports = Arc<dyn Fn(&Pod) -> Result<(), PrepareError> + Send + Sync>;

/// Whether a pod fits with other resources.
pub type Resize = Arc<dyn Fn(&Pod) -> Result<(), Rejection> + Send + Sync>;

/// What becomes of a pod that the node has not got yet.
#[derive(Clone, Debug)]
pub enum Judgement {
    /// Nothing is against it now: what it refers to is resolved for it.
    Resolve,
    /// It can be neither admitted nor refused yet, or it is admitted and cannot start now. The text says why.
    HoldBack(&'static str),
    /// The node refuses it. It is given as it is, and [`RefusedPods`] make sure that it is not admitted so.
    Refused(Rejection),
}

/// The admission check that refuses the pods for which a [`Judge`] said so: what they refer to was not resolved.
#[derive(Clone, Debug)]
pub struct RefusedPods(Arc<KnownPods>);

impl RefusedPods {
    pub(super) fn of(known: &Arc<KnownPods>) -> Self {
        Self(Arc::clone(known))
    }
}

impl AdmitHandler for RefusedPods {
    fn admit(&self, pod: &Pod, _others: &OtherPods) -> Result<(), Rejection> {
        self.0.rejection(pod.uid()).map_or(Ok(()), Err)
    }
}
