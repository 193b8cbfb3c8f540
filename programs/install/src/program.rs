//! Finds a program like a shell.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Returns the file that `name` refers to: a path, or a name to search for in the directories of `search`, which has
/// the format of `PATH`. `None` if there is no such executable file.
pub fn find_program(name: &OsStr, search: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return runnable(Path::new(name));
    }
    // An empty entry of PATH means the working directory; ignore it and other relative ones.
    let directories = std::env::split_paths(search).filter(|dir| dir.is_absolute());
    directories.filter_map(|dir| runnable(&dir.join(name))).next()
}

fn runnable(path: &Path) -> Option<PathBuf> {
    let facts = std::fs::metadata(path).ok()?;
    let may_run = facts.is_file() && facts.permissions().mode() & 0o111 != 0;
    may_run.then(|| path.canonicalize().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn a_program_is_found_by_its_path_or_in_the_first_directory_that_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for (file, mode) in [("a/tool", 0o644), ("b/tool", 0o755), ("c/tool", 0o755)] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
            fs::set_permissions(root.join(file), Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir_all(root.join("d/tool")).unwrap();
        let search = std::env::join_paths(["", "d", "a", "b", "c"].map(|d| match d {
            "" => PathBuf::from("relative"),
            dir => root.join(dir),
        }));
        let search = search.unwrap();
        let find = |name: &Path| find_program(name.as_os_str(), &search);
        assert_eq!(find(Path::new("tool")), Some(root.join("b/tool")));
        assert_eq!(find(&root.join("c/tool")), Some(root.join("c/tool")));
        assert_eq!(find(&root.join("a/tool")), None, "it may not be run");
        assert_eq!(find(Path::new("no-such-tool")), None);
        assert_eq!(find(Path::new("")), None);
    }
}
