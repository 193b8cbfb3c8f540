//! What waits to be written.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use winddown_shared::{WallClock, WallTime};

use super::{EventDraft, Subject, Weight};

/// What became of the events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Waiting, those that are being written included.
    pub waiting: usize,
    /// Written as an event of their own.
    pub written: u64,
    /// Written as one more of a series.
    pub repeated: u64,
    /// Only counted: their object had too many.
    pub held_back: u64,
    /// Given up: the queue was full, or they were too old.
    pub dropped: u64,
    /// Refused by the API server: the same again would not help.
    pub refused: u64,
}

/// What became of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Written,
    Repeated,
    HeldBack,
    Dropped,
    Refused,
}

/// One event that waits.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) draft: EventDraft,
    /// When it happened, for people.
    pub(super) at: WallTime,
    /// When it happened, for decisions.
    pub(super) since: Instant,
    /// Different for each.
    pub(super) number: u64,
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    capacity: usize,
    wall: WallClock,
    arrived: Notify,
    /// How many are not done with.
    left: watch::Sender<usize>,
    flushing: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    routine: VecDeque<Queued>,
    decisions: VecDeque<Queued>,
    /// The objects of those that are being written, one of each at a time.
    in_flight: HashSet<Subject>,
    next_number: u64,
    counts: EventCounts,
}

// === impl Queue ===

impl Queue {
    pub(super) fn new(capacity: usize, wall: WallClock) -> Self {
        Self {
            state: Mutex::default(),
            capacity: capacity.max(1),
            wall,
            arrived: Notify::new(),
            left: watch::Sender::new(0),
            flushing: watch::Sender::new(false),
        }
    }

    pub(super) fn push(&self, draft: EventDraft) {
        let at = self.wall.now();
        {
            let mut state = self.lock();
            let number = state.next_number;
            state.next_number += 1;
            if state.len() >= self.capacity {
                state.counts.dropped += 1;
                let nothing_else = state.routine.pop_front().is_none();
                if nothing_else && draft.weight == Weight::Routine {
                    return;
                }
                if nothing_else {
                    state.decisions.pop_front();
                }
            }
            let queued = Queued { draft, at, since: Instant::now(), number };
            match queued.draft.weight {
                Weight::Routine => state.routine.push_back(queued),
                Weight::Decision => state.decisions.push_back(queued),
            }
            self.publish_left(&state);
        }
        self.arrived.notify_one();
    }

    /// The next event of an object of which none is being written, once there is one. Only one task may ask.
    /// Cancel-safe.
    pub(super) async fn next(&self) -> Queued {
        loop {
            if let Some(queued) = self.pop(true) {
                return queued;
            }
            self.arrived.notified().await;
        }
    }

    pub(super) fn take(&self) -> Option<EventDraft> {
        let queued = self.pop(false)?;
        Some(queued.draft)
    }

    /// Says what became of the event that [`next`](Self::next) gave.
    pub(super) fn done(&self, queued: &Queued, fate: Fate) {
        let mut state = self.lock();
        state.in_flight.remove(&queued.draft.about.whole());
        let counts = &mut state.counts;
        let count = match fate {
            Fate::Written => &mut counts.written,
            Fate::Repeated => &mut counts.repeated,
            Fate::HeldBack => &mut counts.held_back,
            Fate::Dropped => &mut counts.dropped,
            Fate::Refused => &mut counts.refused,
        };
        *count += 1;
        self.publish_left(&state);
        drop(state);
        self.arrived.notify_one();
    }

    pub(super) fn counts(&self) -> EventCounts {
        let state = self.lock();
        EventCounts { waiting: state.len() + state.in_flight.len(), ..state.counts }
    }

    /// Whether a shutdown waits for what is left. Turns true once.
    pub(super) fn flushing(&self) -> watch::Receiver<bool> {
        self.flushing.subscribe()
    }

    pub(super) async fn flush(&self, deadline: Instant) -> Vec<Subject> {
        self.flushing.send_replace(true);
        let mut left = self.left.subscribe();
        let _ = timeout_at(deadline, left.wait_for(|n| *n == 0)).await;
        self.lock().objects()
    }

    fn pop(&self, to_write: bool) -> Option<Queued> {
        let decisions_first = *self.flushing.borrow();
        let mut state = self.lock();
        // At most as many are passed over as wait for an object that is being written.
        let first = |queue: &VecDeque<Queued>| {
            let is_free = |queued: &Queued| !state.in_flight.contains(&queued.draft.about.whole());
            let at = queue.iter().position(is_free)?;
            Some((queue[at].number, at))
        };
        let (at, is_decision) = match (first(&state.decisions), first(&state.routine)) {
            (Some(decision), Some(routine)) if !decisions_first && routine < decision => {
                (routine.1, false)
            }
            (Some((_, at)), _) => (at, true),
            (None, routine) => (routine?.1, false),
        };
        let queue = if is_decision { &mut state.decisions } else { &mut state.routine };
        let queued = queue.remove(at)?;
        if to_write {
            state.in_flight.insert(queued.draft.about.whole());
        }
        self.publish_left(&state);
        Some(queued)
    }

    fn publish_left(&self, state: &State) {
        self.left.send_replace(state.len() + state.in_flight.len());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn len(&self) -> usize {
        self.routine.len() + self.decisions.len()
    }

    /// The objects of which events are not written, by name and each once.
    fn objects(&self) -> Vec<Subject> {
        let waiting = self.decisions.iter().chain(&self.routine).map(|one| one.draft.about.whole());
        let all: HashSet<_> = waiting.chain(self.in_flight.iter().cloned()).collect();
        let mut all = Vec::from_iter(all);
        all.sort_by(|a, b| (a.events_namespace(), a.name()).cmp(&(b.events_namespace(), b.name())));
        all
    }
}
