//! The times at which pods have to be checked again.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::PodUid;

/// Pods by the time they are due. The second part of the key distinguishes pods that are due at the same time.
#[derive(Debug, Default)]
pub(super) struct Timetable {
    entries: BTreeMap<Key, PodUid>,
    counter: u64,
}

pub(super) type Key = (Instant, u64);

impl Timetable {
    /// Schedules the pod at `at`, unless it is already due earlier; `due` is its current key.
    /// Returns whether it is now the first entry.
    pub(super) fn no_later_than(
        &mut self,
        at: Instant,
        uid: &PodUid,
        due: &mut Option<Key>,
    ) -> bool {
        if due.is_some_and(|(earlier, _)| earlier <= at) {
            return false;
        }
        self.counter += 1;
        let key = (at, self.counter);
        if let Some(later) = due.replace(key) {
            self.entries.remove(&later);
        }
        self.entries.insert(key, uid.clone());
        self.entries.first_key_value().is_some_and(|(first, _)| *first == key)
    }

    pub(super) fn remove(&mut self, due: Option<Key>) {
        if let Some(key) = due {
            self.entries.remove(&key);
        }
    }

    /// Takes the next pod that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<PodUid> {
        let first = self.entries.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    /// When the next pod is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }
}
