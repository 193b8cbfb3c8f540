//! The eviction order.

use std::cmp::Reverse;

use jiff::Timestamp;
use winddown_shared::{Pod, PodUid, Requests};

use crate::observation::signed;
use crate::signal::{Resource, Signal};

#[cfg(test)]
mod tests;

/// A pod and its usage of the short resource.
#[derive(Clone, Copy, Debug)]
pub struct Ranked<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Bytes, inodes or processes; none when it was not measured.
    pub usage: Option<i64>,
    /// How fast its memory grows, in bytes per second; none when that is not known.
    pub growth: Option<i64>,
}

/// Sorts pods as the kubelet ends them: those that use more than they asked for first, then the
/// lower priority, then the larger use beyond the request. Processes: the lower priority, then the
/// larger number.
///
/// Pods that were not measured come before all others (of their priority, for processes), as they
/// do with the kubelet. Where that leaves two alike, which with the kubelet is a matter of chance,
/// the one that is known to grow faster comes first, then the younger, then the smaller UID.
pub fn rank(signal: Signal, pods: &mut [Ranked<'_>]) {
    rank_by(signal, None, pods, |pod| *pod);
}

/// The same for items that have pods. Pods whose memory beyond the request is in the same multiple of `tie` are alike,
/// unless their growth is. The key is computed once per pod, so comparisons are cheap.
pub(crate) fn rank_by<'a, T>(
    signal: Signal,
    tie: Option<u64>,
    things: &mut [T],
    of: impl Fn(&T) -> Ranked<'a>,
) {
    let tie = tie.filter(|_| signal.resource() == Resource::Memory);
    let tie = tie.map_or(1, |bytes| signed(bytes.max(1)));
    things.sort_by_cached_key(|thing| Key::of(signal, tie, &of(thing)));
}

/// What a pod is ranked by, in this order; the smaller comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    excess: Excess,
    priority: i32,
    /// Not measured, then the larger, in multiples of what makes two alike.
    multiple: Option<Reverse<i64>>,
    /// The faster first; not known comes last.
    growth: Reverse<Option<i64>>,
    /// The larger to the byte.
    amount: Option<Reverse<i64>>,
    /// The younger first, which has the least to lose; a pod without a start time comes last.
    created: Reverse<Option<Timestamp>>,
    uid: &'a PodUid,
}

/// Whether a pod uses more than it asked for.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Excess {
    NotMeasured,
    More,
    /// Not compared: pods have no request for processes.
    NoMore,
}

impl<'a> Key<'a> {
    fn of(signal: Signal, tie: i64, ranked: &Ranked<'a>) -> Self {
        let pod = ranked.pod;
        let (excess, amount) = match signal.resource() {
            Resource::Pids => (Excess::NoMore, ranked.usage),
            _ => {
                let excess = match ranked.exceeds(signal) {
                    None => Excess::NotMeasured,
                    Some(true) => Excess::More,
                    Some(false) => Excess::NoMore,
                };
                (excess, ranked.beyond(signal))
            }
        };
        Self {
            excess,
            priority: pod.priority_or_zero(),
            multiple: amount.map(|amount| Reverse(amount.div_euclid(tie))),
            growth: Reverse(ranked.growth),
            amount: amount.map(Reverse),
            created: Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
            uid: pod.uid(),
        }
    }
}

impl Ranked<'_> {
    /// Its request: pods above theirs come first.
    #[must_use]
    pub fn request(&self, signal: Signal) -> i64 {
        amount(self.pod.accounted_requests(), signal.resource())
    }

    /// Whether it uses more than it asked for; none when it was not measured.
    #[must_use]
    pub fn exceeds(&self, signal: Signal) -> Option<bool> {
        Some(self.usage? > self.request(signal))
    }

    /// By how much its use is beyond the request, below 0 if it is not.
    ///
    /// Inodes are compared as they are. The kubelet subtracts bytes from inodes, so that a pod with
    /// any request for storage comes last.
    #[must_use]
    pub fn beyond(&self, signal: Signal) -> Option<i64> {
        Some(self.usage?.saturating_sub(self.request(signal)))
    }
}

fn amount(requests: &Requests, resource: Resource) -> i64 {
    match resource {
        Resource::Memory => requests.memory_bytes(),
        Resource::EphemeralStorage => requests.ephemeral_storage_bytes(),
        Resource::Inodes | Resource::Pids => 0,
    }
}
