//! The progress of a run, for status and progress bars.

use std::borrow::Cow;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::{Group, Plan};

/// The progress of a run. Published through a watch channel; updated in place, once per pod and
/// step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The current phase.
    pub phase: ProgressPhase,
    /// When the signal came; none before the first run.
    pub started: Option<Instant>,
    /// The runtime has not listed its pods yet: there may be more than are counted.
    pub pods_unknown: bool,
    /// When the last group's time is over.
    pub deadline: Option<Instant>,
    /// The groups of the current or last run.
    pub groups: Vec<GroupProgress>,
}

/// The current phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressPhase {
    /// No run yet.
    #[default]
    Idle,
    /// Groups are being ended.
    Ending,
    /// The pods are ended or the time is over; what is left is the report.
    Ended,
    /// The node may go down.
    Released,
    /// The run was called off.
    Cancelled,
}

/// The progress of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupProgress {
    /// The group's priority.
    pub priority: i32,
    /// Its name for people, if it has one.
    pub name: Option<Cow<'static, str>>,
    /// Its pods.
    pub pods: usize,
    /// Those whose containers are gone.
    pub ended: usize,
    /// Those of `ended` that needed SIGKILL.
    pub forced: usize,
    /// Those whose end could not be confirmed.
    pub failed: usize,
    /// When it was asked to end.
    pub started: Option<Instant>,
    /// When its pods were gone or its time over.
    pub finished: Option<Instant>,
}

// === impl GroupProgress ===

impl GroupProgress {
    fn new(group: &Group) -> Self {
        Self {
            priority: group.priority,
            name: group.name(),
            pods: group.pods.len(),
            ended: 0,
            forced: 0,
            failed: 0,
            started: None,
            finished: None,
        }
    }
}

/// The writing end of a [`Progress`]; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ProgressSender(Arc<watch::Sender<Progress>>);

// === impl ProgressSender ===

impl ProgressSender {
    /// A channel without readers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The reading end: where things stand, and every change.
    pub fn subscribe(&self) -> watch::Receiver<Progress> {
        self.0.subscribe()
    }

    pub(crate) fn begin(&self, plan: &Plan, started: Instant) {
        let groups = plan.groups.iter().map(GroupProgress::new).collect();
        self.0.send_replace(Progress {
            phase: ProgressPhase::Ending,
            started: Some(started),
            pods_unknown: false,
            deadline: started.checked_add(plan.deadline),
            groups,
        });
    }

    /// One more group, which is the last.
    pub(crate) fn add_group(&self, group: &Group) {
        self.0.send_modify(|progress| progress.groups.push(GroupProgress::new(group)));
    }

    pub(crate) fn pods_unknown(&self, unknown: bool) {
        self.0.send_if_modified(|progress| {
            std::mem::replace(&mut progress.pods_unknown, unknown) != unknown
        });
    }

    pub(crate) fn move_deadline(&self, deadline: Instant) {
        self.0.send_modify(|progress| progress.deadline = Some(deadline));
    }

    pub(crate) fn phase(&self, phase: ProgressPhase) {
        self.0.send_modify(|progress| progress.phase = phase);
    }

    pub(crate) fn group(&self, index: usize, change: impl FnOnce(&mut GroupProgress)) {
        self.0.send_modify(|progress| {
            if let Some(group) = progress.groups.get_mut(index) {
                change(group);
            }
        });
    }
}
