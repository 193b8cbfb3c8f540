//! Which pods changed: a channel that cannot fill up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use winddown_shared::{PodUid, PodUidMap};

#[cfg(test)]
mod tests;

/// Says that pods changed. Cheap to clone.
#[derive(Debug)]
pub struct ChangeSender(Arc<Shared>);

/// Hears which pods changed. When it is dropped, senders go on and nothing is kept.
#[derive(Debug)]
pub struct Changes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    order: VecDeque<PodUid>,
    waiting: PodUidMap<()>,
    senders: usize,
    deaf: bool,
}

/// A channel of pods that changed.
///
/// A pod that changes again before it was handled is in it once: it never holds more than there are
/// pods, so telling it never blocks and never loses anything.
pub fn changes() -> (ChangeSender, Changes) {
    let state = Mutex::new(State { senders: 1, ..State::default() });
    let shared = Arc::new(Shared { state, wake: Notify::new() });
    (ChangeSender(shared.clone()), Changes(shared))
}

// === impl ChangeSender ===

impl ChangeSender {
    /// The pod changed. Never blocks.
    pub fn changed(&self, uid: &PodUid) {
        {
            let mut state = self.0.lock();
            if state.deaf || state.waiting.contains_key(uid) {
                return;
            }
            state.waiting.insert(uid.clone(), ());
            state.order.push_back(uid.clone());
        }
        self.0.wake.notify_one();
    }
}

impl Clone for ChangeSender {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(self.0.clone())
    }
}

impl Drop for ChangeSender {
    fn drop(&mut self) {
        self.0.lock().senders -= 1;
        self.0.wake.notify_one();
    }
}

// === impl Changes ===

impl Changes {
    /// The next pod that changed, in the order in which they first did; `None` when all senders are
    /// gone. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<PodUid> {
        loop {
            {
                let mut state = self.0.lock();
                if let Some(uid) = state.order.pop_front() {
                    state.waiting.remove(&uid);
                    return Some(uid);
                }
                if state.senders == 0 {
                    return None;
                }
            }
            self.0.wake.notified().await;
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.deaf = true;
        state.order.clear();
        state.waiting.clear();
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
