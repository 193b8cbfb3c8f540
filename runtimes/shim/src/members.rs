//! Kills the processes in cgroups, and detects OOM kills.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use tokio::time::Instant;
use winddown_host::{CgroupMemoryEvents, if_exists, kernel};
use winddown_shared::Retry;

use crate::procfs::Process;

/// The file of a cgroup that lists its processes; writing a pid moves the process there.
pub const PROCS: &str = "cgroup.procs";

/// Sends SIGKILL to all processes in v2 cgroups and below them at once. Does nothing for v1 cgroups, whose processes
/// are also in a v2 cgroup or are found by other means.
pub fn kill(dirs: &[PathBuf]) {
    for dir in dirs {
        if let Ok(mut file) = File::options().write(true).open(dir.join("cgroup.kill")) {
            let _ = file.write_all(b"1");
        }
    }
}

/// Kills everything in these cgroups and below them, v1 or v2. Returns whether nothing is left. Blocks.
pub fn end(dirs: &[PathBuf]) -> bool {
    let hold = |listed: Vec<i32>| {
        kill(dirs);
        let open = |pid| Process::open_any(pid).ok().flatten();
        let mut held: Vec<Process> = listed.into_iter().filter_map(open).collect();
        // A pid that is still listed after it was opened is ours, and not a reused one.
        let listed = pids(dirs).unwrap_or_default();
        held.retain(|process| listed.binary_search(&process.pid()).is_ok());
        held
    };
    end_all(|| pids(dirs), hold)
}

/// Kills what `find` lists and `hold` opens, again and again. Returns whether nothing is left. Blocks.
pub fn end_all<T>(
    find: impl Fn() -> io::Result<Vec<T>>,
    hold: impl Fn(Vec<T>) -> Vec<Process>,
) -> bool {
    for patience in Retry::SURVIVORS.delays() {
        // Processes that cannot be listed may still exist.
        let Ok(left) = find() else { return false };
        if left.is_empty() {
            return true;
        }
        end_processes(&hold(left), patience);
    }
    find().is_ok_and(|left| left.is_empty())
}

/// Kills the processes, and waits for all of them to exit, for as long as `patience`. Blocks.
fn end_processes(processes: &[Process], patience: Duration) {
    // All of them first, so that they die at the same time, however many there are.
    for process in processes {
        let _ = process.signal(Signal::KILL);
    }
    let deadline = Instant::now() + patience;
    for process in processes {
        let left = deadline.saturating_duration_since(Instant::now());
        process.ended_within(left.as_millis().try_into().unwrap_or(u16::MAX));
        process.reap();
    }
}

/// Removes a cgroup and those below it, which must not contain processes.
///
/// # Errors
/// A cgroup contains processes, or cannot be removed.
pub fn remove(dir: &Path) -> io::Result<()> {
    for below in below(dir)? {
        remove(&below)?;
    }
    if_exists(fs::remove_dir(dir)).map(drop)
}

/// Whether the kernel killed a process in one of these cgroups because it ran out of memory.
pub fn were_out_of_memory(dirs: &[PathBuf]) -> bool {
    // Of version 2 and of version 1.
    let files = ["memory.events", "memory.oom_control"];
    let mut all = dirs.iter().flat_map(|dir| files.map(|file| dir.join(file)));
    all.any(|file| {
        kernel::read(file).is_ok_and(|text| CgroupMemoryEvents::parse(&text).oom_kill > 0)
    })
}

/// Lists the processes of the cgroups and of those below them.
///
/// # Errors
/// They cannot be listed, which does not mean that there are none.
pub fn pids(dirs: &[PathBuf]) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    let mut left = dirs.to_vec();
    while let Some(dir) = left.pop() {
        let text = match kernel::read_to_string(dir.join(PROCS)) {
            Err(e) if is_gone(&e) => continue,
            // A threaded cgroup lists only its threads; their processes are in one above it.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::OPNOTSUPP) => {
                kernel::read_to_string(dir.join("cgroup.threads")).unwrap_or_default()
            }
            text => text?,
        };
        found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        left.extend(below(&dir)?);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Lists the cgroups directly below this one; none if it does not exist.
///
/// # Errors
/// They cannot be listed, which does not mean that there are none.
pub fn below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if is_gone(&e) => return Ok(Vec::new()),
        entries => entries?,
    };
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    Ok(entries.flatten().filter(is_dir).map(|entry| entry.path()).collect())
}

/// Whether the cgroup is gone. ENODEV: it was removed while the file was open.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(19)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_for_want_of_memory_is_seen_on_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().join("absent"), dir.path().to_owned()];
        assert!(!were_out_of_memory(&dirs));
        for (file, quiet, killed) in [
            (
                "memory.events",
                "oom 0\noom_kill 0\n",
                "low 0\noom 1\noom_kill 1\noom_group_kill 0\n",
            ),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
                "under_oom 0\noom_kill 2\n",
            ),
        ] {
            let path = dir.path().join(file);
            fs::write(&path, quiet).unwrap();
            assert!(!were_out_of_memory(&dirs), "{file}");
            fs::write(&path, killed).unwrap();
            assert!(were_out_of_memory(&dirs), "{file}");
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn cgroups_that_a_container_made_in_its_own_go_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("pod-u");
        fs::create_dir_all(own.join("main.0/nested/deep")).unwrap();
        remove(&own).unwrap();
        assert!(!own.exists());
        remove(&own).unwrap();
    }
}
