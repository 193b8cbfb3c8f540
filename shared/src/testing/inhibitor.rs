//! A scripted inhibitor lock.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::{Inhibitor, InhibitorState, LockState, MachineState};

/// An [`Inhibitor`] driven by the test. It holds the lock until it is released, and acquires it again when the shutdown
/// is cancelled, as the real one must. Clones share one state.
#[derive(Clone, Debug)]
pub struct FakeInhibitor(Arc<watch::Sender<InhibitorState>>, Arc<Mutex<MachineState>>);

impl FakeInhibitor {
    /// Creates an inhibitor that holds the lock, with this delay.
    pub fn holding(delay: Duration) -> Self {
        let state = InhibitorState {
            lock: LockState::Held,
            has_lock: true,
            delay: Some(delay),
            ..InhibitorState::unknown()
        };
        Self(Arc::new(watch::Sender::new(state)), Arc::default())
    }

    /// Announces a shutdown.
    pub fn prepare(&self) {
        self.0.send_modify(|s| {
            s.preparing = true;
            s.epoch += 1;
            s.since = Some(Instant::now());
        });
    }

    /// Cancels the shutdown.
    pub fn cancel(&self) {
        self.0.send_modify(|s| {
            s.preparing = false;
            s.since = None;
            (s.lock, s.has_lock) = (LockState::Held, true);
        });
    }

    /// Changes the state in any other way.
    pub fn modify(&self, change: impl FnOnce(&mut InhibitorState)) {
        self.0.send_modify(change);
    }

    /// Sets what the service manager says; so far it does not answer.
    pub fn set_machine(&self, machine: MachineState) {
        *self.1.lock() = machine;
    }

    /// Whether the lock is held now.
    pub fn is_held(&self) -> bool {
        self.0.borrow().lock == LockState::Held
    }
}

impl Inhibitor for FakeInhibitor {
    fn state(&self) -> watch::Receiver<InhibitorState> {
        self.0.subscribe()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.0.send_if_modified(|s| {
                let releases = s.preparing && s.lock == LockState::Held;
                if releases {
                    (s.lock, s.has_lock) = (LockState::Released, false);
                }
                releases
            });
        })
    }

    fn machine(&self) -> BoxFuture<'_, MachineState> {
        let machine = *self.1.lock();
        Box::pin(async move { machine })
    }
}
