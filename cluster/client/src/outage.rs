//! Logs one line per outage, not one per attempt.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::refusal;

/// Whether an activity fails at the moment. Logs when an outage begins and when it is over.
#[derive(Debug)]
pub struct Outage {
    what: &'static str,
    fails: AtomicBool,
}

impl Outage {
    /// `what` is the activity: "watching the pods of this node".
    pub fn new(what: &'static str) -> Self {
        Self { what, fails: AtomicBool::new(false) }
    }

    /// Records a failure.
    pub fn failed(&self, error: &(dyn Error + 'static)) {
        let chain = refusal::chain(error);
        if self.fails.swap(true, Ordering::Relaxed) {
            tracing::debug!(error = chain, "{} still fails", self.what);
        } else {
            tracing::warn!(error = chain, "{} fails; retrying", self.what);
        }
    }

    /// Records a success.
    pub fn worked(&self) {
        if self.fails.swap(false, Ordering::Relaxed) {
            tracing::info!("{} works again", self.what);
        }
    }
}
