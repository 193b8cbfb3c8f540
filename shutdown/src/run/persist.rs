//! Persists the progress of a run.

use std::time::Duration;

use tokio::time::Instant;

use super::ShutdownRun;
use crate::EndingPods;
use crate::{PodEnd, RunPhase};

/// The shortest interval between two notes of ends, which are persisted together.
const MIN_NOTE_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct RecordNotes {
    /// When to persist the ends seen since the last note.
    pub(super) due: Option<Instant>,
    last: Instant,
    /// Whether the record shows that the run waits for more pods.
    pub(super) has_waited: bool,
}

impl RecordNotes {
    pub(super) fn new(started: Instant) -> Self {
        Self { due: None, last: started, has_waited: false }
    }
}

impl<K: EndingPods> ShutdownRun<'_, K> {
    /// Persists the run's progress.
    pub(super) async fn note(&mut self, phase: RunPhase) {
        self.is_noted();
        self.keep_work();
        if let Some(journal) = &mut self.params.journal {
            journal.first_group = self.first_group;
            journal.note(phase, &self.groups).await;
        }
    }

    /// Schedules a note of an end. The next agent could not determine it itself: a pod that is gone may have been
    /// killed, and after a power cut all pods are gone. An exit can wait, because the last one of a group is noted with
    /// the end of the group.
    pub(super) fn has_to_note(&mut self, end: PodEnd) {
        if self.params.journal.is_some() {
            let wait = if end == PodEnd::Killed { Duration::ZERO } else { MIN_NOTE_INTERVAL };
            let at = (self.notes.last + MIN_NOTE_INTERVAL).max(Instant::now() + wait);
            self.notes.due = Some(self.notes.due.map_or(at, |known| known.min(at)));
        }
    }

    /// Persists the ends that were observed, in the background.
    pub(super) fn note_ends(&mut self) {
        self.is_noted();
        if let Some(journal) = &mut self.params.journal {
            journal.note_ends(&self.groups);
        }
    }

    /// Adds the work of plug-ins to the next note.
    pub(super) fn keep_work(&mut self) {
        if let Some(journal) = &mut self.params.journal {
            journal.work.clone_from(&self.work.reports);
        }
    }

    /// Marks pending changes as persisted.
    fn is_noted(&mut self) {
        self.notes.due = None;
        self.notes.last = Instant::now();
    }
}
