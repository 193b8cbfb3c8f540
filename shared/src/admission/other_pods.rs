//! The pods that are already on the node when a new pod is checked.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use tokio::time::Instant;

use super::node_fit::{NodeUse, fit_failures};
use super::node_view::NodeView;
use super::ports;
use crate::{Pod, PodUid, UidHasher};

/// The pods that occupy a place on the node, for checking several new pods in turn: read and summed up once, when a
/// check first needs them. A pod that is admitted is added to the sum, so checking all takes linear time.
pub struct OtherPods {
    read: Box<dyn Fn() -> OccupiedPlaces + Send>,
    places: OnceCell<Summed>,
    /// Pods for which room is being made.
    reserved: Vec<Pod>,
}

/// The pods that occupy a place on the node, in no particular order.
#[derive(Clone, Debug, Default)]
pub(crate) struct OccupiedPlaces {
    pub(crate) non_terminating: Vec<Pod>,
    /// Pods that are no choice for others, and do not leave by themselves.
    pub(crate) staying: Vec<Pod>,
    /// Pods that should have terminated by now. When they will is unknown.
    pub(crate) stuck: Vec<Pod>,
    /// Pods that are terminating within their time, and when that is over: their places will become free.
    pub(crate) leaving: Vec<(Pod, Instant)>,
}

#[derive(Debug)]
struct Summed {
    places: OccupiedPlaces,
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
        Self::of(move || OccupiedPlaces { non_terminating: list(), ..OccupiedPlaces::default() })
    }

    pub(crate) fn of(read: impl Fn() -> OccupiedPlaces + Send + 'static) -> Self {
        Self { read: Box::new(read), places: OnceCell::new(), reserved: Vec::new() }
    }

    /// The pods that may be preempted: those that were not requested to terminate yet.
    pub fn non_terminating(&self) -> &[Pod] {
        &self.summed().places.non_terminating
    }

    /// The usage of all of them, without what is reserved.
    pub fn used(&self) -> &NodeUse {
        &self.summed().used
    }

    /// The usage of `node` that matters for `new`: of each resource the most from now on. What is reserved counts once
    /// it is free: a pod that is terminating and the one that waits for its room never count together. Excludes `new`
    /// itself, room that is reserved for pods that `new` may preempt, and ports that `new` does not request.
    #[must_use]
    pub fn used_without(&self, new: &Pod, node: &NodeView) -> NodeUse {
        let summed = self.summed();
        let places = &summed.places;
        let mut used = if summed.known.contains(new.uid()) {
            // The pod is checked again while it is here: rare enough to compute the sum again.
            summed.visited(summed.known.len());
            NodeUse::without(new, places.all())
        } else {
            summed.used.for_ports(&ports::numbers(new))
        };
        let counts = |pod: &&Pod| pod.uid() != new.uid() && !new.may_preempt(pod);
        let mut reserved = self.reserved.iter().filter(counts).peekable();
        if reserved.peek().is_some() {
            let staying = places.non_terminating.iter().chain(&places.staying);
            let mut at_last = NodeUse::without(new, staying);
            let mut in_time = NodeUse::without(new, places.in_time());
            for pod in reserved {
                // One that does not fit beside the stuck pods waits for them, too.
                if fit_failures(pod, node, &in_time).is_empty() {
                    in_time.add(pod);
                }
                at_last.add(pod);
                used.ports.add(pod);
            }
            used.raise_to(&in_time);
            used.raise_to(&at_last);
        }
        used
    }

    /// Adds a pod that was admitted.
    pub fn add(&mut self, pod: &Pod) {
        // The pods were not read yet, and this pod will be among them.
        let Some(summed) = self.places.get_mut() else { return };
        if summed.known.insert(pod.uid().clone()) {
            summed.used.add(pod);
            summed.visited(1);
            summed.places.non_terminating.push(pod.clone());
        }
    }

    /// Reserves room that is being made for a pod: only pods that may preempt it can take it.
    pub fn reserve(&mut self, pod: &Pod) {
        self.reserved.push(pod.clone());
    }

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
        write!(f, "OtherPods({:?}, {} reserved)", self.places, self.reserved.len())
    }
}

// === impl OccupiedPlaces ===

impl OccupiedPlaces {
    fn all(&self) -> impl Iterator<Item = &Pod> {
        self.in_time().chain(self.leaving.iter().map(|(pod, _)| pod))
    }

    /// Those that are still there when those within their time have left.
    fn in_time(&self) -> impl Iterator<Item = &Pod> {
        [&self.non_terminating, &self.staying, &self.stuck].into_iter().flatten()
    }
}

// === impl Summed ===

impl Summed {
    fn new(places: OccupiedPlaces) -> Self {
        let mut used = NodeUse::default();
        let mut known = HashSet::default();
        for pod in places.all() {
            known.insert(pod.uid().clone());
            used.add(pod);
        }
        let summed = Self {
            #[cfg(test)]
            visits: std::cell::Cell::default(),
            places,
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
