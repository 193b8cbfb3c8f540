//! One pod's entry in the outbox.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use winddown_shared::{Pod, PodRef};

use crate::status::patch::{BY_NODE, DISRUPTION_TARGET};
use winddown_shared::Backoff;

/// The first foreign change is reverted immediately, further ones ever more slowly.
const REASSERT_BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));
/// After this long without a foreign change the next one is reverted immediately again.
const DISPUTE_OVER_AFTER: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct OutboxEntry {
    pub(super) pod: PodRef,
    /// The latest status; `None` if only the API has reported the pod.
    pub(super) said: Option<LastReported>,
    /// The pod as the API last had it, as far as is known.
    pub(super) in_api: Option<Pod>,
    /// The pod as the API had it when the node last wrote to it, or had nothing to write.
    pub(super) as_written: Option<Pod>,
    /// Whether a list has begun that will show the pod as it is now.
    pub(super) is_listed_anew: bool,
    /// The turn of the latest status that the API has.
    pub(super) told: u64,
    pub(super) place: OutboxPosition,
    /// Whether something changed during the current request.
    pub(super) dirty: bool,
    /// The backoff between attempts.
    pub(super) backoff: Backoff,
    /// The backoff between reverts of foreign changes, and from when on the next one may be made.
    reassert: (Backoff, Option<Instant>),
    /// The patch that the server accepted but did not apply.
    pub(super) not_taken: Option<Value>,
    /// The turn of the status that is on disk.
    pub(super) on_disk: Option<u64>,
    /// The turn of the last final status that is on disk, or could not be written.
    pub(super) kept_turn: u64,
    /// Whether it was logged that the server rejects the status.
    pub(super) complained: bool,
    waiters: Vec<(u64, oneshot::Sender<()>)>,
}

/// A status that was submitted.
#[derive(Clone, Debug)]
pub(super) struct LastReported {
    /// Its number among all submitted ones.
    pub(super) turn: u64,
    pub(super) status: Arc<api::PodStatus>,
    pub(super) last: bool,
    pub(super) generation: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutboxPosition {
    Idle,
    /// Its status must be on disk first.
    Keeping,
    /// It is in line, under this key.
    Ready((Class, u64)),
    /// It waits until a time, under this key.
    Later((Instant, u64), SendReason),
    /// A request with this ticket is in progress.
    InFlight(u64),
}

/// The order in which pods are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// A status that an earlier agent left.
    Kept,
    /// Nothing of the pod runs any more.
    Last,
    /// The node stops the pod or goes down.
    Leaving,
    /// Everything else.
    Usual,
}

/// Why a pod waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendReason {
    /// The API server does not answer.
    Silence,
    /// The server named the time.
    Asked,
    Other,
}

// === impl OutboxEntry ===

impl OutboxEntry {
    pub(super) fn new(pod: PodRef) -> Self {
        Self {
            pod,
            said: None,
            in_api: None,
            as_written: None,
            is_listed_anew: false,
            told: 0,
            place: OutboxPosition::Idle,
            dirty: false,
            backoff: Backoff::EAGER,
            reassert: (REASSERT_BACKOFF, None),
            not_taken: None,
            on_disk: None,
            kept_turn: 0,
            complained: false,
            waiters: Vec::new(),
        }
    }

    /// The turn of the latest status.
    pub(super) fn turn(&self) -> u64 {
        self.said.as_ref().map_or(0, |said| said.turn)
    }

    pub(super) fn is_delivered(&self) -> bool {
        self.told >= self.turn()
    }

    /// Whether the latest status is final.
    pub(super) fn is_last(&self) -> bool {
        self.said.as_ref().is_some_and(|said| said.last)
    }

    pub(super) fn class(&self) -> Class {
        match &self.said {
            Some(said) if !self.is_delivered() => said.class(),
            _ => Class::Usual,
        }
    }

    /// Sets a new status. What delayed the old one need not delay this one; a field that the server drops stays dropped.
    pub(super) fn says(&mut self, said: LastReported) {
        self.said = Some(said);
        self.complained = false;
        self.backoff = Backoff::EAGER;
        self.reassert = (REASSERT_BACKOFF, None);
    }

    /// When a foreign change may be reverted.
    pub(super) fn may_reassert(&mut self, now: Instant) -> Instant {
        if self
            .reassert
            .1
            .is_some_and(|from| now.saturating_duration_since(from) > DISPUTE_OVER_AFTER)
        {
            self.reassert.0.reset();
        }
        self.reassert.1.map_or(now, |from| from.max(now))
    }

    pub(super) fn has_reasserted(&mut self, now: Instant) {
        self.reassert.1 = Some(now + self.reassert.0.next_delay());
    }

    /// Records the pod that a watch or a list has brought. Returns whether it is newer than the known one.
    ///
    /// The first object after the begin of a list is, whatever its version: versions go back when the
    /// data of the API server is restored from a backup.
    pub(super) fn note_seen(&mut self, pod: &Pod) -> bool {
        let is_older = |known: &Pod| by_version(known, pod) == Ordering::Greater;
        if std::mem::take(&mut self.is_listed_anew) && self.in_api.as_ref().is_some_and(is_older) {
            self.in_api = None;
        }
        self.note_in_api(pod)
    }

    /// Records the pod in the answer to a request that was made when `before` was known. The answer is
    /// no older, whatever its version.
    pub(super) fn note_answer(&mut self, pod: &Pod, before: Option<&Pod>) {
        let version = |pod: &Pod| pod.metadata.resource_version.clone();
        if self.in_api.as_ref().map(version) == before.map(version) {
            self.in_api = None;
        }
        self.note_in_api(pod);
    }

    fn note_in_api(&mut self, pod: &Pod) -> bool {
        let order = self.in_api.as_ref().map(|known| by_version(known, pod));
        // An equal version replaces the known pod, too: the caller keeps it anyway.
        if order != Some(Ordering::Greater) {
            self.in_api = Some(pod.clone());
        }
        order.is_none_or(Ordering::is_lt)
    }

    pub(super) fn wait(&mut self) -> oneshot::Receiver<()> {
        let (told, waiter) = oneshot::channel();
        self.waiters.retain(|(_, waiter)| !waiter.is_closed());
        self.waiters.push((self.turn(), told));
        waiter
    }

    /// Records that the API has the status of `turn`, and releases its waiters.
    pub(super) fn acknowledge(&mut self, turn: u64) {
        self.told = self.told.max(turn);
        for (_, waiter) in self.waiters.extract_if(.., |(turn, _)| *turn <= self.told) {
            // The waiter may be gone.
            let _ = waiter.send(());
        }
    }
}

// === impl LastReported ===

impl LastReported {
    fn class(&self) -> Class {
        if self.last {
            return Class::Last;
        }
        let leaving = self.status.conditions.iter().flatten().any(|c| {
            (c.type_ == DISRUPTION_TARGET && c.reason.as_deref() == Some(BY_NODE))
                || (c.type_ == "Ready" && c.reason.as_deref() == Some("NodeShutdown"))
        });
        if leaving { Class::Leaving } else { Class::Usual }
    }
}

/// Compares the versions of `known` and `other`. Versions that are not numbers can only be equal or not.
fn by_version(known: &Pod, other: &Pod) -> Ordering {
    let version = |pod: &Pod| pod.metadata.resource_version.clone();
    let (known, other) = (version(known), version(other));
    if known == other && known.is_some() {
        return Ordering::Equal;
    }
    let number = |version: Option<String>| version?.parse::<u64>().ok();
    match (number(known), number(other)) {
        (Some(known), Some(other)) => known.cmp(&other),
        _ => Ordering::Less,
    }
}
