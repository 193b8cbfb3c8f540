//! What a pod's stops came to.

use std::sync::Arc;

use tokio::time::Instant;
use winddown_shared::{PodStopped, StoppedContainer};

/// What ran when a stop began; kept so that a second stop tells the same.
#[derive(Clone, Debug, Default)]
pub struct StopRecord {
    /// The containers that ran.
    names: Vec<Arc<str>>,
    /// When the first was asked to end.
    pub signalled_at: Option<Instant>,
    /// When nothing ran any more.
    stopped_at: Option<Instant>,
}

impl StopRecord {
    /// Notes that a container runs. True if that is new.
    pub(crate) fn add(&mut self, name: &Arc<str>) -> bool {
        let is_new = !self.names.contains(name);
        if is_new {
            self.names.push(Arc::clone(name));
        }
        is_new
    }

    /// How it went, now that nothing runs. `end_of` gives how a container ended.
    pub(crate) fn finish(
        &mut self,
        end_of: impl FnMut(&Arc<str>) -> Option<StoppedContainer>,
    ) -> PodStopped {
        if !self.names.is_empty() {
            self.stopped_at.get_or_insert_with(Instant::now);
        }
        PodStopped {
            signalled_at: self.signalled_at,
            stopped_at: self.stopped_at,
            containers: self.names.iter().filter_map(end_of).collect(),
            remark: None,
        }
    }
}
