//! Removes rotated logs to free space.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, FileType, statat, unlinkat};
use winddown_host::if_exists;
use winddown_shared::{Freed, RuntimeError};

use super::PodDirs;
use crate::failure::{blocking, caused};
use crate::files;

/// Removes the rotated logs of these pods (`0.log.1`, for example); `0.log` stays.
///
/// # Errors
/// A log cannot be removed; all others are.
pub async fn remove_rotated_logs(
    pods: impl IntoIterator<Item = PodDirs>,
) -> Result<Freed, RuntimeError> {
    let logs = pods.into_iter().flat_map(|pod| pod.logs);
    let dirs: Vec<PathBuf> = logs.map(|(_, path)| path).collect();
    let what = "removing rotated logs";
    blocking(move || remove(&dirs).map_err(|error| caused(what, error))).await
}

fn remove(dirs: &[PathBuf]) -> Result<Freed, RuntimeError> {
    let mut freed = Freed::default();
    let mut left = Ok(());
    for path in dirs {
        // What is not there, or not a directory, holds no rotated logs.
        let Ok(directory) = files::logs_of_container(path) else { continue };
        for entry in Dir::read_from(&directory).into_iter().flatten().flatten() {
            match remove_turned(&directory, entry.file_name()) {
                Ok(removed) => freed += removed,
                Err(error) => {
                    let name = path.join(entry.file_name().to_string_lossy().as_ref());
                    left = Err(caused(format!("cannot remove {}", name.display()), error));
                }
            }
        }
    }
    left.map(|()| freed)
}

/// Removes the file if it is a rotated log.
fn remove_turned(directory: &OwnedFd, name: &CStr) -> io::Result<Freed> {
    if !name.to_str().is_ok_and(is_turned) {
        return Ok(Freed::default());
    }
    let removed = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).and_then(|found| {
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Ok(Freed::default());
        }
        unlinkat(directory, name, AtFlags::empty())?;
        let blocks = u64::try_from(found.st_blocks).unwrap_or_default();
        Ok(Freed::new(1, blocks.saturating_mul(512)))
    });
    if_exists(removed.map_err(io::Error::from)).map(Option::unwrap_or_default)
}

/// Whether the name is `ATTEMPT.log.NUMBER`.
fn is_turned(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.split_once(".log.").is_some_and(|(run, turn)| is_number(run) && is_number(turn))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn turned_logs_go_and_everything_else_stays() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["0.log", "0.log.1", "12.log.3", "0.log.gz", "x.log.1", "0.log.1x", "0.log."] {
            fs::write(at(name), vec![1; 10_000]).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", at("1.log.1")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("0.log.1"), "of somebody else").unwrap();
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        let dirs = [root.path().to_owned(), at("nowhere"), link];
        let freed = remove(&dirs).unwrap();
        assert_eq!(freed.items, 2);
        assert!(freed.bytes >= 20_000 && Path::new("/etc/passwd").exists());
        assert!(!at("0.log.1").exists() && !at("12.log.3").exists());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 6);
        assert_eq!(remove(&dirs).unwrap(), Freed::default());
        assert!(elsewhere.path().join("0.log.1").exists(), "a link in place of the directory");
    }
}
