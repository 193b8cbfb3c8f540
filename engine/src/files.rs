//! File names and operations that all runtimes share.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use winddown_shared::PodUid;

/// Whether a name is safe as one component of a path. Kubernetes' own names always are; this check protects other pods'
/// files from a forged UID.
pub fn is_safe(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name != "."
        && name != ".."
        && !name.bytes().any(|b| b == b'/' || b == 0)
}

/// Makes paths absolute, because supervisors run in `/`.
///
/// # Errors
/// A path is empty, or the working directory is gone. Returns the path and the system's error.
pub fn make_absolute<'a>(
    paths: impl IntoIterator<Item = &'a mut PathBuf>,
) -> Result<(), (PathBuf, io::Error)> {
    paths.into_iter().try_for_each(|path| {
        *path = std::path::absolute(&*path).map_err(|error| (path.clone(), error))?;
        Ok(())
    })
}

/// The directory of a pod's logs below that of all logs, named as in `/var/log/pods`.
pub fn pod_logs(all: &Path, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
    all.join(format!("{namespace}_{name}_{uid}"))
}

/// The path of a run's log below its pod's logs.
pub fn run_log(container: &str, attempt: u32) -> PathBuf {
    Path::new(container).join(format!("{attempt}.log"))
}

/// The runs that have a log in this directory of a container, oldest first.
///
/// # Errors
/// The directory cannot be read.
pub fn logged_runs(directory: &Path) -> io::Result<Vec<u32>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(directory)? {
        runs.extend(entry?.file_name().to_str().and_then(run_of_log));
    }
    runs.sort_unstable();
    runs.dedup();
    Ok(runs)
}

/// The number of the run whose log this file is: `NUMBER.log`, or `NUMBER.log.` and more once it was rotated.
fn run_of_log(file: &str) -> Option<u32> {
    let (number, rest) = file.split_once(".log")?;
    (rest.is_empty() || rest.starts_with('.')).then(|| number.parse().ok())?
}

/// Removes a log and its rotated files. Returns whether the log existed.
pub fn remove_log(log: &Path) -> bool {
    let was_there = fs::remove_file(log).is_ok();
    for n in 1_u32.. {
        let mut old = log.as_os_str().to_owned();
        old.push(format!(".{n}"));
        if fs::remove_file(old).is_err() {
            break;
        }
    }
    was_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "../x", "/etc", "a\0b", &"x".repeat(254)] {
            assert!(!is_safe(name), "{name:?}");
        }
        for name in ["web", "web-0", "3f1c.x", "...", "a_b"] {
            assert!(is_safe(name), "{name:?}");
        }
    }

    #[test]
    fn the_runs_of_a_container_are_in_the_names_of_its_logs() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["9.log", "10.log", "10.log.1", "11.log.1", "x.log", "notes"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(logged_runs(dir.path()).unwrap(), [9, 10, 11]);
        assert!(logged_runs(&dir.path().join("missing")).is_err());
    }
}
