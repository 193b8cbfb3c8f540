//! When each item of a queue is due.

use std::collections::BTreeMap;

use tokio::time::Instant;
use winddown_shared::{PodUid, PodUidMap};

use super::{Bucket, ItemOutcome, QueueCounts};
use winddown_shared::Backoff;

/// The items of a queue by the time they are due; those with the same time in order of arrival.
#[derive(Debug)]
pub(super) struct Schedule {
    due: BTreeMap<(Instant, u64), PodUid>,
    items: PodUidMap<Item>,
    /// Numbers the entries of `due`.
    number: u64,
    in_flight: usize,
    backoff: Backoff,
    bucket: Bucket,
}

#[derive(Debug)]
struct Item {
    backoff: Backoff,
    is: Is,
}

#[derive(Debug)]
enum Is {
    Waiting {
        at: (Instant, u64),
    },
    InFlight {
        /// When it is due again, if it was woken meanwhile.
        again: Option<Instant>,
        /// Whether its desired state has changed since it was taken.
        fresh: bool,
        forgotten: bool,
    },
}

impl Schedule {
    pub(super) fn new(backoff: Backoff, bucket: Bucket) -> Self {
        Self {
            due: BTreeMap::new(),
            items: PodUidMap::default(),
            number: 0,
            in_flight: 0,
            backoff,
            bucket,
        }
    }

    /// Makes an item due at `when`, unless it is due earlier.
    pub(super) fn wake(&mut self, uid: &PodUid, when: Instant, is_fresh: bool) {
        let Some(item) = self.items.get_mut(uid) else {
            let backoff = self.backoff.clone();
            return self.insert(uid.clone(), when, backoff);
        };
        match &mut item.is {
            Is::InFlight { again, fresh, forgotten } => {
                *again = Some(again.map_or(when, |at| at.min(when)));
                *fresh |= is_fresh;
                *forgotten = false;
            }
            Is::Waiting { at } => {
                if is_fresh {
                    item.backoff.reset();
                }
                if when < at.0 {
                    self.due.remove(at);
                    self.number += 1;
                    *at = (when, self.number);
                    self.due.insert(*at, uid.clone());
                }
            }
        }
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        match self.items.get_mut(uid).map(|item| &mut item.is) {
            Some(Is::InFlight { forgotten, again, .. }) => {
                *forgotten = true;
                *again = None;
            }
            Some(Is::Waiting { at }) => {
                self.due.remove(at);
                self.items.remove(uid);
            }
            None => {}
        }
    }

    /// Takes the first item that is due at `now`, which is in flight from then on.
    pub(super) fn take(&mut self, now: Instant) -> Option<PodUid> {
        let entry = self.due.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let uid = entry.remove();
        if let Some(item) = self.items.get_mut(&uid) {
            item.is = Is::InFlight { again: None, fresh: false, forgotten: false };
            self.in_flight += 1;
        }
        Some(uid)
    }

    /// When the first waiting item is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Handles the outcome of an item that was taken.
    pub(super) fn finish(&mut self, uid: &PodUid, outcome: ItemOutcome, now: Instant) {
        let Some(Item { mut backoff, is }) = self.items.remove(uid) else { return };
        self.in_flight -= 1;
        let Is::InFlight { again, fresh, forgotten: false } = is else { return };
        let next = match outcome {
            ItemOutcome::Done => None,
            ItemOutcome::At(at) => Some(at),
            ItemOutcome::Failed { after } => {
                let wait = backoff.next_delay();
                Some(now + wait.max(after.unwrap_or_default()).max(self.bucket.take(now)))
            }
        };
        if fresh || matches!(outcome, ItemOutcome::Done | ItemOutcome::At(_)) {
            backoff.reset();
        }
        let Some(at) = [next, again].into_iter().flatten().min() else { return };
        self.insert(uid.clone(), at, backoff);
    }

    pub(super) fn counts(&self) -> QueueCounts {
        QueueCounts { total: self.items.len(), waiting: self.due.len(), in_flight: self.in_flight }
    }

    fn insert(&mut self, uid: PodUid, when: Instant, backoff: Backoff) {
        self.number += 1;
        let at = (when, self.number);
        self.due.insert(at, uid.clone());
        self.items.insert(uid, Item { backoff, is: Is::Waiting { at } });
    }
}
