//! The paths of a pod's files. Names come from users, so each is checked before it becomes a path.

use std::path::{Path, PathBuf};

use winddown_engine::disk_notes::{NotedRun, RunNote};
use winddown_shared::PodUid;

use super::config::ProcessConfig;

/// The directory of all pods' records.
pub(crate) fn pods(config: &ProcessConfig) -> PathBuf {
    config.state_dir.join("pods")
}

/// The directory of a pod's records.
pub(crate) fn pod(config: &ProcessConfig, uid: &PodUid) -> PathBuf {
    pods(config).join(uid.as_str())
}

/// The directory of a container's records.
pub(crate) fn container(config: &ProcessConfig, uid: &PodUid, name: &str) -> PathBuf {
    pod(config, uid).join(name)
}

/// What an earlier agent has noted about an attempt.
pub(crate) fn noted(attempt: &Path) -> NotedRun {
    let holds = |note| self::note(attempt, note).exists();
    NotedRun {
        asked: asked(attempt).exists(),
        unready: holds(RunNote::Unready),
        hook: holds(RunNote::Hook),
        cut_short: holds(RunNote::CutShort),
    }
}

/// The file that exists while this holds of an attempt: one that is not ready is not taken for ready after a restart of
/// the agent.
pub(crate) fn note(attempt: &Path, note: RunNote) -> PathBuf {
    attempt.join(note.as_str())
}

/// The file that marks an attempt as having been sent the stop signal. An agent that was killed in the middle of a stop
/// does not send the signal again after its restart: many programs treat a second SIGTERM as "at once".
pub(crate) fn asked(attempt: &Path) -> PathBuf {
    attempt.join("asked")
}
