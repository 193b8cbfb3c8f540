//! Reads and adopts the pods that an earlier agent left on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use winddown_shared::{ContainerKind, PodUid};

use super::config::ProcessConfig;
use super::open::OpenError;
use super::pod::{Container, PodEntry, Run};
use super::{Context, paths, pod_record};

/// A pod that was found on disk; `A` is what a driver knows of an attempt.
#[derive(Debug)]
pub(crate) struct FoundPod<A> {
    pub(crate) uid: PodUid,
    known: pod_record::Found,
    /// The attempts of each container, in ascending order.
    pub(crate) containers: Vec<(Arc<str>, Vec<A>)>,
}

/// Reads all pods on disk; `look` reads the directory of an attempt. Blocks.
///
/// # Errors
/// A directory cannot be read, or `look` failed.
pub(crate) fn find<A>(
    config: &ProcessConfig,
    look: impl Fn(&PodUid, &Arc<str>, u32) -> Result<Option<A>, OpenError>,
) -> Result<Vec<FoundPod<A>>, OpenError> {
    let mut found = Vec::new();
    for (uid, dir) in named(directories(&paths::pods(config))?) {
        let uid = PodUid::new(uid);
        let mut containers = Vec::new();
        for (name, dir) in named(directories(&dir)?) {
            let name: Arc<str> = name.into();
            let entries = named(entries(&dir)?);
            let mut numbers: Vec<u32> = entries.filter_map(|(name, _)| name.parse().ok()).collect();
            numbers.sort_unstable();
            let attempts = numbers.into_iter().map(|number| look(&uid, &name, number));
            let attempts = attempts.filter_map(Result::transpose).collect::<Result<Vec<A>, _>>()?;
            containers.push((name, attempts));
        }
        containers.sort_by(|a, b| a.0.cmp(&b.0));
        let known = pod_record::find(config, &uid);
        found.push(FoundPod { uid, known, containers });
    }
    Ok(found)
}

/// Adds a pod that was found; `resume` turns an attempt into a run, unless it never ran.
///
/// # Errors
/// An attempt cannot be resumed.
pub(crate) fn enter<A, D>(
    context: &Context<D>,
    found: FoundPod<A>,
    mut resume: impl FnMut(&Arc<str>, A) -> Result<Option<Run>, OpenError>,
) -> Result<Arc<PodEntry>, OpenError> {
    let entry = context.pods.get_or_new(&found.uid);
    let mut state = entry.lock();
    for (name, attempts) in found.containers {
        // The pod's record sets its real kind, if it exists.
        let mut container = Container::new(Arc::clone(&name), ContainerKind::Regular);
        for attempt in attempts {
            if let Some(run) = resume(&name, attempt)? {
                container.begin(run);
            }
        }
        // A container that never ran is known from the pod's spec, if at all.
        if container.run.is_some() {
            state.containers.push(container);
        }
    }
    state.started_at = found.known.started_at;
    if let Some(pod) = &found.known.pod {
        state.take_pod(pod);
    }
    drop(state);
    Ok(entry)
}

/// The paths of a directory's entries.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let listed = std::fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let unusable = |source| OpenError::Unusable { path: dir.to_owned(), source };
    Ok(listed.map_err(unusable)?.into_iter().map(|entry| entry.path()).collect())
}

fn directories(dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    Ok(entries(dir)?.into_iter().filter(|path| path.is_dir()).collect())
}

/// The paths with UTF-8 names, as all of ours have.
fn named(paths: Vec<PathBuf>) -> impl Iterator<Item = (String, PathBuf)> {
    let name = |path: PathBuf| Some((path.file_name()?.to_str()?.to_owned(), path));
    paths.into_iter().filter_map(name)
}
