//! Writes the record to one place in the background.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use winddown_shared::{Mutex, error_chain};

use crate::{RecordStore, RunRecord};

/// The shortest time between a write and one that [`put_later`](Writer::put_later) asks for.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Writes records to one place, on a blocking thread.
///
/// Writes to a place never overlap, so an older record never replaces a newer one. A record that is still
/// waiting to be written is replaced by the next.
pub(super) struct PlaceWriter {
    pub(super) place: Arc<dyn RecordStore>,
    tray: Arc<Tray>,
}

#[derive(Clone, Default)]
pub(super) struct LastWrite {
    sequence: u64,
    pub(super) failed: Option<Arc<str>>,
}

#[derive(Default)]
struct Tray {
    state: Mutex<WriterState>,
    written: watch::Sender<LastWrite>,
}

#[derive(Default)]
struct WriterState {
    next: Option<Arc<RunRecord>>,
    busy: bool,
    /// The record that is queued when `MIN_WRITE_INTERVAL` has passed since `queued`.
    later: Option<Arc<RunRecord>>,
    /// Whether a task waits for that.
    waits: bool,
    queued: Option<Instant>,
}

// === impl PlaceWriter ===

impl PlaceWriter {
    pub(super) fn new(place: Arc<dyn RecordStore>) -> Self {
        Self { place, tray: Arc::default() }
    }

    /// Queues `record`; a later record may replace it before it is written. Returns at once.
    pub(super) fn put(&self, record: &Arc<RunRecord>) {
        let mut state = self.tray.state.lock();
        state.later = None;
        self.tray.queue(&mut state, Arc::clone(record), &self.place);
    }

    /// Like [`put`](Self::put), but not within a second of the last write: until then a later record may replace it. It
    /// is not written if the writer is dropped before.
    pub(super) fn put_later(&self, record: &Arc<RunRecord>) {
        let mut state = self.tray.state.lock();
        let Some(due) = state.due() else {
            // An older one that nothing has queued yet must not follow.
            state.later = None;
            return self.tray.queue(&mut state, Arc::clone(record), &self.place);
        };
        state.later = Some(Arc::clone(record));
        if !std::mem::replace(&mut state.waits, true) {
            tokio::spawn(queue_later(Arc::downgrade(&self.tray), Arc::clone(&self.place), due));
        }
    }

    /// Writes no record that [`put_later`](Self::put_later) has not queued yet.
    pub(super) fn drop_later(&self) {
        self.tray.state.lock().later = None;
    }

    /// Waits until the write of record number `sequence`, or of a later one, has completed or failed.
    /// Cancel-safe: the write continues.
    pub(super) async fn written(&self, sequence: u64) -> LastWrite {
        let mut written = self.tray.written.subscribe();
        let over = written.wait_for(|written| written.sequence >= sequence).await;
        // The sender lives in the tray, which this borrow keeps alive.
        over.map(|written| written.clone()).unwrap_or_default()
    }

    pub(super) fn last(&self) -> LastWrite {
        self.tray.written.borrow().clone()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.tray.state.lock().busy
    }
}

/// Queues the tray's later record when it is due, for as long as the tray's writer lives.
async fn queue_later(tray: Weak<Tray>, place: Arc<dyn RecordStore>, mut due: Instant) {
    loop {
        sleep_until(due).await;
        let Some(tray) = tray.upgrade() else { return };
        let mut state = tray.state.lock();
        match state.due() {
            Some(at) if state.later.is_some() => due = at,
            _ => {
                state.waits = false;
                if let Some(record) = state.later.take() {
                    tray.queue(&mut state, record, &place);
                }
                return;
            }
        }
    }
}

// === impl WriterState ===

impl WriterState {
    /// When the next later record may be queued; `None` for now.
    fn due(&self) -> Option<Instant> {
        self.queued.map(|at| at + MIN_WRITE_INTERVAL).filter(|due| *due > Instant::now())
    }
}

// === impl Tray ===

impl Tray {
    /// Queues a record, and has it written on a blocking thread.
    fn queue(
        self: &Arc<Self>,
        state: &mut WriterState,
        record: Arc<RunRecord>,
        place: &Arc<dyn RecordStore>,
    ) {
        (state.next, state.queued) = (Some(record), Some(Instant::now()));
        if !std::mem::replace(&mut state.busy, true) {
            let (tray, place) = (Arc::clone(self), Arc::clone(place));
            spawn_blocking(move || tray.work(&*place));
        }
    }

    /// Writes queued records until there are none.
    fn work(&self, place: &dyn RecordStore) {
        while let Some(record) = self.take() {
            let write = catch_unwind(AssertUnwindSafe(|| place.write(&record)));
            let failed = match write {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error_chain(&error).into()),
                Err(_) => Some("the attempt panicked, which is a bug".into()),
            };
            self.written.send_replace(LastWrite { sequence: record.sequence, failed });
        }
    }

    fn take(&self) -> Option<Arc<RunRecord>> {
        let mut state = self.state.lock();
        let next = state.next.take();
        state.busy = next.is_some();
        next
    }
}
