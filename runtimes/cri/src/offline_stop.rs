//! Stops a pod while the runtime does not answer, using the notes about its processes.
//!
//! An agent that was restarted next to a hung runtime has not learned what runs. It has a note about the
//! first process of each container, and the kernel: the process's cgroup, which contains the container's ID,
//! shows whether it is still the container's, and the pod's cgroup shows whether anything else of the pod
//! runs. What the kernel does not show stays unknown, and is an error.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use winddown_engine::disk_notes::NotedRun;
use winddown_engine::{files, stopping};
use winddown_host::{cgroups_of, if_exists, machine};
use winddown_shared::{Grace, Pod, PodStopped, PodUid, RuntimeError, WallTime};

use super::config::CriConfig;
use super::pod::{self, PodEntry};
use super::process_note::Note;
use super::{CriContext, blocking, dirs, exits, failed, observe, pod_groups};

/// A container that runs according to its note and the kernel.
struct FoundContainer {
    name: String,
    attempt: u32,
    note: Note,
    noted: NotedRun,
}

/// Stops the containers of the pod that are known without the runtime.
///
/// # Errors
/// No container is known, one still runs, or it is unknown whether more of the pod runs.
pub(super) async fn stop(
    context: &Arc<CriContext>,
    pod: &Pod,
    grace: Grace,
) -> Result<PodStopped, RuntimeError> {
    let uid = pod.uid();
    let (config, wanted) = (context.config.clone(), uid.clone());
    let (found, groups) = blocking(move || {
        // What a note does not say, the pod's groups do.
        let (found, _) = running(&config, &wanted);
        let groups = groups_of(&config.cgroups.mount, &found);
        Ok((found, groups))
    })
    .await?;
    let entry = context.pods.get_or_new(uid);
    let is_known = {
        let mut state = entry.lock();
        if !found.is_empty() {
            state.own.offline_cgroups.get_or_insert(groups);
        }
        state.own.offline_cgroups.is_some()
    };
    if !is_known {
        return Err(failed(format!(
            "the container runtime does not answer, so it is unknown whether pod {uid} runs"
        )));
    }
    adopt(context, &entry, pod, &found);
    tracing::warn!(
        pod = %pod::title(&entry),
        "the container runtime does not respond: terminating a pod by its known processes"
    );
    let stopped = stopping::stop(context, &entry, Some(pod), grace).await?;
    let (groups, sandboxes) = {
        let state = entry.lock();
        let runs = state.containers.iter().filter_map(|container| container.run.as_ref());
        let sandboxes: Vec<Arc<str>> = runs.map(|run| Arc::clone(&run.own.sandbox)).collect();
        (state.own.offline_cgroups.clone().unwrap_or_default(), sandboxes)
    };
    let is_empty = move || Ok(pod_groups::are_empty(&groups, &sandboxes));
    match blocking(is_empty).await? {
        true => Ok(stopped),
        false => Err(pod_groups::unknown(uid)),
    }
}

fn adopt(context: &Arc<CriContext>, entry: &Arc<PodEntry>, pod: &Pod, found: &[FoundContainer]) {
    for FoundContainer { name, attempt, note, noted } in found {
        {
            let mut state = entry.lock();
            state.take_pod(pod);
            let Some(container) = state.container(name) else { continue };
            if container.run.as_ref().is_some_and(|run| *run.id == *note.id) {
                continue;
            }
            let mut run = pod::created(&note.id, *attempt, &note.sandbox, Duration::ZERO);
            run.started_at = Some(context.config.wall.now());
            run.adopt(*noted);
            pod::begin(container, run);
        }
        let process = observe::FirstProcess { pid: note.pid, is_plain: true };
        exits::watch(context, entry, (name, &note.id), &process, note.signal.as_deref());
    }
}

/// Whether containers run that an agent with these settings has started, as far as its notes and the kernel show. The
/// runtime is not asked. Blocking.
///
/// # Errors
/// None is seen to run, and a note of this boot cannot be read, or the notes cannot be listed.
pub fn has_running(config: &CriConfig) -> io::Result<bool> {
    let mut unknown = None;
    for uid in dirs::uids(config)? {
        let (found, unread) = running(config, &uid);
        if !found.is_empty() {
            return Ok(true);
        }
        unknown = unknown.or(unread);
    }
    unknown.map_or(Ok(false), Err)
}

/// The containers of the pod whose noted process still belongs to them, and why there may be more. Blocking.
fn running(config: &CriConfig, uid: &PodUid) -> (Vec<FoundContainer>, Option<io::Error>) {
    let (mut found, mut unread) = (Vec::new(), None);
    let mut listed = |directory: &Path| {
        listed(directory).unwrap_or_else(|error| {
            unread.get_or_insert(error);
            Vec::new()
        })
    };
    let containers = listed(&dirs::messages(config, uid));
    let files: Vec<PathBuf> = containers.iter().flat_map(|container| listed(container)).collect();
    for file in files {
        let is_note = file.extension().is_some_and(|extension| extension == "process");
        let attempt = file.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        let name = file.parent().and_then(file_name);
        let (true, Some(attempt), Some(name)) = (is_note, attempt, name) else { continue };
        let note = match read(config, &file) {
            Ok(note) => note,
            Err(error) => {
                unread.get_or_insert(error);
                continue;
            }
        };
        let is_its = |note: &Note| cgroups_of(note.pid).is_some_and(|all| all.contains(&note.id));
        if let Some(note) = note.filter(is_its) {
            let noted = dirs::noted(config, uid, &name, attempt);
            found.push(FoundContainer { name, attempt, note, noted });
        }
    }
    (found, unread)
}

/// Reads a note; none if it is gone, or from before this boot: notes are not synced, so a crash of the machine, which ends
/// the containers, may leave anything.
fn read(config: &CriConfig, file: &Path) -> io::Result<Option<Note>> {
    let error = match if_exists(files::read_note(file)) {
        Ok(None) => return Ok(None),
        Ok(Some(json)) => match serde_json::from_slice(&json) {
            Ok(note) => return Ok(Some(note)),
            Err(error) => io::Error::from(error),
        },
        Err(error) => error,
    };
    match is_of_earlier_boot(config, file) {
        true => Ok(None),
        false => Err(io::Error::new(error.kind(), format!("{}: {error}", file.display()))),
    }
}

/// Whether the file was last written before the machine was started; false if that is not known.
fn is_of_earlier_boot(config: &CriConfig, file: &Path) -> bool {
    let written = fs::symlink_metadata(file).and_then(|of| of.modified()).ok();
    let written = written.and_then(|written| WallTime::try_from(written).ok());
    let age = written.and_then(|at| Duration::try_from(config.wall.now().duration_since(at)).ok());
    age.zip(machine::uptime()).is_some_and(|(age, up)| age > up)
}

/// The pod's own cgroups, in each hierarchy.
fn groups_of(mount: &Path, found: &[FoundContainer]) -> Vec<PathBuf> {
    let of_container = |FoundContainer { note, .. }: &FoundContainer| {
        pod_groups::of_container(mount, &note.id, &cgroups_of(note.pid).unwrap_or_default())
    };
    pod_groups::above(found.iter().flat_map(of_container))
}

/// What is in a directory; nothing if it does not exist.
fn listed(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = if_exists(fs::read_dir(directory))?.into_iter().flatten();
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_cannot_be_read_leaves_open_whether_containers_run_until_the_machine_was_started()
    {
        let dir = tempfile::tempdir().unwrap();
        let mut config = CriConfig::below(dir.path());
        let clock = winddown_host::machine::wall_clock();
        config.wall = clock.clone();
        assert!(!has_running(&config).unwrap(), "nothing was ever started");
        let note = dirs::process(&config, &PodUid::new("u"), "main", 0);
        fs::create_dir_all(note.parent().unwrap()).unwrap();
        fs::create_dir(&note).unwrap();
        assert!(has_running(&config).is_err(), "it is no file");
        fs::remove_dir(&note).unwrap();
        // As a full disk or the end of the agent leaves it.
        fs::write(&note, "").unwrap();
        let error = has_running(&config).unwrap_err();
        assert!(error.to_string().contains("u/messages/main/0.process"), "{error}");
        // As a crash of the machine leaves it.
        let age = winddown_host::machine::uptime().unwrap() + std::time::Duration::from_secs(60);
        let written = std::time::SystemTime::from(clock.now()) - age;
        fs::File::options().write(true).open(&note).unwrap().set_modified(written).unwrap();
        assert!(!has_running(&config).unwrap());
        fs::write(&note, r#"{"id": "aa", "sandbox": "bb", "pid": 2147483647}"#).unwrap();
        assert!(!has_running(&config).unwrap(), "the process is gone");
        fs::remove_file(&note).unwrap();
        fs::remove_dir(note.parent().unwrap()).unwrap();
        fs::write(note.parent().unwrap(), "").unwrap();
        assert!(has_running(&config).is_err(), "its container's notes cannot be listed");
    }
}
