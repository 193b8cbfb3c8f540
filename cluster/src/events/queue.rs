//! The queue of events that are still to be written.

use std::collections::{HashSet, VecDeque};

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use winddown_shared::{Mutex, WallClock, WallTime};

use super::{EventDraft, Subject, Weight};

/// The number of events so far, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Waiting, including those that are being written.
    pub waiting: usize,
    /// Written as a separate event.
    pub written: u64,
    /// Written as a repetition in a series.
    pub repeated: u64,
    /// Only counted, because their object had too many.
    pub held_back: u64,
    /// Dropped, because the queue was full or they were too old.
    pub dropped: u64,
    /// Refused by the API server, so that a retry would not help.
    pub refused: u64,
}

/// The outcome of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Written,
    Repeated,
    HeldBack,
    Dropped,
    Refused,
}

/// A waiting event.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) draft: EventDraft,
    /// When it happened, by the wall clock: for people.
    pub(super) at: WallTime,
    /// When it happened, by tokio's clock: for decisions.
    pub(super) since: Instant,
    /// A sequence number.
    pub(super) number: u64,
}

#[derive(Debug)]
pub(super) struct EventQueue {
    state: Mutex<QueueState>,
    capacity: usize,
    wall: WallClock,
    arrived: Notify,
    /// The number of events that are waiting or being written.
    left: watch::Sender<usize>,
    /// How many callers wait for the remaining events.
    flushes: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct QueueState {
    routine: VecDeque<Queued>,
    decisions: VecDeque<Queued>,
    /// The objects whose events are being written, one event of each at a time.
    in_flight: HashSet<Subject>,
    next_number: u64,
    counts: EventCounts,
}

// === impl EventQueue ===

impl EventQueue {
    pub(super) fn new(capacity: usize, wall: WallClock) -> Self {
        Self {
            state: Mutex::default(),
            capacity: capacity.max(1),
            wall,
            arrived: Notify::new(),
            left: watch::Sender::new(0),
            flushes: watch::Sender::new(0),
        }
    }

    pub(super) fn push(&self, draft: EventDraft) {
        let at = self.wall.now();
        {
            let mut state = self.state.lock();
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

    /// Waits for the next event whose object has none being written. Only one task may call this. Cancel-safe.
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

    /// Records the outcome of an event that [`next`](Self::next) returned.
    pub(super) fn done(&self, queued: &Queued, fate: Fate) {
        let mut state = self.state.lock();
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
        let state = self.state.lock();
        EventCounts { waiting: state.len() + state.in_flight.len(), ..state.counts }
    }

    /// How many callers wait for the remaining events, because the node goes down.
    pub(super) fn flushes(&self) -> watch::Receiver<usize> {
        self.flushes.subscribe()
    }

    pub(super) async fn flush(&self, deadline: Instant) -> Vec<Subject> {
        let _flush = Flush::begin(&self.flushes);
        let mut left = self.left.subscribe();
        let _ = timeout_at(deadline, left.wait_for(|n| *n == 0)).await;
        self.state.lock().objects()
    }

    fn pop(&self, to_write: bool) -> Option<Queued> {
        let decisions_first = *self.flushes.borrow() > 0;
        let mut state = self.state.lock();
        // Skips at most as many as wait for an object whose event is being written.
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

    fn publish_left(&self, state: &QueueState) {
        self.left.send_replace(state.len() + state.in_flight.len());
    }
}

/// A flush in progress. It also ends when it is dropped because the shutdown was called off.
struct Flush<'a>(&'a watch::Sender<usize>);

impl<'a> Flush<'a> {
    fn begin(flushes: &'a watch::Sender<usize>) -> Self {
        flushes.send_modify(|count| *count += 1);
        Self(flushes)
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

// === impl QueueState ===

impl QueueState {
    fn len(&self) -> usize {
        self.routine.len() + self.decisions.len()
    }

    /// The objects with unwritten events, sorted by name and without duplicates.
    fn objects(&self) -> Vec<Subject> {
        let waiting = self.decisions.iter().chain(&self.routine).map(|one| one.draft.about.whole());
        let all: HashSet<_> = waiting.chain(self.in_flight.iter().cloned()).collect();
        let mut all = Vec::from_iter(all);
        all.sort_by(|a, b| (a.events_namespace(), a.name()).cmp(&(b.events_namespace(), b.name())));
        all
    }
}
