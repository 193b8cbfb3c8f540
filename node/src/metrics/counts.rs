//! The numbers of pods by state, counted from one snapshot.

use winddown_shared::status::is_terminal;
use winddown_shared::{Lifecycle, Pod, PodSnapshot, PodUidMap};

#[cfg(test)]
mod tests;

/// The numbers of a node's pods, by whether they are desired and by the stage of their worker.
///
/// The meanings are those of the kubelet's `kubelet_desired_pods`, `kubelet_active_pods`,
/// `kubelet_mirror_pods` and `kubelet_working_pods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Pods that a source wants here, including those that were refused or have ended. Mirror pods are not counted.
    pub desired: ByOrigin,
    /// Desired pods that have not ended: their containers are not known to be gone, and they were not refused or
    /// terminal before they had a worker.
    pub active: ByOrigin,
    /// The API server's mirror pods of static pods.
    pub mirrors: usize,
    /// Pods that have a worker.
    pub working: WorkingPods,
    /// Pods that are terminating or have ended, and start again here when the node is back.
    pub staying: usize,
}

/// A number of pods by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByOrigin {
    /// Pods from the API server.
    pub regular: usize,
    /// Static pods, from manifests.
    pub from_manifests: usize,
}

/// Pods that have a worker, by stage, by whether they are desired, and by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkingPods {
    /// Pods that are started and kept running, or wait for their turn to start.
    pub sync: ByConfig,
    /// Pods whose containers may still run and are being stopped.
    pub terminating: ByConfig,
    /// Pods whose containers have all stopped; the rest is being cleaned up.
    pub terminated: ByConfig,
}

/// A number of pods by whether they are desired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByConfig {
    /// Pods that a source wants.
    pub desired: ByOrigin,
    /// Pods that no source wants any more.
    pub orphan: ByOrigin,
    /// Pods that only the runtime knows.
    pub runtime_only: usize,
}

// === impl PodCounts ===

impl PodCounts {
    /// Counts the pods.
    ///
    /// `desired` is everything that the sources want, `workers` the result of
    /// [`PodWorkers::snapshot`](crate::PodWorkers::snapshot), and `has_ended` whether the last status of a pod is
    /// terminal; it is called at most once per desired pod. Takes time linear in the number of pods.
    pub fn of<'a>(
        desired: impl IntoIterator<Item = &'a Pod>,
        workers: &[PodSnapshot],
        has_ended: impl Fn(&Pod) -> bool,
    ) -> Self {
        let mut tracked: PodUidMap<&PodSnapshot> =
            workers.iter().map(|w| (w.uid.clone(), w)).collect();
        let staying = workers.iter().filter(|worker| worker.restarts_on_node).count();
        let mut counts = Self { staying, ..Self::default() };
        for pod in desired {
            if pod.is_mirror() {
                counts.mirrors += 1;
                continue;
            }
            let is_static = pod.is_static();
            let worker = tracked.remove(pod.uid());
            counts.desired.add(is_static);
            if is_active(pod, worker, &has_ended) {
                counts.active.add(is_static);
            }
            if let Some(worker) = worker {
                counts.working.at(worker.lifecycle).desired.add(is_static);
            }
        }
        for worker in tracked.into_values() {
            let stage = counts.working.at(worker.lifecycle);
            match &worker.pod {
                Some(pod) => stage.orphan.add(pod.is_static()),
                None => stage.runtime_only += 1,
            }
        }
        counts
    }
}

/// Whether a desired pod is active. A terminal pod that is still terminating counts, because it may hold resources.
fn is_active(pod: &Pod, worker: Option<&PodSnapshot>, has_ended: impl Fn(&Pod) -> bool) -> bool {
    match worker.map(|w| w.lifecycle) {
        Some(Lifecycle::Terminated | Lifecycle::Finished) => false,
        Some(Lifecycle::Terminating) => true,
        Some(Lifecycle::Waiting | Lifecycle::Syncing) | None => {
            !pod.status.as_ref().is_some_and(is_terminal) && !has_ended(pod)
        }
    }
}

// === impl ByOrigin ===

impl ByOrigin {
    fn add(&mut self, is_static: bool) {
        if is_static {
            self.from_manifests += 1;
        } else {
            self.regular += 1;
        }
    }
}

// === impl WorkingPods ===

impl WorkingPods {
    /// The stages in order, with their label values.
    pub fn stages(&self) -> [(&'static str, &ByConfig); 3] {
        [("sync", &self.sync), ("terminating", &self.terminating), ("terminated", &self.terminated)]
    }

    fn at(&mut self, lifecycle: Lifecycle) -> &mut ByConfig {
        match lifecycle {
            Lifecycle::Waiting | Lifecycle::Syncing => &mut self.sync,
            Lifecycle::Terminating => &mut self.terminating,
            Lifecycle::Terminated | Lifecycle::Finished => &mut self.terminated,
        }
    }
}
