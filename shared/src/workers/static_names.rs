//! At most one started static pod per full name.
//!
//! Editing a static pod's manifest gives a new UID with the same full name. The new one waits until
//! the old one is finished, and the pods that wait start in the order in which they came.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::PodUid;

#[derive(Debug, Default)]
pub(super) struct StaticNames(HashMap<Arc<str>, Slot>);

#[derive(Debug, Default)]
struct Slot {
    holder: Option<PodUid>,
    waiting: VecDeque<PodUid>,
}

impl StaticNames {
    /// Notes that `uid` wants to run under `name`. Idempotent.
    pub(super) fn enqueue(&mut self, name: &Arc<str>, uid: &PodUid) {
        let slot = self.0.entry(name.clone()).or_default();
        if slot.holder.as_ref() != Some(uid) && !slot.waiting.contains(uid) {
            slot.waiting.push_back(uid.clone());
        }
    }

    /// Takes the name for `uid` if it is free and `uid` is first in line, or has it already.
    pub(super) fn try_start(&mut self, name: &Arc<str>, uid: &PodUid) -> bool {
        let Some(slot) = self.0.get_mut(name) else { return false };
        match &slot.holder {
            Some(holder) => holder == uid,
            None if slot.waiting.front() == Some(uid) => {
                slot.holder = slot.waiting.pop_front();
                true
            }
            None => false,
        }
    }

    /// `uid` is finished or gone. Returns who may try to start now.
    pub(super) fn leave(&mut self, name: &Arc<str>, uid: &PodUid) -> Option<PodUid> {
        let slot = self.0.get_mut(name)?;
        slot.waiting.retain(|u| u != uid);
        if slot.holder.as_ref() == Some(uid) {
            slot.holder = None;
        }
        let next = if slot.holder.is_none() { slot.waiting.front().cloned() } else { None };
        if slot.holder.is_none() && slot.waiting.is_empty() {
            self.0.remove(name);
        }
        next
    }

    /// Who has started under `name`.
    pub(super) fn holder(&self, name: &str) -> Option<&PodUid> {
        self.0.get(name)?.holder.as_ref()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
