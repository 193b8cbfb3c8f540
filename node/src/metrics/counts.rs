//! How many pods stand where: the gauges of a node, counted from one snapshot.

use winddown_shared::{Lifecycle, Pod, PodSnapshot, PodUidMap};

#[cfg(test)]
mod tests;

/// The pods of a node by what is wanted of them and where their workers are.
///
/// The meanings are those of the kubelet's `kubelet_desired_pods`, `kubelet_active_pods`,
/// `kubelet_mirror_pods` and `kubelet_working_pods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Pods that a source wants here, those that are refused or have ended included. Mirror pods are
    /// not.
    pub desired: ByOrigin,
    /// Desired pods that have not come to their end: not known to be without containers, and not
    /// refused or over before they had a worker.
    pub active: ByOrigin,
    /// The API server's images of static pods.
    pub mirrors: usize,
    /// Pods that have a worker.
    pub working: WorkingPods,
    /// Pods that end, or have ended, and start again here when the node is back.
    pub staying: usize,
}

/// A number of pods by who brought them in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByOrigin {
    /// Pods of the API server.
    pub regular: usize,
    /// Pods that the agent itself brought in, from manifests.
    pub from_manifests: usize,
}

/// Pods that have a worker, by stage, by whether they are wanted, and by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkingPods {
    /// Started and kept running, or waiting for their turn to start.
    pub sync: ByConfig,
    /// Containers may still run, and are being stopped.
    pub terminating: ByConfig,
    /// No container runs; what is left is cleared away.
    pub terminated: ByConfig,
}

/// A number of pods by whether they are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByConfig {
    /// A source wants them.
    pub desired: ByOrigin,
    /// They left their source.
    pub orphan: ByOrigin,
    /// Only the runtime knows them.
    pub runtime_only: usize,
}

// === impl PodCounts ===

impl PodCounts {
    /// Counts.
    ///
    /// `desired` is everything the sources want, `workers` what
    /// [`PodWorkers::snapshot`](crate::PodWorkers::snapshot) says, and `has_ended` whether the last
    /// status that was given for a pod is a terminal one. It is asked at most once per desired pod.
    /// Linear in the number of pods.
    pub fn of<'a>(
        desired: impl IntoIterator<Item = &'a Pod>,
        workers: &[PodSnapshot],
        has_ended: impl Fn(&Pod) -> bool,
    ) -> Self {
        let mut tracked: PodUidMap<&PodSnapshot> =
            workers.iter().map(|w| (w.uid.clone(), w)).collect();
        let staying = workers.iter().filter(|worker| worker.stays).count();
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

/// A terminal pod that is still being torn down counts: it may hold what it was given.
fn is_active(pod: &Pod, worker: Option<&PodSnapshot>, has_ended: impl Fn(&Pod) -> bool) -> bool {
    match worker.map(|w| w.lifecycle) {
        Some(Lifecycle::Terminated | Lifecycle::Finished) => false,
        Some(Lifecycle::Terminating) => true,
        Some(Lifecycle::Waiting | Lifecycle::Syncing) | None => {
            !has_terminal_phase(pod) && !has_ended(pod)
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
    /// The stages in order, with the words that metrics carry.
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

/// Whether the pod is said to have come to its end.
fn has_terminal_phase(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
