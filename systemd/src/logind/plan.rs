//! Decides the next step, and what each answer means. No I/O, no clock.
//!
//! The order ensures that nothing is missed: signals are received before the state is read, the
//! state is read before and after the lock is taken, and the delay is raised last, with the lock
//! already held. `PrepareForShutdown` only triggers a read of the state; `PreparingForShutdown`
//! decides. So the order in which signals and changes of properties arrive does not matter, nor
//! which of them a version of systemd sends: during a shutdown the state is also read periodically.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{ShutdownKind, ShutdownRequest};

use super::session::{KindRead, Listed, LogindEvent};

/// How often the state is read while a shutdown is under way. systemd 256 and later cancel a
/// shutdown without a signal, and no pod may be stopped for a shutdown that was cancelled.
pub(super) const WHILE_PREPARING: Duration = Duration::from_millis(500);

/// One call, or one sequence of calls, to the login manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogindStep {
    /// Read `PreparingForShutdown`.
    ReadPreparing,
    /// Read `InhibitDelayMaxUSec`.
    ReadDelay,
    /// Take a lock.
    Inhibit,
    /// Check that the new lock is listed.
    VerifyNew,
    /// Check that the lock held before is still listed.
    VerifyHeld,
    /// Write or remove the drop-in, reload, and read the delay until it settles.
    RaiseDelay,
    /// Read who requested the shutdown, as far as logind knows.
    ReadRequest,
    /// Read which shutdown is scheduled.
    ReadScheduled,
}

impl LogindStep {
    /// Returns the status text while this step is under way.
    pub(super) fn waits_for(self) -> &'static str {
        match self {
            LogindStep::ReadPreparing => {
                "waiting for logind to say whether a shutdown is under way"
            }
            LogindStep::ReadDelay | LogindStep::RaiseDelay => {
                "waiting for logind to report InhibitDelayMaxSec"
            }
            LogindStep::Inhibit => "waiting for logind to grant the lock",
            LogindStep::VerifyNew | LogindStep::VerifyHeld => "waiting for logind to list the lock",
            LogindStep::ReadRequest => "waiting for logind to report who asked for the shutdown",
            LogindStep::ReadScheduled => "waiting for logind to report scheduled shutdowns",
        }
    }
}

/// A signal that the property has not confirmed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignalHint {
    begins: bool,
    kind: ShutdownKind,
    at: Instant,
    /// Whether a signal of a cancel came before, also since the last read: it was that of another shutdown.
    is_another: bool,
}

/// Everything known about the login manager and the lock. Survives reconnects.
// Over the limit because it is the snapshot that the next step is a function of.
#[derive(Clone, Debug)]
pub(super) struct LogindFacts {
    /// Whether `PreparingForShutdown` must be read.
    pub(super) unread: bool,
    /// The signal that triggered the read, if any.
    pub(super) hint: Option<SignalHint>,
    /// When a property first changed since the last read of the state.
    changed: Option<Instant>,
    /// Whether a shutdown is under way.
    pub(super) preparing: bool,
    /// The number of shutdowns seen.
    pub(super) epoch: u64,
    /// When the current shutdown began.
    pub(super) since: Option<Instant>,
    /// How the node goes down.
    pub(super) kind: ShutdownKind,
    /// The kind that the login manager had for a shutdown at once while none was under way: it refused that one, and this
    /// says nothing of the next.
    pub(super) left_over: ShutdownKind,
    /// Who requested the shutdown, once read.
    pub(super) request: Option<Arc<ShutdownRequest>>,
    pub(super) held: bool,
    /// Whether the login manager lists the held lock.
    pub(super) held_listed: bool,
    /// Whether the list must be read again, although nothing suggests that the lock is lost.
    pub(super) verify_due: bool,
    /// Whether an earlier process of this agent took the held lock.
    pub(super) inherited: bool,
    /// Whether a lock was granted that is not verified yet.
    pub(super) fresh: bool,
    /// Whether a new lock must be taken even if one is held.
    pub(super) retake: bool,
    /// Whether the lock was released in this shutdown.
    pub(super) released: bool,
    /// `InhibitDelayMaxSec`, once read in this session.
    pub(super) delay: Option<Duration>,
    /// The delay that the shutdown plan needs.
    pub(super) wanted: Duration,
    /// Whether raising the delay was tried since logind, its delay or `wanted` last changed.
    pub(super) raised: bool,
    /// Whether the files that set the delay must be checked again, because other packages may change theirs.
    pub(super) files_due: bool,
    /// Whether it must be read which shutdown is scheduled.
    pub(super) schedule_unread: bool,
    /// Whether the login manager left the bus. It is not called then, because a call would start it
    /// again although an administrator may have stopped it.
    pub(super) gone: bool,
}

/// The meaning of a value of `PreparingForShutdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreparingMeaning {
    /// Nothing new.
    Same,
    Begins,
    /// The shutdown was called off.
    Ends,
    /// The property contradicts a signal.
    Contradicted,
}

impl LogindFacts {
    /// Creates the initial state; `inherited` says whether the process inherited a lock.
    pub(super) fn new(wanted: Duration, inherited: bool) -> Self {
        Self {
            unread: true,
            hint: None,
            changed: None,
            preparing: false,
            epoch: 0,
            since: None,
            kind: ShutdownKind::Unknown,
            left_over: ShutdownKind::Unknown,
            request: None,
            held: inherited,
            held_listed: false,
            verify_due: false,
            inherited,
            fresh: false,
            // The inherited lock carries the old process's ID; take one with our own.
            retake: inherited,
            released: false,
            delay: None,
            wanted,
            raised: false,
            files_due: false,
            schedule_unread: true,
            gone: false,
        }
    }

    /// Discards what was read before, after a new connection or a restart of the login manager.
    pub(super) fn forget_session(&mut self) {
        self.unread = true;
        self.held_listed = false;
        self.fresh = false;
        self.delay = None;
        self.raised = false;
        self.schedule_unread = true;
        // A shutdown may have been cancelled and another have begun.
        self.request = None;
        self.gone = false;
    }

    /// Schedules a periodic check of everything.
    pub(super) fn recheck(&mut self) {
        self.unread = true;
        self.verify_due = true;
        self.read_delay_again();
        self.files_due = true;
        self.schedule_unread = true;
    }

    /// Schedules a look at the delay. Returns false if the delay that was read is the one that counts.
    pub(super) fn read_delay_again(&mut self) -> bool {
        // During a shutdown the login manager's timer runs with the delay that it had at the start.
        if !self.preparing {
            self.delay = None;
        }
        !self.preparing && !self.gone
    }

    /// Whether the shutdown may be cancelled without a signal, so that the state must be polled.
    pub(super) fn may_be_called_off(&self) -> bool {
        self.preparing && !self.gone
    }

    pub(super) fn observe(&mut self, heard: LogindEvent) {
        match heard {
            LogindEvent::Prepare { begins, kind, at } => {
                // Newer login managers send two signals for one event, the one with the kind first:
                // keep its kind and its arrival time.
                let earlier = self.hint.filter(|hint| hint.begins == begins);
                self.hint = Some(SignalHint {
                    begins,
                    kind: match earlier {
                        Some(hint) if kind == ShutdownKind::Unknown => hint.kind,
                        _ => kind,
                    },
                    at: earlier.map_or(at, |hint| hint.at),
                    is_another: begins
                        && self.hint.is_some_and(|hint| !hint.begins || hint.is_another),
                });
                self.unread = true;
            }
            LogindEvent::Changed { at } => {
                self.changed.get_or_insert(at);
                self.unread = true;
                self.schedule_unread = true;
            }
            LogindEvent::Gone | LogindEvent::Back => {
                self.forget_session();
                // Its successor knows nothing of what it has announced.
                (self.hint, self.changed) = (None, None);
                self.gone = heard == LogindEvent::Gone;
            }
        }
    }

    pub(super) fn next_step(&self) -> Option<LogindStep> {
        if self.gone {
            None
        } else if self.unread {
            Some(LogindStep::ReadPreparing)
        } else if self.delay.is_none() {
            Some(LogindStep::ReadDelay)
        } else if self.fresh {
            Some(LogindStep::VerifyNew)
        } else if !self.preparing && (!self.held || self.retake) {
            Some(LogindStep::Inhibit)
        } else if self.held && (self.verify_due || !self.held_listed) {
            Some(LogindStep::VerifyHeld)
        } else if !self.preparing && (!self.raised || self.files_due) {
            Some(LogindStep::RaiseDelay)
        } else if !self.preparing && self.schedule_unread {
            Some(LogindStep::ReadScheduled)
        } else if self.preparing && self.request.is_none() {
            // Last: nothing depends on it.
            Some(LogindStep::ReadRequest)
        } else {
            None
        }
    }

    /// Records the value of `PreparingForShutdown`, read at `now`.
    pub(super) fn preparing_is(&mut self, value: bool, now: Instant) -> PreparingMeaning {
        self.unread = false;
        let hint = self.hint.take();
        let agreeing = hint.filter(|hint| hint.begins == value);
        // logind's timer starts after its signal. systemd 257 reports a change before it, and then asks process 1, which may
        // be busy.
        let changed = self.changed.take();
        let told = agreeing.map(|hint| hint.at).or(changed);
        let is_another = agreeing.is_some_and(|hint| hint.is_another);
        match (self.preparing && !is_another, value) {
            (false, true) => {
                (self.preparing, self.request) = (true, None);
                self.epoch += 1;
                // It may have changed since, and no signal says so.
                self.delay = None;
                self.since = Some(told.unwrap_or(now));
                self.kind = agreeing.map_or(ShutdownKind::Unknown, |hint| hint.kind);
                self.released = false;
                PreparingMeaning::Begins
            }
            (true, false) => {
                self.preparing = false;
                self.since = None;
                self.kind = ShutdownKind::Unknown;
                self.request = None;
                self.released = false;
                self.retake = true;
                self.schedule_unread = true;
                PreparingMeaning::Ends
            }
            _ if hint.is_some() && agreeing.is_none() => PreparingMeaning::Contradicted,
            (true, true) => {
                // Perhaps of another shutdown, and the cancel before it was not announced.
                if let Some(hint) = agreeing.filter(|hint| hint.kind != ShutdownKind::Unknown) {
                    (self.kind, self.request) = (hint.kind, None);
                }
                PreparingMeaning::Same
            }
            (false, false) => {
                // The shutdown was cancelled before we knew of it: logind may have dropped the lock.
                self.retake |= agreeing.is_some();
                PreparingMeaning::Same
            }
        }
    }

    /// Records the kind that was read after the shutdown began. What is scheduled counts for less than the signal.
    pub(super) fn kind_is(&mut self, read: KindRead) {
        match read {
            KindRead::Announced(ShutdownKind::Unknown) => {}
            KindRead::Announced(kind) => self.kind = kind,
            KindRead::Scheduled(kind) => {
                if self.kind == ShutdownKind::Unknown && kind != self.left_over {
                    self.kind = kind;
                }
            }
        }
    }

    /// Records whether the new lock is listed. Returns false if it is not and must be dropped.
    pub(super) fn new_lock_is(&mut self, listed: Listed) -> bool {
        self.fresh = false;
        let there = listed != Listed::No;
        if there {
            self.held = true;
            self.held_listed = true;
            self.verify_due = false;
            self.inherited = false;
            self.retake = false;
            // A shutdown may have begun between the last read and the grant.
            self.unread = true;
        }
        there
    }

    /// Records whether the held lock is listed. Returns false if it is not and must be replaced.
    pub(super) fn held_lock_is(&mut self, listed: Listed) -> bool {
        let there = match listed {
            Listed::Ours | Listed::Unknown => true,
            // During a shutdown no new lock is granted, so keep this one.
            Listed::UnderAnotherPid => self.inherited || self.preparing,
            Listed::No => false,
        };
        self.held_listed = there;
        self.verify_due = false;
        self.retake |= !there;
        if !there && self.preparing {
            self.held = false;
        }
        there
    }

    /// Records that the lock was released.
    pub(super) fn release(&mut self) {
        self.released = true;
        self.held = false;
        self.held_listed = false;
        self.inherited = false;
        self.fresh = false;
    }

    /// Records an attempt to raise the delay.
    pub(super) fn tried_to_raise(&mut self) {
        self.raised = true;
        self.files_due = false;
    }

    /// Changes the wanted delay.
    pub(super) fn want(&mut self, wanted: Duration) {
        self.wanted = wanted;
        self.raised = false;
    }
}

#[cfg(test)]
mod tests;
