//! At most one started static pod per full name.
//!
//! An edited static pod manifest yields a new UID with the same full name. The new pod waits until
//! the old one is finished, and waiting pods start in the order in which they came.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::PodUid;

/// The holder and the waiting pods of each name. An unused name takes no memory.
#[derive(Debug, Default)]
pub(super) struct StaticNames(HashMap<Arc<str>, Slot>);

#[derive(Debug, Default)]
struct Slot {
    holder: Option<PodUid>,
    /// Keyed by the generation of their records, which is the order in which they came.
    waiting: BTreeMap<u64, PodUid>,
}

impl StaticNames {
    /// Queues `uid`, whose record is new, for `name`.
    pub(super) fn enqueue(&mut self, name: &Arc<str>, uid: &PodUid, generation: u64) {
        self.0.entry(name.clone()).or_default().waiting.insert(generation, uid.clone());
    }

    /// Takes the name for `uid` if it is free and `uid` is first in line. Returns whether `uid` holds the name.
    pub(super) fn try_start(&mut self, name: &Arc<str>, uid: &PodUid) -> bool {
        let Some(slot) = self.0.get_mut(name) else { return false };
        if let Some(holder) = &slot.holder {
            return holder == uid;
        }
        let first = slot.waiting.first_entry().filter(|entry| entry.get() == uid);
        slot.holder = first.map(|entry| entry.remove());
        slot.holder.is_some()
    }

    /// Releases the name, as `uid` is finished or gone. Returns the UID that may try to start now.
    pub(super) fn leave(
        &mut self,
        name: &Arc<str>,
        uid: &PodUid,
        generation: u64,
    ) -> Option<PodUid> {
        let slot = self.0.get_mut(name)?;
        slot.waiting.remove(&generation);
        if slot.holder.as_ref() == Some(uid) {
            slot.holder = None;
        }
        if slot.holder.is_some() {
            return None;
        }
        let next = slot.waiting.first_key_value().map(|(_, uid)| uid.clone());
        if next.is_none() {
            self.0.remove(name);
        }
        next
    }

    /// The UID that has started under `name`.
    pub(super) fn holder(&self, name: &str) -> Option<&PodUid> {
        self.0.get(name)?.holder.as_ref()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
