//! A pod as its runtime knows it.

use std::sync::Arc;
use std::time::Duration;

use super::{Pod, PodRef, PodUid, Requests};

/// A pod of which the runtime holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimePod {
    /// The UID it was started with.
    pub uid: PodUid,
    /// `metadata.name` it was started with.
    pub name: Arc<str>,
    /// `metadata.namespace` it was started with.
    pub namespace: Arc<str>,
    /// Whether any container runs; otherwise only remains are left.
    pub running: bool,
    /// The grace period in its spec when it was started, if the runtime kept it.
    pub grace: Option<Duration>,
    /// The resources that it requested when it was started, if the runtime kept them.
    pub requests: Option<Requests>,
    /// The [mark](Pod::spec_mark) of the spec that it was started with, if the runtime kept it.
    pub spec_mark: Option<Arc<str>>,
}

impl RuntimePod {
    /// What a runtime that keeps the pods it was given lists of one.
    ///
    /// ```
    /// use winddown_shared::RuntimePod;
    /// # let pod = winddown_shared::testing::pod("web");
    ///
    /// let listed = RuntimePod::of(&pod, true);
    /// assert_eq!((&listed.uid, listed.grace), (pod.uid(), pod.termination_grace_period()));
    /// ```
    pub fn of(pod: &Pod, running: bool) -> Self {
        Self {
            grace: pod.termination_grace_period(),
            ..Self::new(pod.uid().clone(), pod.name().clone(), pod.namespace().clone(), running)
        }
    }

    /// A pod of which only these are known. Set what else the runtime has kept.
    pub fn new(
        uid: PodUid,
        name: impl Into<Arc<str>>,
        namespace: impl Into<Arc<str>>,
        running: bool,
    ) -> Self {
        Self {
            uid,
            name: name.into(),
            namespace: namespace.into(),
            running,
            grace: None,
            requests: None,
            spec_mark: None,
        }
    }

    /// The running pod that [`Pod::of_runtime`] stands for.
    pub(crate) fn of_stand_in(pod: &Pod) -> Self {
        Self { requests: pod.kept_requests(), ..Self::of(pod, true) }
    }

    /// Whether it was started with another spec than `pod` has, as far as that is known.
    pub(crate) fn differs_from(&self, pod: &Pod) -> bool {
        let marks = self.spec_mark.as_deref().zip(pod.spec_mark());
        marks.is_some_and(|(started, wanted)| started != wanted)
    }

    /// The label that identifies the pod in events and errors.
    pub fn pod_ref(&self) -> PodRef {
        PodRef { namespace: self.namespace.clone(), name: self.name.clone(), uid: self.uid.clone() }
    }
}
