//! The record of a pod's stops.

use std::sync::Arc;

use tokio::time::Instant;
use winddown_shared::display::quoted;
use winddown_shared::{PodStopped, StoppedContainer};

/// The containers that ran when a stop began; kept so that a second stop reports the same.
#[derive(Clone, Debug, Default)]
pub struct StopRecord {
    /// The containers that ran.
    names: Vec<Arc<str>>,
    /// When the first was sent the stop signal; none if it is not known to have been.
    pub signalled_at: Option<Instant>,
    /// When no container ran any more.
    stopped_at: Option<Instant>,
    /// The preStop hooks that failed, for people.
    failed_hooks: Vec<String>,
}

/// How much of what a failed hook said is kept, in characters.
const HOOK_ERROR: usize = 200;

impl StopRecord {
    /// Adds a running container. Returns whether it is new.
    pub(crate) fn add(&mut self, name: &Arc<str>) -> bool {
        let is_new = !self.names.contains(name);
        if is_new {
            self.names.push(Arc::clone(name));
        }
        is_new
    }

    /// Adds a container whose preStop hook failed. What its command wrote is quoted, and so is what we say ourselves.
    pub(crate) fn hook_failed(&mut self, name: &str, why: &str) {
        let why: String = why.trim().chars().take(HOOK_ERROR).collect();
        self.failed_hooks.push(format!("preStop hook of {name} failed: {}", quoted(&why)));
    }

    /// Summarizes the stop, now that nothing runs. `end_of` returns how a container ended.
    pub(crate) fn finish(
        &mut self,
        end_of: impl FnMut(&Arc<str>) -> Option<StoppedContainer>,
    ) -> PodStopped {
        if !self.names.is_empty() {
            self.stopped_at.get_or_insert_with(Instant::now);
        }
        let mut stopped = PodStopped::default();
        stopped.nothing_ran = self.names.is_empty();
        (stopped.signalled_at, stopped.stopped_at) = (self.signalled_at, self.stopped_at);
        stopped.containers = self.names.iter().filter_map(end_of).collect();
        stopped.remark =
            (!self.failed_hooks.is_empty()).then(|| self.failed_hooks.join("; ").into());
        stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_hook_wrote_is_quoted() {
        let mut record = StopRecord::default();
        record.hook_failed("main", "no; preStop hook of \"etcd\" failed\n");
        record.hook_failed("side", "it took 2s");
        let remark = record.finish(|_| None).remark;
        let wanted = r#"preStop hook of main failed: "no; preStop hook of \"etcd\" failed"; preStop hook of side failed: "it took 2s""#;
        assert_eq!(remark.as_deref(), Some(wanted));
    }

    #[test]
    fn a_pod_of_which_nothing_ran_is_told_from_one_that_exited() {
        let mut record = StopRecord::default();
        assert!(record.finish(|_| None).nothing_ran);
        record.add(&"main".into());
        let exited = |name: &Arc<str>| Some(StoppedContainer::new(Arc::clone(name), 0, false));
        assert!(!record.finish(exited).nothing_ran);
    }
}
