//! The record of a pod: complete in memory, and on disk without the values of its environment.
//!
//! A value may come from a Secret, which must not outlive the machine's memory. After a boot the record on disk tells
//! which containers the pod had and of which kind each was; the complete record serves an agent that restarts within
//! the same boot, because hooks need the environment.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{Pod, PodUid, WallTime, error_chain};
use winddown_shim::record::{self, RecordError};

use super::config::ProcessConfig;
use super::paths;

/// The annotation in which `kubectl apply` keeps the whole pod as it was given, including values.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What the records say about a pod.
#[derive(Debug, Default)]
pub(crate) struct FoundRecords {
    /// The pod; none if its record is missing or damaged.
    pub(crate) pod: Option<Pod>,
    /// Its namespace and name, which the directory of its logs tells too; empty if that is missing.
    pub(crate) label: (Arc<str>, Arc<str>),
    /// When its record was written, i.e. when the pod was first started.
    pub(crate) started_at: Option<WallTime>,
}

/// Writes the pod's record, unless it exists and the manifest is as it was. Blocks until it is on disk.
///
/// # Errors
/// The disk cannot be written. If the record in memory cannot be written, the pod still runs, and after a restart of
/// the agent only the record on disk is known.
pub(crate) fn write(config: &ProcessConfig, pod: &Pod) -> Result<(), RecordError> {
    let dir = paths::pod(config, pod.uid());
    let path = dir.join(record::POD);
    let is_outdated = pod.spec_mark().is_some_and(|mark| is_of_another(&path, mark));
    keep_whole(config, pod.uid(), pod.object(), is_outdated);
    if path.exists() && !is_outdated {
        return Ok(());
    }
    record::write(&path, &without_values(pod.object().clone()), true)?;
    record::sync_dir(&dir)?;
    record::sync_dir(&paths::pods(config))
}

/// Whether the record is of another version of the manifest, which sets the UID.
fn is_of_another(path: &Path, mark: &str) -> bool {
    let known = record::read::<api::Pod>(path).and_then(|object| Pod::new(object).ok());
    known.is_some_and(|known| known.spec_mark().is_some_and(|known| known != mark))
}

/// Reads the records of the pod. Strips the values from a record on disk that an earlier version wrote.
pub(crate) fn find(config: &ProcessConfig, uid: &PodUid) -> FoundRecords {
    let path = paths::pod(config, uid).join(record::POD);
    let on_disk: Option<api::Pod> = record::read(&path);
    let written = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok();
    if let (Some(object), Some(written)) = (&on_disk, written)
        && has_values(object)
    {
        keep_whole(config, uid, object, false);
        strip(&path, object, written);
    }
    let whole = whole_path(config, uid).and_then(|path| record::read::<api::Pod>(&path));
    let is_it = |object: api::Pod| Pod::new(object).ok().filter(|pod| pod.uid() == uid);
    let pod = whole.and_then(is_it).or_else(|| on_disk.and_then(is_it));
    if pod.is_none() {
        tracing::warn!(path = %path.display(), "the pod's record is missing or damaged: its spec is not known");
    }
    let label = match &pod {
        Some(pod) => (Arc::clone(pod.namespace()), Arc::clone(pod.name())),
        None => logs(config, uid).and_then(|logs| label(&logs)).unwrap_or_default(),
    };
    let started_at = written.and_then(|at| WallTime::try_from(at).ok());
    FoundRecords { pod, label, started_at }
}

/// The directory of the pod's logs, if it has one. Blocks.
pub(crate) fn logs(config: &ProcessConfig, uid: &PodUid) -> Option<PathBuf> {
    let mut all = std::fs::read_dir(&config.log_dir).ok()?.flatten();
    // Only the UID of a static pod may contain an underscore.
    let is_its = |name: &str| name.splitn(3, '_').nth(2) == Some(uid.as_str());
    all.find(|dir| dir.file_name().to_str().is_some_and(is_its)).map(|dir| dir.path())
}

/// The namespace and the name in the name of a directory of logs: `NAMESPACE_NAME_UID`.
fn label(logs: &Path) -> Option<(Arc<str>, Arc<str>)> {
    let mut words = logs.file_name()?.to_str()?.splitn(3, '_');
    Some((words.next()?.into(), words.next()?.into()))
}

/// The path of the complete record; none if no records are kept in memory.
pub(crate) fn whole_path(config: &ProcessConfig, uid: &PodUid) -> Option<PathBuf> {
    Some(config.volatile_dir.as_ref()?.join(format!("{uid}.json")))
}

fn keep_whole(config: &ProcessConfig, uid: &PodUid, object: &api::Pod, is_outdated: bool) {
    let path = whole_path(config, uid).filter(|path| is_outdated || !path.exists());
    let Some(path) = path else { return };
    let kept = make_private_dir(&path).and_then(|()| record::write(&path, object, false));
    if let Err(error) = kept {
        tracing::warn!(%uid, error = error_chain(&error),
            "after a restart of the agent the pod's hooks run without its environment");
    }
}

fn make_private_dir(path: &Path) -> Result<(), RecordError> {
    let Some(dir) = path.parent() else { return Ok(()) };
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(RecordError::new("create", dir))
}

fn strip(path: &Path, object: &api::Pod, written: SystemTime) {
    let stripped = record::write(path, &without_values(object.clone()), true)
        .map_err(io::Error::other)
        // The modification time is the pod's start time.
        .and_then(|()| std::fs::File::options().append(true).open(path)?.set_modified(written));
    if let Err(error) = stripped {
        tracing::warn!(path = %path.display(), error = error_chain(&error),
            "values of a pod's environment stay on disk: remove the file");
    }
}

fn has_values(object: &api::Pod) -> bool {
    let specs = object.spec.iter();
    let mut all = specs.flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    let mut annotations = object.metadata.annotations.iter();
    all.any(|container| container.env.is_some())
        || annotations.any(|annotations| annotations.contains_key(LAST_APPLIED))
}

fn without_values(mut object: api::Pod) -> api::Pod {
    let specs = object.spec.iter_mut();
    let all = specs.flat_map(|s| s.init_containers.iter_mut().flatten().chain(&mut s.containers));
    for container in all {
        container.env = None;
    }
    if let Some(annotations) = &mut object.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    object
}
