//! What is mounted below a directory that is to be removed.

use std::path::{Path, PathBuf};

/// Lists the mount points below `directory`, deepest first. If the mount table cannot be read, as in a chroot without
/// `/proc`, the list is empty: the removal never crosses to another file system anyway.
pub(super) fn below(proc_root: &Path, directory: &Path) -> Vec<PathBuf> {
    // The kernel's mount table has resolved paths.
    let Ok(directory) = directory.canonicalize() else { return Vec::new() };
    let mut points = winddown_host::mount_table::below(proc_root, &directory).unwrap_or_default();
    points.retain(|point| *point != directory);
    points
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn mounts_are_those_below_and_not_the_directory_itself_or_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().canonicalize().unwrap().join("state");
        fs::create_dir_all(state.join("pods/a")).unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        let line =
            |point: &str| format!("1 1 0:1 / {}{point} rw - tmpfs tmpfs rw\n", state.display());
        let table = ["", "-2", "/pods", "/pods/a"].map(line).concat();
        fs::write(dir.path().join("proc/self/mountinfo"), table).unwrap();
        let found = below(&dir.path().join("proc"), &state);
        assert_eq!(found, [state.join("pods/a"), state.join("pods")]);
        assert!(below(&dir.path().join("no-proc"), &state).is_empty());
    }
}
