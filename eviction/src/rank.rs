//! In which order pods are ended when something runs short.

use std::cmp::{Ordering, Reverse};

use winddown_shared::{Pod, Requests};

use crate::signal::{Resource, Signal};

#[cfg(test)]
mod tests;

/// A pod and what it uses of what runs short.
#[derive(Clone, Copy, Debug)]
pub struct Ranked<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Bytes, inodes or processes; none when it was not measured.
    pub usage: Option<i64>,
}

/// Sorts pods as the kubelet ends them: those that use more than they asked for first, then the
/// lower priority, then the larger use beyond the request. Processes: the lower priority, then the
/// larger number.
///
/// Pods that were not measured come before all others (of their priority, for processes), as they
/// do with the kubelet. Where that leaves two alike, which with the kubelet is a matter of chance,
/// the younger one comes first, then the smaller UID.
pub fn rank(signal: Signal, pods: &mut [Ranked<'_>]) {
    rank_by(signal, pods, |pod| *pod);
}

/// The same for things that go with pods.
pub(crate) fn rank_by<'a, T>(signal: Signal, things: &mut [T], of: impl Fn(&T) -> Ranked<'a>) {
    things.sort_by(|a, b| {
        let (a, b) = (of(a), of(b));
        compare(signal, &a, &b).then_with(|| by_age(a.pod, b.pod))
    });
}

impl Ranked<'_> {
    /// What it may use of it without being among the first.
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

fn compare(signal: Signal, a: &Ranked<'_>, b: &Ranked<'_>) -> Ordering {
    let priority = a.pod.priority_or_zero().cmp(&b.pod.priority_or_zero());
    if signal.resource() == Resource::Pids {
        return priority.then_with(|| unmeasured_first(a.usage, b.usage));
    }
    unmeasured_first(a.exceeds(signal), b.exceeds(signal))
        .then(priority)
        .then_with(|| unmeasured_first(a.beyond(signal), b.beyond(signal)))
}

/// What is not there first, then the larger.
fn unmeasured_first<T: Ord>(a: Option<T>, b: Option<T>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => Reverse(a).cmp(&Reverse(b)),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// The younger first: it has the least to lose.
fn by_age(a: &Pod, b: &Pod) -> Ordering {
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Reverse(created(a)).cmp(&Reverse(created(b))).then_with(|| a.uid().cmp(b.uid()))
}

fn amount(requests: &Requests, resource: Resource) -> i64 {
    match resource {
        Resource::Memory => requests.memory_bytes(),
        Resource::EphemeralStorage => requests.ephemeral_storage_bytes(),
        Resource::Inodes | Resource::Pids => 0,
    }
}
