//! Removes rotated logs to free space.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use winddown_shared::{Freed, RuntimeError};

use super::PodDirs;
use crate::failure::{blocking, caused};

/// Removes the rotated logs of these pods (`0.log.1`, for example); `0.log` stays.
///
/// # Errors
/// A log cannot be removed; all others are.
pub async fn remove_rotated_logs(
    pods: impl IntoIterator<Item = PodDirs>,
) -> Result<Freed, RuntimeError> {
    let logs = pods.into_iter().flat_map(|pod| pod.logs);
    let dirs: Vec<PathBuf> = logs.map(|(_, path)| path).collect();
    let what = "giving back the room of turned logs";
    blocking(move || remove(&dirs).map_err(|error| caused(what, error))).await
}

fn remove(dirs: &[PathBuf]) -> Result<Freed, RuntimeError> {
    let mut freed = Freed::default();
    let mut left = Ok(());
    for entry in dirs.iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten()) {
        let path = entry.path();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !is_turned(&path) {
            continue;
        }
        let bytes = entry.metadata().map_or(0, |found| found.blocks().saturating_mul(512));
        match fs::remove_file(&path) {
            Ok(()) => freed += Freed { items: 1, bytes },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                left = Err(caused(format!("cannot remove {}", path.display()), error));
            }
        }
    }
    left.map(|()| freed)
}

/// Whether the name is `ATTEMPT.log.NUMBER`.
fn is_turned(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.split_once(".log.").is_some_and(|(run, turn)| is_number(run) && is_number(turn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turned_logs_go_and_everything_else_stays() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["0.log", "0.log.1", "12.log.3", "0.log.gz", "x.log.1", "0.log.1x", "0.log."] {
            fs::write(at(name), vec![1; 10_000]).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", at("1.log.1")).unwrap();
        let dirs = [root.path().to_owned(), at("nowhere")];
        let freed = remove(&dirs).unwrap();
        assert_eq!(freed.items, 2);
        assert!(freed.bytes >= 20_000 && Path::new("/etc/passwd").exists());
        assert!(!at("0.log.1").exists() && !at("12.log.3").exists());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 6);
        assert_eq!(remove(&dirs).unwrap(), Freed::default());
    }
}
