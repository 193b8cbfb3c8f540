//! The eviction order.

use std::cmp::Reverse;

use jiff::Timestamp;
use winddown_shared::{Pod, PodUid};

use crate::signal::Signal;

#[cfg(test)]
mod tests;

/// A pod and its usage of the short resource.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Ranked<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its usage, in the resource's unit; none if it was not measured.
    pub usage: Option<i64>,
    /// Whether it uses more than that, which could not be counted in time.
    pub is_partial: bool,
}

impl<'a> Ranked<'a> {
    /// A pod and its usage, in the resource's unit; none if it was not measured.
    #[must_use]
    pub const fn new(pod: &'a Pod, usage: Option<i64>) -> Self {
        Self { pod, usage, is_partial: false }
    }
}

/// Sorts pods in the kubelet's eviction order: pods that use more than they requested first, then by lower priority,
/// then by larger use beyond the request. For tasks: by lower priority, then by larger number.
///
/// A pod that uses more than could be counted counts as above its request, and comes before those of its priority that
/// could be counted: what is unknown is not small.
///
/// As with the kubelet, pods that were not measured come before all others (of their priority, for tasks). Where
/// the kubelet leaves the order of two pods to chance, the younger comes first, then the one with the smaller UID.
pub fn rank(signal: Signal, pods: &mut [Ranked<'_>]) {
    rank_by(signal, pods, |pod| *pod);
}

/// Sorts items that have pods in the same way. The key is computed once per pod, so comparisons are cheap.
pub(crate) fn rank_by<'a, T>(signal: Signal, things: &mut [T], of: impl Fn(&T) -> Ranked<'a>) {
    things.sort_by_cached_key(|thing| Key::of(signal, &of(thing)));
}

/// The sort key of a pod: its fields in this order, smaller values first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    excess: Excess,
    priority: i32,
    /// Those that use more than could be counted come first.
    is_counted: bool,
    /// The use beyond the request: not measured first, then the larger.
    amount: Option<Reverse<i64>>,
    /// The younger first, because it has the least to lose; a pod without a creation time comes last.
    created: Reverse<Option<Timestamp>>,
    uid: &'a PodUid,
}

/// Whether a pod uses more than it requested.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Excess {
    NotMeasured,
    More,
    /// Also for tasks, which are not compared because pods have no request for them.
    NoMore,
}

impl<'a> Key<'a> {
    fn of(signal: Signal, ranked: &Ranked<'a>) -> Self {
        let pod = ranked.pod;
        let request = signal.resource().row().request;
        let excess = match request.map(|_| ranked.exceeds(signal)) {
            None | Some(Some(false)) => Excess::NoMore,
            Some(None) => Excess::NotMeasured,
            Some(Some(true)) => Excess::More,
        };
        Self {
            excess,
            priority: pod.priority_or_zero(),
            is_counted: !ranked.is_partial,
            amount: ranked.beyond(signal).map(Reverse),
            created: Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
            uid: pod.uid(),
        }
    }
}

impl Ranked<'_> {
    /// The pod's request; pods that use more than their request come first.
    #[must_use]
    pub fn request(&self, signal: Signal) -> i64 {
        let request = signal.resource().row().request;
        request.map_or(0, |of| of(self.pod.accounted_requests()))
    }

    /// Whether the pod uses more than it requested; none if it was not measured.
    #[must_use]
    pub fn exceeds(&self, signal: Signal) -> Option<bool> {
        Some(self.usage? > self.request(signal) || self.is_partial)
    }

    /// The use beyond the request, negative below it; none if it was not measured.
    ///
    /// Inodes have no request and are compared as they are. The kubelet subtracts the requested bytes from them, so
    /// that a pod with any request for storage comes last.
    #[must_use]
    pub fn beyond(&self, signal: Signal) -> Option<i64> {
        Some(self.usage?.saturating_sub(self.request(signal)))
    }
}
