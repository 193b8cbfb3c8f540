//! Where a pod's files are. Names come from users, so each is checked before it becomes a path.

use std::path::{Path, PathBuf};

use winddown_shared::PodUid;

use super::config::ProcessConfig;

/// The directory of all pods' records.
pub(crate) fn pods(config: &ProcessConfig) -> PathBuf {
    config.state_dir.join("pods")
}

/// A pod's records.
pub(crate) fn pod(config: &ProcessConfig, uid: &PodUid) -> PathBuf {
    pods(config).join(uid.as_str())
}

/// A container's records.
pub(crate) fn container(config: &ProcessConfig, uid: &PodUid, name: &str) -> PathBuf {
    pod(config, uid).join(name)
}

/// The file of an attempt that says that it was asked to end, kept so that an agent that is killed in the middle of a
/// stop does not ask again when it is back: many programs take a second SIGTERM for "at once".
pub(crate) fn asked(attempt: &Path) -> PathBuf {
    attempt.join("asked")
}
