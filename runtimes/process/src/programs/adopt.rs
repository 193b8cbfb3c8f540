//! Reads and adopts the pods that an earlier agent left on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use winddown_shared::{ContainerKind, PodUid};

use super::config::ProcessConfig;
use super::open::OpenError;
use super::pod::{Container, PodEntry, PodState, Run};
use super::{ProgramContext, paths, pod_record};

/// A pod that was found on disk; `A` is what a driver knows of an attempt.
#[derive(Debug)]
pub(crate) struct FoundProgramPod<A> {
    pub(crate) uid: PodUid,
    known: pod_record::FoundRecords,
    /// The attempts of each container, in ascending order.
    pub(crate) containers: Vec<(Arc<str>, Vec<A>)>,
}

/// Reads all pods on disk, and those of the attempts that are `running`; `look` reads the directory of an attempt. Blocks.
pub(crate) fn find<A>(
    config: &ProcessConfig,
    running: impl IntoIterator<Item = (PodUid, Arc<str>, u32)>,
    look: impl Fn(&PodUid, &Arc<str>, u32) -> Result<Option<A>, OpenError>,
) -> Result<Vec<FoundProgramPod<A>>, OpenError> {
    let mut pods: BTreeMap<String, BTreeMap<Arc<str>, BTreeSet<u32>>> = BTreeMap::new();
    for (uid, dir) in named(directories(&paths::pods(config))?) {
        let containers = pods.entry(uid).or_default();
        for (name, dir) in named(directories(&dir)?) {
            let entries = named(entries(&dir)?);
            let numbers = entries.filter_map(|(name, _)| name.parse::<u32>().ok());
            containers.entry(name.into()).or_default().extend(numbers);
        }
    }
    let on_disk: BTreeSet<String> = pods.keys().cloned().collect();
    for (uid, name, number) in running {
        let containers = pods.entry(uid.as_str().to_owned()).or_default();
        containers.entry(name).or_default().insert(number);
    }
    let mut found = Vec::with_capacity(pods.len());
    for (uid, numbers) in pods {
        let has_directory = on_disk.contains(&uid);
        let uid = PodUid::new(uid);
        let mut containers = Vec::with_capacity(numbers.len());
        for (name, numbers) in numbers {
            let attempts = numbers.into_iter().map(|number| look(&uid, &name, number));
            let attempts = attempts.filter_map(Result::transpose).collect::<Result<Vec<A>, _>>()?;
            containers.push((name, attempts));
        }
        // The supervisor of a forgotten pod was still exiting.
        if !has_directory && containers.iter().all(|(_, attempts)| attempts.is_empty()) {
            continue;
        }
        let known = pod_record::find(config, &uid);
        found.push(FoundProgramPod { uid, known, containers });
    }
    Ok(found)
}

/// Adds a pod that was found; `resume` turns an attempt into a run, unless it never ran.
///
/// # Errors
/// An attempt cannot be resumed.
pub(crate) fn enter<A, D>(
    context: &ProgramContext<D>,
    found: FoundProgramPod<A>,
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
    know(&mut state, found.known);
    drop(state);
    Ok(entry)
}

/// Adds what the records say about the pod.
pub(crate) fn know(state: &mut PodState, known: pod_record::FoundRecords) {
    state.started_at = known.started_at;
    state.label = known.label;
    if let Some(pod) = &known.pod {
        state.spec_mark = pod.spec_mark().map(Into::into);
        state.take_pod(pod);
    }
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

#[cfg(test)]
mod tests {
    use winddown_shared::{WallClock, WallTime};

    use super::*;
    use crate::programs::config::ShimCommand;

    #[test]
    fn a_supervisor_without_a_container_and_a_directory_is_no_pod() {
        let state = tempfile::tempdir().unwrap();
        let config = || {
            let clock = WallClock::fixed(WallTime::UNIX_EPOCH);
            ProcessConfig::new(state.path(), state.path(), ShimCommand::subcommand("shim"), clock)
        };
        std::fs::create_dir(paths::pods(&config())).unwrap();
        let id = || (PodUid::new("uid"), Arc::from("main"), 0);
        let found =
            |attempt: Option<u32>| find(&config(), [id()], |_, _, _| Ok(attempt)).unwrap().len();
        assert_eq!((found(None), found(Some(0))), (0, 1));
        // What has a directory is a pod, whether anything of it ran or not.
        std::fs::create_dir(paths::pods(&config()).join("uid")).unwrap();
        assert_eq!(found(None), 1);
    }
}
