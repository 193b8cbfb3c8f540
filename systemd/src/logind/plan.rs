//! What to do next, and what an answer means. No I/O, no clock.
//!
//! The order is fixed by what can be missed: the signals are heard before the state is read, the
//! state is read before and after the lock is taken, and the delay is raised last, with the lock
//! already held. `PrepareForShutdown` only makes the state be read; `PreparingForShutdown` decides.
//! So it does not matter in which order signals and changes of properties arrive, nor which of them
//! a version of systemd sends: while a shutdown is under way the state is also read without any.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{ShutdownKind, ShutdownRequest};

use super::session::{Listed, LogindEvent};

/// How often the state is read while a shutdown is under way. systemd 256 and later call one off
/// without a signal, and no pod may be asked to end for a shutdown that no longer is.
pub(super) const WHILE_PREPARING: Duration = Duration::from_millis(500);

/// One call, or one sequence of calls, to the login manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read `PreparingForShutdown`.
    ReadPreparing,
    /// Read `InhibitDelayMaxUSec`.
    ReadDelay,
    /// Take a lock.
    Inhibit,
    /// Look for the new lock in the list.
    VerifyNew,
    /// Look for the lock we already had in the list.
    VerifyHeld,
    /// Write or remove the drop-in, reload, read the delay until it settles.
    RaiseDelay,
    /// Read what is known of who wanted the shutdown.
    ReadRequest,
}

impl Step {
    /// What a person reads while this step is under way.
    pub(super) fn waits_for(self) -> &'static str {
        match self {
            Step::ReadPreparing => "waiting for logind to say whether a shutdown is under way",
            Step::ReadDelay | Step::RaiseDelay => "waiting for logind to report InhibitDelayMaxSec",
            Step::Inhibit => "waiting for logind to grant the lock",
            Step::VerifyNew | Step::VerifyHeld => "waiting for logind to list the lock",
            Step::ReadRequest => "waiting for logind to report who asked for the shutdown",
        }
    }
}

/// A signal whose confirmation is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    begins: bool,
    kind: ShutdownKind,
    at: Instant,
}

/// What is known. Survives reconnects.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// `PreparingForShutdown` must be read.
    pub(super) unread: bool,
    /// The signal that makes it be read, if one does.
    pub(super) hint: Option<Hint>,
    /// The first change of a property since the state was read last.
    changed: Option<Instant>,
    /// A shutdown is under way.
    pub(super) preparing: bool,
    /// Shutdowns seen.
    pub(super) epoch: u64,
    /// When this one began.
    pub(super) since: Option<Instant>,
    /// How the node goes down.
    pub(super) kind: ShutdownKind,
    /// What was read of who wanted it.
    pub(super) request: Option<Arc<ShutdownRequest>>,
    /// A lock is held.
    pub(super) held: bool,
    /// It is in the login manager's list.
    pub(super) held_listed: bool,
    /// The list must be read again, although nothing speaks against the lock.
    pub(super) verify_due: bool,
    /// It was taken by an earlier process of this agent.
    pub(super) inherited: bool,
    /// A lock was granted and is not verified yet.
    pub(super) fresh: bool,
    /// A new lock is due even if one is held.
    pub(super) retake: bool,
    /// The lock was given back in this shutdown.
    pub(super) released: bool,
    /// `InhibitDelayMaxSec`, once read in this session.
    pub(super) delay: Option<Duration>,
    /// The delay to have.
    pub(super) wanted: Duration,
    /// Raising the delay was tried since logind, its delay or the wish last changed.
    pub(super) raised: bool,
    /// The files that set the delay must be looked at again: other packages have theirs too.
    pub(super) files_due: bool,
    /// The login manager left the bus. It is not called, as that would start it behind the back of
    /// the party that stopped it.
    pub(super) gone: bool,
}

/// What an answer turned out to mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Nothing new.
    Same,
    /// A shutdown begins.
    Begins,
    /// The shutdown was called off.
    Ends,
    /// A signal said what the property denies.
    Contradicted,
}

impl Facts {
    /// Nothing known; `inherited` says that a lock came with the process.
    pub(super) fn new(wanted: Duration, inherited: bool) -> Self {
        Self {
            unread: true,
            hint: None,
            changed: None,
            preparing: false,
            epoch: 0,
            since: None,
            kind: ShutdownKind::Unknown,
            request: None,
            held: inherited,
            held_listed: false,
            verify_due: false,
            inherited,
            fresh: false,
            // The inherited lock carries the old process's id; one of our own replaces it.
            retake: inherited,
            released: false,
            delay: None,
            wanted,
            raised: false,
            files_due: false,
            gone: false,
        }
    }

    /// A new connection, or a new login manager: what was read before may no longer hold.
    pub(super) fn forget_session(&mut self) {
        self.unread = true;
        self.held_listed = false;
        self.fresh = false;
        self.delay = None;
        self.raised = false;
        self.gone = false;
    }

    /// Time to look whether everything still is as it was.
    pub(super) fn recheck(&mut self) {
        self.unread = true;
        self.verify_due = true;
        self.delay = None;
        self.files_due = true;
        self.gone = false;
    }

    /// Whether the state is to be read again soon without any event.
    pub(super) fn may_be_called_off(&self) -> bool {
        self.preparing && !self.gone
    }

    /// Takes what was heard.
    pub(super) fn observe(&mut self, heard: LogindEvent) {
        match heard {
            LogindEvent::Prepare { begins, kind, at } => {
                // Newer login managers send two signals for one event, the one with the kind
                // first: keep its kind and its earlier arrival.
                let earlier = self.hint.filter(|hint| hint.begins == begins);
                self.hint = Some(Hint {
                    begins,
                    kind: match earlier {
                        Some(hint) if kind == ShutdownKind::Unknown => hint.kind,
                        _ => kind,
                    },
                    at: earlier.map_or(at, |hint| hint.at),
                });
                self.unread = true;
            }
            LogindEvent::Changed { at } => {
                self.changed.get_or_insert(at);
                self.unread = true;
            }
            LogindEvent::Gone => {
                self.forget_session();
                self.gone = true;
            }
            LogindEvent::Back => self.forget_session(),
        }
    }

    /// The next step, if anything is left to do.
    pub(super) fn next_step(&self) -> Option<Step> {
        if self.gone {
            None
        } else if self.unread {
            Some(Step::ReadPreparing)
        } else if self.delay.is_none() {
            Some(Step::ReadDelay)
        } else if self.fresh {
            Some(Step::VerifyNew)
        } else if !self.preparing && (!self.held || self.retake) {
            Some(Step::Inhibit)
        } else if self.held && (self.verify_due || !self.held_listed) {
            Some(Step::VerifyHeld)
        } else if !self.preparing && (!self.raised || self.files_due) {
            Some(Step::RaiseDelay)
        } else if self.preparing && self.request.is_none() {
            // Last: nothing depends on it.
            Some(Step::ReadRequest)
        } else {
            None
        }
    }

    /// Takes the property's value, read at `now`.
    pub(super) fn preparing_is(&mut self, value: bool, now: Instant) -> Meaning {
        self.unread = false;
        let hint = self.hint.take();
        let agreeing = hint.filter(|hint| hint.begins == value);
        // systemd 257 tells of the change before it sends the signals, 262 after them.
        let told = self.changed.take().into_iter().chain(agreeing.map(|hint| hint.at)).min();
        match (self.preparing, value) {
            (false, true) => {
                self.preparing = true;
                self.epoch += 1;
                self.since = Some(told.unwrap_or(now));
                self.kind = agreeing.map_or(ShutdownKind::Unknown, |hint| hint.kind);
                self.released = false;
                Meaning::Begins
            }
            (true, false) => {
                self.preparing = false;
                self.since = None;
                self.kind = ShutdownKind::Unknown;
                self.request = None;
                self.released = false;
                self.retake = true;
                Meaning::Ends
            }
            _ if hint.is_some() && agreeing.is_none() => Meaning::Contradicted,
            (true, true) => {
                if let Some(hint) = agreeing.filter(|_| self.kind == ShutdownKind::Unknown) {
                    self.kind = hint.kind;
                }
                Meaning::Same
            }
            (false, false) => {
                // Called off before we knew it had begun: logind may have dropped the lock.
                self.retake |= agreeing.is_some();
                Meaning::Same
            }
        }
    }

    /// Takes the answer about the new lock. False: it is not there and must be dropped.
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

    /// Takes the answer about the lock held before. False: it is not there and must be replaced.
    pub(super) fn held_lock_is(&mut self, listed: Listed) -> bool {
        let there = match listed {
            Listed::Ours | Listed::Unknown => true,
            // During a shutdown no new one is granted; what is there is all there will be.
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

    /// The lock was given back.
    pub(super) fn release(&mut self) {
        self.released = true;
        self.held = false;
        self.held_listed = false;
        self.inherited = false;
        self.fresh = false;
    }

    /// Raising the delay was tried.
    pub(super) fn tried_to_raise(&mut self) {
        self.raised = true;
        self.files_due = false;
    }

    /// The wish changed.
    pub(super) fn want(&mut self, wanted: Duration) {
        self.wanted = wanted;
        self.raised = false;
    }
}

#[cfg(test)]
mod tests;
