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

/// A pod's logs, as `/var/log/pods` has them.
pub(crate) fn logs(config: &ProcessConfig, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
    config.log_dir.join(format!("{namespace}_{name}_{uid}"))
}

/// One attempt's log below the pod's.
pub(crate) fn log_file(logs: &Path, container: &str, attempt: u32) -> PathBuf {
    logs.join(container).join(format!("{attempt}.log"))
}
