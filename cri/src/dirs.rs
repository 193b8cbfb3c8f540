//! Where a pod's files are. Names come from users, so each is checked before it becomes a path.
//!
//! ```text
//! STATE/cri.lock                                     held by the one agent that uses STATE
//! STATE/pods/UID/etc-hosts                           the pod's hosts file
//! STATE/pods/UID/volumes/NAME                        an emptyDir
//! STATE/pods/UID/subpaths/CONTAINER/INDEX            a part of a volume, bound in place
//! STATE/pods/UID/messages/CONTAINER/ATTEMPT          a run's termination message
//! STATE/pods/UID/messages/CONTAINER/ATTEMPT.asked    it was asked to end
//! STATE/pods/UID/messages/CONTAINER/ATTEMPT.process  its first process, as JSON
//! LOGS/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log      a run's log
//! ```

use std::path::PathBuf;

use winddown_engine::files;
use winddown_shared::{Pod, PodUid};

use super::config::CriConfig;

/// A pod's own directory.
pub(crate) fn pod(config: &CriConfig, uid: &PodUid) -> PathBuf {
    config.state_dir.join("pods").join(uid.as_str())
}

/// The pod's hosts file.
pub(crate) fn hosts(config: &CriConfig, uid: &PodUid) -> PathBuf {
    pod(config, uid).join("etc-hosts")
}

/// All emptyDirs of the pod.
pub(crate) fn volumes(config: &CriConfig, uid: &PodUid) -> PathBuf {
    pod(config, uid).join("volumes")
}

/// An emptyDir of the pod.
pub(crate) fn volume(config: &CriConfig, uid: &PodUid, name: &str) -> PathBuf {
    volumes(config, uid).join(name)
}

/// The pod's volumes in memory where nothing can be mounted.
pub(crate) fn memory(config: &CriConfig, uid: &PodUid) -> PathBuf {
    config.memory_dir.join(uid.as_str())
}

/// Where a part of a volume is bound for a container's mount.
pub(crate) fn sub_path(config: &CriConfig, uid: &PodUid, container: &str, mount: usize) -> PathBuf {
    pod(config, uid).join("subpaths").join(container).join(mount.to_string())
}

/// What is kept of each run of the pod's containers.
pub(crate) fn messages(config: &CriConfig, uid: &PodUid) -> PathBuf {
    pod(config, uid).join("messages")
}

/// The file that names a run's first process.
pub(crate) fn process(config: &CriConfig, uid: &PodUid, container: &str, attempt: u32) -> PathBuf {
    termination_log(config, uid, container, attempt).with_extension("process")
}

/// The file that a run of a container writes its termination message into.
pub(crate) fn termination_log(
    config: &CriConfig,
    uid: &PodUid,
    container: &str,
    attempt: u32,
) -> PathBuf {
    messages(config, uid).join(container).join(attempt.to_string())
}

/// The file that says that a run was asked to end, and is not to be asked a second time by another agent.
pub(crate) fn asked(config: &CriConfig, uid: &PodUid, container: &str, attempt: u32) -> PathBuf {
    termination_log(config, uid, container, attempt).with_extension("asked")
}

/// A pod's logs.
pub(crate) fn logs_of(config: &CriConfig, pod: &Pod) -> PathBuf {
    files::pod_logs(&config.log_dir, pod.namespace(), pod.name(), pod.uid())
}
