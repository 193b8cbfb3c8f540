//! Tells events of a metadata service that still lie ahead from those of an earlier boot.
//!
//! A service keeps listing an event while the machine that it rebooted comes up again. If the event
//! has an earliest time, that is compared with the time of the boot. Events that have started, and
//! Google's values, have no time: they are over if they were seen before the machine came up. So the
//! listed events are kept on disk across boots, and forgotten once they are no longer listed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use crate::Announcement;
use crate::kept::KeptFile;

#[cfg(test)]
mod tests;

/// Services list a handful of events.
const MAX_KEPT_EVENTS: usize = 64;
/// In characters.
const LONGEST_ID: usize = 128;

/// Stored in place of a boot id for an event that was over when it was first listed.
const EARLIER: &str = "earlier";

/// One event that ends this machine, as a service lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CloudEvent {
    /// The service's id for the event.
    pub(super) id: String,
    /// The earliest time of the event; none once it has started.
    pub(super) not_before: Option<WallTime>,
    /// The announcement to publish for it.
    pub(super) announced: Announcement,
}

/// The events that a service lists, each with the boot in which it was last seen to lie ahead.
#[derive(Debug)]
pub(super) struct SeenEvents {
    file: KeptFile,
    boot_id: String,
    boots: BTreeMap<String, String>,
    /// Whether the last write failed, so that the disk does not have `boots` yet.
    refused: bool,
    /// The event that was last ignored, to log each only once.
    passed_over: Option<String>,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct StoredEvents {
    version: u32,
    /// Boot ids by event id.
    events: BTreeMap<String, String>,
}

impl SeenEvents {
    /// Reads `file`. With an empty `boot_id`, nothing is written to it.
    pub(super) async fn open(file: PathBuf, boot_id: &str) -> Self {
        let file = KeptFile::at(file);
        let kept = file.load::<StoredEvents>().await.unwrap_or_else(|why| {
            tracing::warn!(
                "{}: {why}; an event that an earlier boot handled may be handled again",
                file.path().display()
            );
            None
        });
        let boots = kept.filter(|kept| kept.version == 1).map(|kept| kept.events);
        let boots = boots.unwrap_or_default();
        Self { file, boot_id: boot_id.to_owned(), boots, refused: false, passed_over: None }
    }

    /// Records the events listed now, on a machine that came up at `booted`, and stores what a later boot
    /// needs to know.
    pub(super) async fn take(&mut self, listed: &[CloudEvent], booted: Option<WallTime>) {
        if !self.note(listed, booted) && !self.refused {
            return;
        }
        let kept = StoredEvents { version: 1, events: self.boots.clone() };
        let stored = self.file.store((!self.boots.is_empty()).then_some(kept)).await;
        if let Err(why) = &stored
            && !self.refused
        {
            tracing::warn!(
                "{}: {why}; retrying; after the next boot these events may be handled again",
                self.file.path().display()
            );
        }
        self.refused = stored.is_err();
    }

    /// Returns the earliest listed event that still lies ahead of a machine that came up at `booted`.
    pub(super) fn earliest<'a>(
        &mut self,
        listed: &'a [CloudEvent],
        booted: Option<WallTime>,
    ) -> Option<&'a CloudEvent> {
        let (ahead, over): (Vec<_>, Vec<_>) =
            listed.iter().partition(|event| self.is_ahead(event, booted));
        let passed_over = over.first().map(|event| event.id.clone());
        if passed_over != self.passed_over
            && let Some(event) = over.first()
        {
            tracing::info!(
                event = event.id,
                "ignored events that an earlier boot handled: {}",
                event.announced.text
            );
        }
        self.passed_over = passed_over;
        ahead.into_iter().min_by_key(|event| event.not_before)
    }

    fn is_ahead(&self, event: &CloudEvent, booted: Option<WallTime>) -> bool {
        match (event.not_before, booted) {
            (Some(at), Some(booted)) => at >= booted,
            (Some(_), None) => true,
            (None, _) => self.boots.get(&key(event)).is_none_or(|boot| *boot == self.boot_id),
        }
    }

    /// Updates `boots`. Returns whether anything changed.
    fn note(&mut self, listed: &[CloudEvent], booted: Option<WallTime>) -> bool {
        if self.boot_id.is_empty() {
            return false;
        }
        let keys: Vec<String> = listed.iter().map(key).collect();
        let before = self.boots.clone();
        self.boots.retain(|kept, _| keys.contains(kept));
        for (event, key) in listed.iter().zip(keys) {
            let known = self.boots.contains_key(&key);
            let ahead = self.is_ahead(event, booted);
            // An event that lies ahead and has not started will start in this boot.
            let will_start = ahead && event.not_before.is_some();
            if will_start || (!known && self.boots.len() < MAX_KEPT_EVENTS) {
                let boot = if ahead { self.boot_id.as_str() } else { EARLIER };
                self.boots.insert(key, boot.to_owned());
            }
        }
        self.boots != before
    }
}

fn key(event: &CloudEvent) -> String {
    event.id.chars().take(LONGEST_ID).collect()
}
