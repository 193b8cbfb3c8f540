//! Compares the tracked pods with the desired ones.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use super::WorkersState;
use crate::workers::grace;
use crate::workers::record::{Lifecycle, Record, Wake};
use crate::{KillReason, PodUid};

impl WorkersState {
    /// Resolves all waiters with the news that the workers are gone.
    pub(in crate::workers) fn give_up(&self) {
        for record in self.records.values() {
            if let Some(ending) = &record.ending {
                ending.done.give_up();
            }
            if let Some(freed) = &record.freed {
                freed.give_up();
            }
        }
    }

    /// Terminates pods that are tracked but not desired, and forgets finished ones that are not
    /// desired, or are to start again and may. Returns the pods that are tracked afterwards.
    pub(in crate::workers) fn sync_known_pods(
        &mut self,
        desired: &HashSet<PodUid>,
        now: Instant,
    ) -> (HashMap<PodUid, Lifecycle>, Vec<Wake>) {
        self.known_pods_synced = true;
        let (mut forget, mut replay) = (Vec::new(), Vec::new());
        for (uid, record) in &mut self.records {
            match next(record, !desired.contains(uid), self.forgotten.is_some(), now) {
                Next::Keep => {}
                Next::Forget => forget.push(uid.clone()),
                Next::Replay => replay.push(uid.clone()),
            }
        }
        let mut wakes: Vec<Wake> = replay.iter().filter_map(|uid| self.wake(uid)).collect();
        wakes.extend(forget.iter().filter_map(|uid| self.remove(uid)));
        let known = self.records.iter().map(|(uid, r)| (uid.clone(), r.lifecycle)).collect();
        (known, wakes)
    }
}

enum Next {
    Keep,
    Forget,
    Replay,
}

fn next(record: &mut Record, orphan: bool, holds_restarts: bool, now: Instant) -> Next {
    let restarts = record.restart_requested && !holds_restarts;
    if !orphan && !restarts {
        return Next::Keep;
    }
    let finished = record.lifecycle == Lifecycle::Finished && !record.has_leftover();
    let never_ran = record.lifecycle == Lifecycle::Waiting && !record.observed.in_runtime;
    if finished || (orphan && never_ran) {
        return Next::Forget;
    }
    if !orphan {
        return Next::Keep;
    }
    record.deleted = true;
    if record.is_ending() {
        // A retry is in flight or scheduled. Retrying on every call would bypass the backoff of a
        // pod that cannot be stopped, only because it is no longer wanted.
        let has_a_time =
            record.queue.busy || record.queue.pending.is_some() || record.queue.again_at.is_some();
        if has_a_time {
            return Next::Keep;
        }
    } else {
        record.begin_ending(now, Some(KillReason::Removed));
        let grace = grace::effective(None, record.pod(), None);
        record.shorten(grace, false, now);
    }
    record.replay();
    Next::Replay
}
