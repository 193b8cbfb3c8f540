//! Where a pod's files are. Names come from users, so each is checked before it becomes a path.

use std::path::{Path, PathBuf};

use winddown_shared::PodUid;

use super::config::ProcessConfig;

/// Whether a name may be one component of a path. Kubernetes' own names always may; this is what
/// stands between a forged UID and somebody else's files.
pub(crate) fn is_safe(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name != "."
        && name != ".."
        && !name.bytes().any(|b| b == b'/' || b == 0)
}

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

#[cfg(test)]
mod tests {
    use super::is_safe;

    #[test]
    fn names_that_would_leave_their_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "../x", "/etc", "a\0b", &"x".repeat(254)] {
            assert!(!is_safe(name), "{name:?}");
        }
        for name in ["web", "web-0", "3f1c.x", "...", "a_b"] {
            assert!(is_safe(name), "{name:?}");
        }
    }
}
