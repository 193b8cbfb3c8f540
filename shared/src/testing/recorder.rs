//! Records events.

use std::sync::Arc;

use crate::base::lock::Mutex;
use crate::{Event, Recorder};

/// A [`Recorder`] that keeps every event, in order. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct FakeRecorder(Arc<Mutex<Vec<Event>>>);

impl FakeRecorder {
    /// The events so far.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().clone()
    }
}

impl Recorder for FakeRecorder {
    fn record(&self, event: &Event) {
        self.0.lock().push(event.clone());
    }
}
