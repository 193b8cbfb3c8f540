//! The progress of a run, for status and progress bars.

use std::borrow::Cow;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use winddown_shared::InhibitorState;

use crate::{Group, Plan, Policy, RunPhase, RunRecord, UnitStop};

/// The progress of a run. Published through a watch channel, and updated in place for each pod and
/// step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The current phase.
    pub phase: ProgressPhase,
    /// The [epoch](InhibitorState::epoch) of the shutdown that the node was released for last; none before that.
    pub released: Option<u64>,
    /// When the signal arrived; none before the first run.
    pub started: Option<Instant>,
    /// Whether the runtime has not listed its pods yet, so that there may be more than are counted.
    pub pods_unknown: bool,
    /// When the last group's time is over.
    pub deadline: Option<Instant>,
    /// The groups of the current or last run.
    pub groups: Vec<GroupProgress>,
    /// The policy of the run that is under way, or that an earlier agent began and that may go on: one that is configured
    /// meanwhile applies to the next.
    pub policy: Option<Arc<Policy>>,
}

/// The phase of a run, as shown in its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressPhase {
    /// There has been no run yet.
    #[default]
    Idle,
    /// Groups are being stopped.
    Ending,
    /// The pods have stopped or the time is over. Only the report is left to do.
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
    /// The group's name for people, if it has one.
    pub name: Option<Cow<'static, str>>,
    /// The number of pods.
    pub pods: usize,
    /// The number of pods whose containers have stopped.
    pub ended: usize,
    /// The number of stopped pods that needed SIGKILL.
    pub forced: usize,
    /// The number of pods whose stop could not be confirmed, or that stay.
    pub failed: usize,
    /// When the group was requested to stop.
    pub started: Option<Instant>,
    /// When its pods had stopped or its time was over.
    pub finished: Option<Instant>,
}

// === impl Progress ===

impl Progress {
    /// Whether nothing is left to do for the stop of the agent's unit, or else for the shutdown that `login` announces, or
    /// for a run without one. The phase may be that of an earlier run.
    pub fn is_over(&self, login: &InhibitorState, is_unit_stop: bool) -> bool {
        match (is_unit_stop, login.preparing) {
            (true, _) => self.released == Some(UnitStop::EPOCH),
            (false, true) => self.released == Some(login.epoch),
            (false, false) => !matches!(self.phase, ProgressPhase::Ending | ProgressPhase::Ended),
        }
    }
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
    /// Creates a channel without readers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a receiver of the current progress and every change.
    pub fn subscribe(&self) -> watch::Receiver<Progress> {
        self.0.subscribe()
    }

    pub(crate) fn begin(&self, plan: &Plan, started: Instant) {
        let groups = plan.groups.iter().map(GroupProgress::new).collect();
        self.0.send_modify(|progress| {
            *progress = Progress {
                phase: ProgressPhase::Ending,
                released: None,
                started: Some(started),
                pods_unknown: false,
                deadline: started.checked_add(plan.deadline),
                groups,
                policy: progress.policy.take(),
            };
        });
    }

    /// Keeps the policy of a run that an earlier agent began, until the controller has decided what becomes of it. The unit
    /// may be stopped before that.
    pub fn found(&self, record: &RunRecord, configured: &Policy) {
        if record.phase != RunPhase::Cancelled {
            self.follow_policy(Some(Arc::new(Policy::of_run(&record.report, configured))));
        }
    }

    /// Keeps the policy of a run, or that there is none. No progress, so no reader is notified.
    pub(crate) fn follow_policy(&self, policy: Option<Arc<Policy>>) {
        self.0.send_if_modified(|progress| {
            progress.policy = policy;
            false
        });
    }

    /// The policy that terminates the pods if the node goes down now: the one that is `configured` or, if that stops no
    /// pods, the one of the run.
    pub fn policy_in_force(&self, configured: &Arc<Policy>) -> Arc<Policy> {
        let progress = self.0.borrow();
        let of_run = progress.policy.as_ref().filter(|_| !configured.is_enabled());
        Arc::clone(of_run.unwrap_or(configured))
    }

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

    /// The node may go down: for a notice, or for the login manager's shutdown of this epoch.
    pub(crate) fn released(&self, epoch: Option<u64>) {
        self.0.send_modify(|progress| {
            (progress.phase, progress.released) = (ProgressPhase::Released, epoch);
        });
    }

    pub(crate) fn group(&self, index: usize, change: impl FnOnce(&mut GroupProgress)) {
        self.0.send_modify(|progress| {
            if let Some(group) = progress.groups.get_mut(index) {
                change(group);
            }
        });
    }
}
