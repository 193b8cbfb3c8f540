//! Atomic writing of files.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// What the new content outlasts once [`replace`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of this process. Does not wait for the disk; after a power cut, both the old and the
    /// new content may be lost.
    Process,
    /// A power cut.
    PowerCut,
}

/// Replaces the file at `path`, or creates it, with these permissions. Blocks on the file system.
///
/// A symbolic link at `path` is replaced and not followed. An interrupted call leaves a file named
/// `.tmp-NAME-` plus a few random letters.
///
/// # Errors
/// An error of the file system; the old content is kept then. The directory must exist.
pub fn replace(path: &Path, mode: u32, durability: Durability, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let mut draft =
        tempfile::Builder::new().prefix(&format!(".tmp-{name}-")).tempfile_in(directory)?;
    draft.as_file().set_permissions(Permissions::from_mode(mode))?;
    draft.write_all(content)?;
    if durability == Durability::PowerCut {
        draft.as_file().sync_all()?;
    }
    draft.persist(path).map_err(|error| error.error)?;
    if durability == Durability::PowerCut {
        sync_directory(directory)?;
    }
    Ok(())
}

/// The same, for a file that only its owner may read: names, times and reasons of pods, tokens, keys.
///
/// # Errors
/// As for [`replace`].
pub fn replace_private(path: &Path, durability: Durability, content: &[u8]) -> io::Result<()> {
    replace(path, 0o600, durability, content)
}

/// Waits until the names in a directory would outlast a power cut.
///
/// # Errors
/// The directory is gone, or its disk fails.
#[allow(clippy::disallowed_methods, reason = "nothing is read")]
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_made_and_replaced_with_its_mode_and_leaves_no_draft() {
        let there = tempfile::tempdir().unwrap();
        let path = there.path().join("state.json");
        for (mode, durability, content) in
            [(0o600, Durability::PowerCut, "old and longer"), (0o644, Durability::Process, "new")]
        {
            replace(&path, mode, durability, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(std::fs::read_dir(there.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_replaced_and_what_it_names_is_left_alone() {
        let there = tempfile::tempdir().unwrap();
        let (victim, path) = (there.path().join("victim"), there.path().join("state"));
        std::fs::write(&victim, "untouched").unwrap();
        symlink(&victim, &path).unwrap();
        replace(&path, 0o600, Durability::PowerCut, b"ours").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_content() {
        let there = tempfile::tempdir().unwrap();
        let path = there.path().join("there");
        // A directory cannot be replaced by a file.
        std::fs::create_dir(&path).unwrap();
        assert!(replace(&path, 0o600, Durability::Process, b"new").is_err());
        assert!(path.is_dir());
        assert_eq!(std::fs::read_dir(there.path()).unwrap().count(), 1);
        let missing = there.path().join("missing/state");
        let error = replace(&missing, 0o600, Durability::Process, b"new").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
