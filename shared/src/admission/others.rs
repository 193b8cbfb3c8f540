//! The pods that are on the node already, as one that is new is judged beside them.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use super::node_fit::NodeUse;
use super::ports;
use crate::{Pod, PodUid, UidHasher};

/// The pods that hold a place on the node, for checks of one new pod after another.
///
/// They are read and summed up once, when a check first needs them; a pod that is let in is added
/// to the sum. So it takes time with the number of pods to judge all of them, not with its square.
pub struct Others {
    read: Box<dyn Fn() -> Places + Send>,
    places: OnceCell<Summed>,
    /// Pods that wait for room which is being made for them.
    reserved: Vec<Pod>,
}

/// Who holds a place on the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Pods that were not asked to end.
    pub(crate) staying: Vec<Pod>,
    /// Pods that are ending and count all the same.
    pub(crate) ending: Vec<Pod>,
}

#[derive(Debug)]
struct Summed {
    staying: Vec<Pod>,
    ending: Vec<Pod>,
    known: HashSet<PodUid, BuildHasherDefault<UidHasher>>,
    used: NodeUse,
    /// How many pods were looked at for the sum.
    #[cfg(test)]
    visits: std::cell::Cell<usize>,
}

// === impl Others ===

impl Others {
    /// The pods that `list` names when it is first asked.
    pub fn new(list: impl Fn() -> Vec<Pod> + Send + 'static) -> Self {
        Self::of(move || Places { staying: list(), ending: Vec::new() })
    }

    /// An empty node.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Vec::new)
    }

    pub(crate) fn of(read: impl Fn() -> Places + Send + 'static) -> Self {
        Self { read: Box::new(read), places: OnceCell::new(), reserved: Vec::new() }
    }

    /// The pods that could be ended for another: those that were not asked to end yet.
    pub fn staying(&self) -> &[Pod] {
        &self.summed().staying
    }

    /// What the others hold that `new` may ask for, pods that are ending included. `new` itself is
    /// left out, and so is the room that is promised to pods that `new` may preempt.
    ///
    /// Good for `new` only: ports it does not ask for are left out.
    #[must_use]
    pub fn used_beside(&self, new: &Pod) -> NodeUse {
        let summed = self.summed();
        let mut used = if summed.known.contains(new.uid()) {
            // Asked about again while it is here: rare enough to add all up anew.
            summed.visited(summed.known.len());
            NodeUse::beside(new, summed.staying.iter().chain(&summed.ending))
        } else {
            summed.used.for_ports(&ports::numbers(new))
        };
        let reserved = self.reserved.iter().filter(|pod| pod.uid() != new.uid());
        reserved.filter(|pod| !new.may_preempt(pod)).for_each(|pod| used.add(pod));
        used
    }

    /// A pod was let in: it counts from now on.
    pub fn add(&mut self, pod: &Pod) {
        // Not read yet: it will be among those that are read.
        let Some(summed) = self.places.get_mut() else { return };
        if summed.known.insert(pod.uid().clone()) {
            summed.used.add(pod);
            summed.visited(1);
            summed.staying.push(pod.clone());
        }
    }

    /// Room is being made for a pod: others must not take it, but those that may preempt it.
    pub(crate) fn reserve(&mut self, pod: &Pod) {
        self.reserved.push(pod.clone());
    }

    /// With the same promises.
    pub(crate) fn with_reservations_of(mut self, other: &Self) -> Self {
        self.reserved.clone_from(&other.reserved);
        self
    }

    /// How many pods were looked at for sums so far.
    #[cfg(test)]
    pub(crate) fn visits(&self) -> usize {
        self.places.get().map_or(0, |summed| summed.visits.get())
    }

    fn summed(&self) -> &Summed {
        self.places.get_or_init(|| Summed::new((self.read)()))
    }
}

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Others")
            .field("places", &self.places)
            .field("promised", &self.reserved)
            .finish_non_exhaustive()
    }
}

// === impl Summed ===

impl Summed {
    fn new(Places { staying, ending }: Places) -> Self {
        let mut used = NodeUse::default();
        let mut known = HashSet::default();
        for pod in staying.iter().chain(&ending) {
            known.insert(pod.uid().clone());
            used.add(pod);
        }
        let summed = Self {
            #[cfg(test)]
            visits: std::cell::Cell::default(),
            staying,
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
