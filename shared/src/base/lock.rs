//! The lock of everything that threads share.
//!
//! In the library it is the standard one. In this crate's own tests it behaves the same, but
//! inside a `shuttle` execution every acquisition is a point at which another thread may run, so
//! that interleavings around locks and wake-ups are explored.

#[cfg(not(test))]
use std::sync as locks;
use std::sync::{MutexGuard, PoisonError};

#[cfg(test)]
use scheduled as locks;
#[cfg(test)]
pub(crate) use scheduled::{is_scheduled, schedule};

/// A mutex that stays usable after a panic while it was held, which would be a bug: what it guards is consistent after
/// every statement, so all else carries on.
#[derive(Debug, Default)]
pub struct Mutex<T>(locks::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(locks::Mutex::new(value))
    }

    /// Waits until no other thread holds the lock, and takes it. Blocks; not to be held across an await.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the mutex guarded.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod scheduled {
    use std::cell::Cell;
    use std::sync::{LockResult, MutexGuard, TryLockError};

    thread_local! {
        static SCHEDULED: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether this thread runs inside [`schedule`].
    pub(crate) fn is_scheduled() -> bool {
        SCHEDULED.get()
    }

    /// Runs `check`, a shuttle test, with the locks taking part in its scheduling.
    pub(crate) fn schedule(check: impl FnOnce()) {
        SCHEDULED.set(true);
        check();
        SCHEDULED.set(false);
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        pub(crate) fn into_inner(self) -> LockResult<T> {
            self.0.into_inner()
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            if !is_scheduled() {
                return self.0.lock();
            }
            // All of shuttle's threads share one OS thread, so blocking in the OS would deadlock.
            loop {
                shuttle::thread::yield_now();
                match self.0.try_lock() {
                    Ok(guard) => return Ok(guard),
                    Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
        }
    }
}
