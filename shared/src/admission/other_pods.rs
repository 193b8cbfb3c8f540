//! The pods that are already on the node when a new pod is checked.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use super::node_fit::NodeUse;
use super::ports;
use crate::{Pod, PodUid, UidHasher};

/// The pods that occupy a place on the node, for checking several new pods in turn.
///
/// They are read and summed up once, when a check first needs them; a pod that is admitted is added
/// to the sum. So checking all pods takes linear rather than quadratic time.
pub struct OtherPods {
    read: Box<dyn Fn() -> OccupiedPlaces + Send>,
    places: OnceCell<Summed>,
    /// Pods for which room is being made.
    reserved: Vec<Pod>,
}

/// The pods that occupy a place on the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct OccupiedPlaces {
    /// Pods that were not requested to terminate.
    pub(crate) non_terminating: Vec<Pod>,
    /// Pods that are terminating and still count.
    pub(crate) ending: Vec<Pod>,
}

#[derive(Debug)]
struct Summed {
    non_terminating: Vec<Pod>,
    ending: Vec<Pod>,
    known: HashSet<PodUid, BuildHasherDefault<UidHasher>>,
    used: NodeUse,
    /// The number of pods visited for the sum.
    #[cfg(test)]
    visits: std::cell::Cell<usize>,
}

// === impl OtherPods ===

impl OtherPods {
    /// The pods that `list` returns when it is first needed.
    pub fn new(list: impl Fn() -> Vec<Pod> + Send + 'static) -> Self {
        Self::of(move || OccupiedPlaces { non_terminating: list(), ending: Vec::new() })
    }

    /// An empty node.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Vec::new)
    }

    pub(crate) fn of(read: impl Fn() -> OccupiedPlaces + Send + 'static) -> Self {
        Self { read: Box::new(read), places: OnceCell::new(), reserved: Vec::new() }
    }

    /// The pods that may be preempted: those that were not requested to terminate yet.
    pub fn non_terminating(&self) -> &[Pod] {
        &self.summed().non_terminating
    }

    /// The usage of all of them, without what is reserved.
    pub fn used(&self) -> &NodeUse {
        &self.summed().used
    }

    /// The usage that matters for `new`, including pods that are terminating. Excludes `new`
    /// itself, and room that is reserved for pods that `new` may preempt.
    ///
    /// Valid for `new` only: ports that it does not request are left out.
    #[must_use]
    pub fn used_without(&self, new: &Pod) -> NodeUse {
        let summed = self.summed();
        let mut used = if summed.known.contains(new.uid()) {
            // The pod is checked again while it is here: rare enough to compute the sum again.
            summed.visited(summed.known.len());
            NodeUse::without(new, summed.non_terminating.iter().chain(&summed.ending))
        } else {
            summed.used.for_ports(&ports::numbers(new))
        };
        let reserved = self.reserved.iter().filter(|pod| pod.uid() != new.uid());
        reserved.filter(|pod| !new.may_preempt(pod)).for_each(|pod| used.add(pod));
        used
    }

    /// Adds a pod that was admitted.
    pub fn add(&mut self, pod: &Pod) {
        // The pods were not read yet, and this pod will be among them.
        let Some(summed) = self.places.get_mut() else { return };
        if summed.known.insert(pod.uid().clone()) {
            summed.used.add(pod);
            summed.visited(1);
            summed.non_terminating.push(pod.clone());
        }
    }

    /// Reserves room that is being made for a pod: only pods that may preempt it can take it.
    pub fn reserve(&mut self, pod: &Pod) {
        self.reserved.push(pod.clone());
    }

    /// Copies the reservations of `other`.
    pub(crate) fn with_reservations_of(mut self, other: &Self) -> Self {
        self.reserved.clone_from(&other.reserved);
        self
    }

    /// The number of pods visited for sums so far.
    #[cfg(test)]
    pub(crate) fn visits(&self) -> usize {
        self.places.get().map_or(0, |summed| summed.visits.get())
    }

    fn summed(&self) -> &Summed {
        self.places.get_or_init(|| Summed::new((self.read)()))
    }
}

impl std::fmt::Debug for OtherPods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OtherPods")
            .field("places", &self.places)
            .field("promised", &self.reserved)
            .finish_non_exhaustive()
    }
}

// === impl Summed ===

impl Summed {
    fn new(OccupiedPlaces { non_terminating, ending }: OccupiedPlaces) -> Self {
        let mut used = NodeUse::default();
        let mut known = HashSet::default();
        for pod in non_terminating.iter().chain(&ending) {
            known.insert(pod.uid().clone());
            used.add(pod);
        }
        let summed = Self {
            #[cfg(test)]
            visits: std::cell::Cell::default(),
            non_terminating,
            ending,
            known,
            used,
        };
        summed.visited(summed.known.len());
        summed
    }

    fn visited(&self, pods: usize) {
        let _ = pods;
        #[cfg(test)]
        self.visits.update(|visits| visits + pods);
    }
}
