//! Writes the record to one place in the background.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use winddown_shared::error_chain;

use crate::{RecordPlace, RunRecord};

/// Writes records to one place, on a blocking thread.
///
/// Writes to a place never overlap, so an older record never replaces a newer one. A record that is still
/// waiting to be written is replaced by the next.
pub(super) struct Writer {
    pub(super) place: Arc<dyn RecordPlace>,
    tray: Arc<Tray>,
}

/// The last completed write.
#[derive(Clone, Default)]
pub(super) struct Written {
    sequence: u64,
    /// The error, if the write failed.
    pub(super) failed: Option<Arc<str>>,
}

#[derive(Default)]
struct Tray {
    state: Mutex<State>,
    written: watch::Sender<Written>,
}

#[derive(Default)]
struct State {
    next: Option<Arc<RunRecord>>,
    busy: bool,
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(place: Arc<dyn RecordPlace>) -> Self {
        Self { place, tray: Arc::default() }
    }

    /// Queues `record`; a later record may replace it before it is written. Returns at once.
    pub(super) fn put(&self, record: &Arc<RunRecord>) {
        let mut state = self.tray.lock();
        state.next = Some(Arc::clone(record));
        if !std::mem::replace(&mut state.busy, true) {
            let (tray, place) = (Arc::clone(&self.tray), Arc::clone(&self.place));
            spawn_blocking(move || tray.work(&*place));
        }
    }

    /// Waits until the write of record number `sequence`, or of a later one, has completed or failed.
    /// Cancel-safe: the write continues.
    pub(super) async fn written(&self, sequence: u64) -> Written {
        let mut written = self.tray.written.subscribe();
        let over = written.wait_for(|written| written.sequence >= sequence).await;
        // The sender lives in the tray, which this borrow keeps alive.
        over.map(|written| written.clone()).unwrap_or_default()
    }

    /// The last completed write.
    pub(super) fn last(&self) -> Written {
        self.tray.written.borrow().clone()
    }

    /// Whether a write is in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.tray.lock().busy
    }
}

// === impl Tray ===

impl Tray {
    /// Writes queued records until there are none.
    fn work(&self, place: &dyn RecordPlace) {
        while let Some(record) = self.take() {
            let write = catch_unwind(AssertUnwindSafe(|| place.write(&record)));
            let failed = match write {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error_chain(&error).into()),
                Err(_) => Some("the attempt panicked, which is a bug".into()),
            };
            self.written.send_replace(Written { sequence: record.sequence, failed });
        }
    }

    fn take(&self) -> Option<Arc<RunRecord>> {
        let mut state = self.lock();
        let next = state.next.take();
        state.busy = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
