//! One pod's place in the outbox.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use winddown_shared::{Pod, PodLabel};

use crate::status::patch::{BY_NODE, DISRUPTION_TARGET};
use winddown_shared::Backoff;

/// What others change back and forth is put right at once, then ever more slowly.
const REASSERT: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));
/// After so long without a change by others the next one is put right at once again.
const PEACE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) pod: PodLabel,
    /// The latest status; none while only the API has spoken of the pod.
    pub(super) said: Option<LastReported>,
    /// The pod as the API last had it, as far as is known.
    pub(super) in_api: Option<Pod>,
    /// The turn of the latest status that the API has.
    pub(super) told: u64,
    pub(super) place: Place,
    /// Something changed while a request is under way.
    pub(super) dirty: bool,
    /// Between two attempts.
    pub(super) backoff: Backoff,
    /// Between two times that it is said again although nothing is new.
    reassert: Backoff,
    reassert_from: Option<Instant>,
    /// The patch that the server has answered and not taken over.
    pub(super) not_taken: Option<Value>,
    /// The turn of the status that is on disk.
    pub(super) on_disk: Option<u64>,
    /// The turn of the last word that is on disk, or could not be put there.
    pub(super) kept_turn: u64,
    /// That the server does not want the status was said.
    pub(super) complained: bool,
    waiters: Vec<(u64, oneshot::Sender<()>)>,
}

/// A status that was submitted.
#[derive(Clone, Debug)]
pub(super) struct LastReported {
    /// Which of all submitted ones.
    pub(super) turn: u64,
    pub(super) status: Arc<api::PodStatus>,
    pub(super) last: bool,
    pub(super) generation: Option<i64>,
}

/// Where a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing is to be done.
    Idle,
    /// It goes to the disk first.
    Keeping,
    /// In line, under this key.
    Ready((Class, u64)),
    /// Not before a time, under this key.
    Later((Instant, u64), Why),
    /// A request is under way, of this ticket.
    InFlight(u64),
}

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Kept from before the agent started.
    Kept,
    /// Nothing of the pod runs any more.
    Last,
    /// The pod is leaving: the node ends it or goes down.
    Leaving,
    /// Everything else.
    Usual,
}

/// Why a pod waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The API does not answer.
    Silence,
    /// The server said when.
    Asked,
    /// Anything else.
    Other,
}

// === impl Entry ===

impl Entry {
    pub(super) fn new(pod: PodLabel) -> Self {
        Self {
            pod,
            said: None,
            in_api: None,
            told: 0,
            place: Place::Idle,
            dirty: false,
            backoff: Backoff::EAGER,
            reassert: REASSERT,
            reassert_from: None,
            not_taken: None,
            on_disk: None,
            kept_turn: 0,
            complained: false,
            waiters: Vec::new(),
        }
    }

    /// The latest turn.
    pub(super) fn turn(&self) -> u64 {
        self.said.as_ref().map_or(0, |said| said.turn)
    }

    pub(super) fn is_delivered(&self) -> bool {
        self.told >= self.turn()
    }

    /// Whether what is said is a last word.
    pub(super) fn is_last(&self) -> bool {
        self.said.as_ref().is_some_and(|said| said.last)
    }

    pub(super) fn class(&self) -> Class {
        match &self.said {
            Some(said) if !self.is_delivered() => said.class(),
            _ => Class::Usual,
        }
    }

    /// A new status: what was in the way of the old one need not be in its way.
    pub(super) fn says(&mut self, said: LastReported) {
        self.said = Some(said);
        self.not_taken = None;
        self.complained = false;
        self.backoff = Backoff::EAGER;
        self.reassert.reset();
        self.reassert_from = None;
    }

    /// When a foreign change may be reverted.
    pub(super) fn may_reassert(&mut self, now: Instant) -> Instant {
        if self.reassert_from.is_some_and(|from| now.saturating_duration_since(from) > PEACE) {
            self.reassert.reset();
        }
        self.reassert_from.map_or(now, |from| from.max(now))
    }

    pub(super) fn has_reasserted(&mut self, now: Instant) {
        self.reassert_from = Some(now + self.reassert.after_failure(None));
    }

    /// Takes note of the pod in the API; says whether it is another than was known.
    pub(super) fn note_in_api(&mut self, pod: &Pod) -> bool {
        let order = self.in_api.as_ref().map(|known| by_version(known, pod));
        // One of the same version replaces ours too: the caller keeps it anyway.
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

    /// The API has the status of `turn`.
    pub(super) fn acknowledge(&mut self, turn: u64) {
        self.told = self.told.max(turn);
        for (_, waiter) in self.waiters.extract_if(.., |(turn, _)| *turn <= self.told) {
            // No caller waits any more.
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

/// How the version of `known` is to that of `other`. Versions that are no numbers tell only whether
/// they are the same.
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
