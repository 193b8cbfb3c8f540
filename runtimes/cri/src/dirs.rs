//! Paths of a pod's files. Names come from users, so each is checked before it becomes a path.
//!
//! ```text
//! STATE/cri.lock                                     locked by the agent that uses STATE
//! STATE/pods/UID/etc-hosts                           the pod's hosts file
//! STATE/pods/UID/volumes/NAME                        an emptyDir
//! STATE/pods/UID/subpaths/CONTAINER/INDEX            a part of a volume, bound in place
//! STATE/pods/UID/ended/CONTAINER                     how its newest run ended, which was reclaimed, as JSON
//! STATE/pods/UID/messages/CONTAINER/ATTEMPT          a run's termination message
//! STATE/pods/UID/messages/CONTAINER/ATTEMPT.asked    exists if a stop of the pod asked the run to stop
//! STATE/pods/UID/messages/CONTAINER/ATTEMPT.unready  exists if the run was not ready
//! STATE/pods/UID/messages/CONTAINER/ATTEMPT.hook     exists if the run's postStart hook was not over
//! STATE/pods/UID/messages/CONTAINER/ATTEMPT.cut-short exists if the run was stopped to be started again
//! STATE/pods/UID/messages/CONTAINER/ATTEMPT.process  the run's first process, as JSON
//! LOGS/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log      a run's log
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use winddown_engine::disk_notes::{NotedRun, RunNote};
use winddown_engine::files;
use winddown_host::if_exists;
use winddown_shared::{Pod, PodUid};

use super::config::CriConfig;

/// The parent of the pods' directories, the last one in which no pod that has hostPath volumes may have made a link.
pub(crate) fn pods(config: &CriConfig) -> PathBuf {
    config.paths.state.join("pods")
}

/// The pod's directory.
pub(crate) fn pod(config: &CriConfig, uid: &PodUid) -> PathBuf {
    pods(config).join(uid.as_str())
}

/// The pod's hosts file.
pub(crate) fn hosts(config: &CriConfig, uid: &PodUid) -> PathBuf {
    pod(config, uid).join("etc-hosts")
}

/// The directory of the pod's emptyDirs.
pub(crate) fn volumes(config: &CriConfig, uid: &PodUid) -> PathBuf {
    pod(config, uid).join("volumes")
}

/// The directory of one emptyDir of the pod.
pub(crate) fn volume(config: &CriConfig, uid: &PodUid, name: &str) -> PathBuf {
    volumes(config, uid).join(name)
}

/// Where a part of a volume is bind-mounted for a container's mount.
pub(crate) fn sub_path(config: &CriConfig, uid: &PodUid, container: &str, mount: usize) -> PathBuf {
    pod(config, uid).join("subpaths").join(container).join(mount.to_string())
}

/// The note about how the newest run of a container ended that was reclaimed.
pub(crate) fn ended(config: &CriConfig, uid: &PodUid, container: &str) -> PathBuf {
    pod(config, uid).join("ended").join(container)
}

/// The names of the pod's containers of which there is such a note. Blocks.
pub(crate) fn all_ended(config: &CriConfig, uid: &PodUid) -> Vec<String> {
    names(&pod(config, uid).join("ended")).unwrap_or_default()
}

/// The directory with the files of each run of the pod's containers.
pub(crate) fn messages(config: &CriConfig, uid: &PodUid) -> PathBuf {
    pod(config, uid).join("messages")
}

/// The file that describes a run's first process.
pub(crate) fn process(config: &CriConfig, uid: &PodUid, container: &str, attempt: u32) -> PathBuf {
    termination_log(config, uid, container, attempt).with_extension("process")
}

/// The file that a run of a container writes its termination message to.
pub(crate) fn termination_log(
    config: &CriConfig,
    uid: &PodUid,
    container: &str,
    attempt: u32,
) -> PathBuf {
    messages(config, uid).join(container).join(attempt.to_string())
}

/// The file that marks a run as asked to stop by a stop of its pod: another agent does not signal it a second time, and
/// does not take its exit for a crash, or for the end of its work.
pub(crate) fn asked(config: &CriConfig, uid: &PodUid, container: &str, attempt: u32) -> PathBuf {
    termination_log(config, uid, container, attempt).with_extension("asked")
}

/// The file that exists while this holds of a run: another agent does not take one that is not ready for ready.
pub(crate) fn note(
    config: &CriConfig,
    uid: &PodUid,
    container: &str,
    attempt: u32,
    note: RunNote,
) -> PathBuf {
    termination_log(config, uid, container, attempt).with_extension(note.as_str())
}

/// What an earlier agent has noted about a run.
pub(crate) fn noted(config: &CriConfig, uid: &PodUid, container: &str, attempt: u32) -> NotedRun {
    let holds = |note| self::note(config, uid, container, attempt, note).exists();
    NotedRun {
        asked: asked(config, uid, container, attempt).exists(),
        unready: holds(RunNote::Unready),
        hook: holds(RunNote::Hook),
        cut_short: holds(RunNote::CutShort),
    }
}

/// The directory of the pod's logs.
pub(crate) fn logs_of(config: &CriConfig, pod: &Pod) -> PathBuf {
    files::pod_logs(&config.logs.dir, pod.namespace(), pod.name(), pod.uid())
}

/// The UIDs of the pods that have a directory. Blocks.
pub(crate) fn uids(config: &CriConfig) -> io::Result<Vec<PodUid>> {
    Ok(names(&pods(config))?.into_iter().map(PodUid::new).collect())
}

/// The directories of the logs of the pod with this UID. Those of one whose namespace and name are not known are
/// looked for among all. Blocks.
pub(crate) fn logs_of_uid(
    config: &CriConfig,
    uid: &PodUid,
    (namespace, name): (&str, &str),
) -> io::Result<Vec<PathBuf>> {
    let all = &config.logs.dir;
    if !name.is_empty() {
        return Ok(vec![files::pod_logs(all, namespace, name, uid)]);
    }
    // `NAMESPACE_POD_UID`, of which only the UID of a static pod may contain an underscore.
    let is_its = |name: &String| name.splitn(3, '_').nth(2) == Some(uid.as_str());
    Ok(names(all)?.into_iter().filter(is_its).map(|name| all.join(name)).collect())
}

/// The names in a directory; none if it does not exist.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let Some(entries) = if_exists(fs::read_dir(directory))? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests make what is read")]

    use super::*;

    #[test]
    fn the_logs_of_a_pod_whose_name_is_known_are_not_looked_for_among_all() {
        let dir = tempfile::tempdir().unwrap();
        let (config, uid) = (CriConfig::below(dir.path()), PodUid::new("u"));
        let all = &config.logs.dir;
        fs::write(all, "is no directory").unwrap();
        assert_eq!(logs_of_uid(&config, &uid, ("n", "web")).unwrap(), [all.join("n_web_u")]);
        logs_of_uid(&config, &uid, ("", "")).unwrap_err();
        fs::remove_file(all).unwrap();
        for name in ["n_web_u", "n_web_other", "n_web_u_u"] {
            fs::create_dir_all(all.join(name)).unwrap();
        }
        assert_eq!(logs_of_uid(&config, &uid, ("", "")).unwrap(), [all.join("n_web_u")]);
    }
}
