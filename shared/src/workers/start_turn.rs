//! Ordered starts of pods.

use std::fmt;
use std::sync::Arc;

use crate::Pod;

/// `status.reason` of a pod that starts after others; its phase is `Pending`.
pub const WAITING_FOR_TURN: &str = "WaitingForTurn";

/// Which pods may start now. By default, all.
#[derive(Clone, Default)]
pub struct StartTurn(Option<Arc<Waits>>);

type Waits = dyn Fn(&Pod) -> Option<Arc<str>> + Send + Sync;

// === impl StartTurn ===

impl StartTurn {
    /// Creates a turn from `waits`, which returns what a pod waits for, for people, or `None` if it
    /// may start. Called for every new pod, so it must return at once.
    pub fn new(waits: impl Fn(&Pod) -> Option<Arc<str>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(waits)))
    }

    /// What `pod` waits for; `None` if it may start.
    pub fn waits_for(&self, pod: &Pod) -> Option<Arc<str>> {
        self.0.as_ref().and_then(|waits| waits(pod))
    }
}

impl fmt::Debug for StartTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StartTurn").field(&self.0.is_some()).finish()
    }
}
