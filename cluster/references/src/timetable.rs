//! When the volumes of each pod are refreshed next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tokio::time::Instant;
use winddown_shared::{PodUid, PodUidMap};

/// The pods whose volumes have to be refreshed, and when. A pod has one entry; a later one replaces it.
#[derive(Debug, Default)]
pub(super) struct RefreshTimetable {
    /// The valid entries. The heap may also have outdated ones.
    due: PodUidMap<Instant>,
    heap: BinaryHeap<Reverse<(Instant, PodUid)>>,
}

impl RefreshTimetable {
    /// Makes the pod due at `at`, and at no other time.
    pub(super) fn set(&mut self, uid: &PodUid, at: Instant) {
        self.due.insert(uid.clone(), at);
        self.heap.push(Reverse((at, uid.clone())));
    }

    pub(super) fn remove(&mut self, uid: &PodUid) {
        self.due.remove(uid);
    }

    /// When the next pod is due; `None` if there is none.
    pub(super) fn next(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, uid))) = self.heap.peek() {
            if self.due.get(uid) == Some(at) {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Vec<PodUid> {
        let mut taken = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            if let Some(Reverse((_, uid))) = self.heap.pop() {
                self.due.remove(&uid);
                taken.push(uid);
            }
        }
        taken
    }

    /// The number of pods.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_last_time_of_a_pod_counts() {
        let (now, mut table) = (Instant::now(), RefreshTimetable::default());
        let (a, b) = (PodUid::new("a"), PodUid::new("b"));
        let after = |seconds| now + Duration::from_secs(seconds);
        table.set(&a, after(1));
        table.set(&b, after(2));
        table.set(&a, after(3));
        assert_eq!(table.next(), Some(after(2)));
        assert_eq!(table.take_due(after(2)), std::slice::from_ref(&b));
        table.set(&b, after(9));
        table.remove(&b);
        assert_eq!(table.take_due(after(10)), [a]);
        assert_eq!((table.next(), table.len()), (None, 0));
    }
}
