//! The pods that are admitted and wait for what they refer to.
//!
//! A kubelet admits a pod once and counts it from then on. Here a pod comes to the intake when all that it refers to is
//! resolved, and that may take as long as a Secret is missing. Until then it is admitted here: its room is kept, and its
//! checks are not repeated. As with a kubelet, that does not outlast the agent: the next one admits it anew.

use std::sync::Arc;

use winddown_shared::{
    Admission, AdmitHandler, Event, Mutex, NodeFit, NodeSource, OtherPods, Outlook, Pod, PodSyncer,
    PodUid, PodUidMap, PodWorkers, Recorder, Rejection, Verdict,
};

#[cfg(test)]
mod tests;

/// The pods that are admitted before the intake has them. Records what the intake admits. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AdmittedPods(Arc<AdmittedShared>);

#[derive(Debug, Default)]
struct AdmittedShared {
    pods: Mutex<PodUidMap<Pod>>,
    /// Held while a pod is judged, so that no two get the same room.
    counted: Mutex<Option<Counted>>,
}

/// The pods on the node and those that are admitted here, read once for many judgements.
#[derive(Debug)]
struct Counted {
    others: OtherPods,
    /// How many pods had terminated then.
    ends: u64,
}

/// A check that the pods have passed that are admitted here.
struct Passed {
    check: Arc<dyn AdmitHandler>,
    admitted: AdmittedPods,
}

// === impl AdmittedPods ===

impl AdmittedPods {
    /// Judges a pod by `checks` and `fit`, beside the pods of `workers` and those that are admitted here, and admits it if it
    /// would start: from then on its room is kept, until the intake admits it or it is [forgotten](Self::forget).
    pub fn admit<N: NodeSource, S: PodSyncer>(
        &self,
        pod: &Pod,
        checks: Admission,
        fit: Option<NodeFit<N>>,
        workers: &PodWorkers<S>,
    ) -> Outlook {
        // Those admitted here are in the sum beside which any other pod is judged.
        let fit = match pod.is_critical() {
            true => fit.map(|fit| fit.beside(self.kept_room())),
            false => fit,
        };
        let admission = fit.into_iter().fold(checks, Admission::then);
        let outlook = |others: &OtherPods| workers.outlook(&admission, pod, others);
        let ends = *workers.ends().borrow();
        self.judge(pod, ends, || workers.others(), outlook)
    }

    /// Checks whether a pod of `workers` fits with changed resources.
    ///
    /// # Errors
    /// Why not.
    pub fn resize<N: NodeSource, S: PodSyncer>(
        &self,
        pod: &Pod,
        fit: Option<NodeFit<N>>,
        workers: &PodWorkers<S>,
    ) -> Result<(), Rejection> {
        let fit = fit.map(|fit| fit.beside(self.kept_room()));
        fit.map_or(Ok(()), |fit| fit.admit(pod, &workers.others()))?;
        self.count_anew();
        Ok(())
    }

    /// Judges a pod by `outlook`. A critical one is judged beside the pods that `read` returns, those on the node, because
    /// it preempts some of those that are admitted here; any other beside all of them. They are read again when one has
    /// terminated, as `ends` tells, when the intake has admitted another, and before a pod is refused: that is for good.
    fn judge(
        &self,
        pod: &Pod,
        ends: u64,
        read: impl Fn() -> OtherPods,
        outlook: impl Fn(&OtherPods) -> Outlook,
    ) -> Outlook {
        let mut counted = self.0.counted.lock();
        if self.has(pod.uid()) {
            return Outlook::Starts;
        }
        let starts = |outlook: &Outlook| matches!(outlook, Outlook::Starts);
        let kept = counted.take().filter(|counted| counted.ends == ends);
        let (sum, outlook) = if pod.is_critical() {
            (kept, outlook(&read()))
        } else {
            let by_kept = kept.map(|kept| (outlook(&kept.others), kept));
            let (outlook, sum) =
                by_kept.filter(|(outlook, _)| starts(outlook)).unwrap_or_else(|| {
                    let sum = self.count(ends, read());
                    (outlook(&sum.others), sum)
                });
            (Some(sum), outlook)
        };
        *counted = sum;
        if starts(&outlook) {
            if let Some(sum) = &mut *counted {
                sum.others.add(pod);
            }
            self.0.pods.lock().insert(pod.uid().clone(), pod.clone());
        }
        outlook
    }

    fn count(&self, ends: u64, mut others: OtherPods) -> Counted {
        // Before others are added, which does nothing as long as they are not read.
        let _ = others.used();
        self.0.pods.lock().values().for_each(|pod| others.add(pod));
        Counted { others, ends }
    }

    /// Whether the pod is admitted here.
    pub fn has(&self, uid: &PodUid) -> bool {
        self.0.pods.lock().contains_key(uid)
    }

    /// All that the pod may not preempt. None for one that is admitted here itself.
    fn beside(&self, pod: &Pod) -> Vec<Pod> {
        let pods = self.0.pods.lock();
        if pods.contains_key(pod.uid()) {
            return Vec::new();
        }
        let gives_way = |one: &&Pod| pod.is_critical() && pod.may_preempt(one);
        pods.values().filter(|one| !gives_way(one)).cloned().collect()
    }

    /// The pods whose room is kept from a pod, for [`NodeFit::beside`](winddown_shared::NodeFit::beside).
    pub fn kept_room(&self) -> impl Fn(&Pod) -> Vec<Pod> + Send + Sync + use<> {
        let admitted = self.clone();
        move |pod| admitted.beside(pod)
    }

    /// Frees the room of a pod that is not wanted any more, or has terminated.
    pub fn forget(&self, uid: &PodUid) {
        if self.take(uid) {
            self.count_anew();
        }
    }

    /// Has the pods on the node read again for the next judgement.
    fn count_anew(&self) {
        *self.0.counted.lock() = None;
    }

    /// The same check for pods that are not admitted here.
    pub fn passed(&self, check: Arc<dyn AdmitHandler>) -> impl AdmitHandler + use<> {
        Passed { check, admitted: self.clone() }
    }

    fn take(&self, uid: &PodUid) -> bool {
        self.0.pods.lock().remove(uid).is_some()
    }
}

impl Recorder for AdmittedPods {
    /// A pod that the intake admits is on the node. Those admitted here are counted already.
    fn record(&self, event: &Event) {
        if let Event::PodAdmitted { pod } = event
            && !self.take(&pod.uid)
        {
            self.count_anew();
        }
    }
}

impl AdmitHandler for Passed {
    fn admit(&self, pod: &Pod, others: &OtherPods) -> Result<(), Rejection> {
        if self.admitted.has(pod.uid()) {
            return Ok(());
        }
        self.check.admit(pod, others)
    }

    fn decide(&self, pod: &Pod, others: &OtherPods) -> Verdict {
        if self.admitted.has(pod.uid()) {
            return Verdict::Admitted;
        }
        self.check.decide(pod, others)
    }
}
