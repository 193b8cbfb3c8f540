//! Atomic writing of files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// What the new content outlasts once [`replace`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
/// An error of the file system, which names no file; the old content is kept then. The directory must exist.
pub fn replace(path: &Path, mode: u32, durability: Durability, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let mut draft = Draft::create(directory, &name)?;
    draft.file.set_permissions(Permissions::from_mode(mode))?;
    (&draft.file).write_all(content)?;
    if durability == Durability::PowerCut {
        draft.file.sync_all()?;
    }
    fs::rename(&draft.path, path)?;
    draft.is_in_place = true;
    if durability == Durability::PowerCut {
        sync_directory(directory)?;
    }
    Ok(())
}

/// The new content, in a file of its own until that has taken the place of the old one.
struct Draft {
    file: File,
    path: PathBuf,
    is_in_place: bool,
}

impl Draft {
    /// Creates an empty file that no other user may open, under a name that none has yet.
    fn create(directory: &Path, name: &str) -> io::Result<Self> {
        let mut how = OpenOptions::new();
        how.write(true).create_new(true).mode(0o600);
        loop {
            // Each of these hashes with random keys of its own.
            let letters = RandomState::new().hash_one(name) >> 40;
            let path = directory.join(format!(".tmp-{name}-{letters:06x}"));
            match how.open(&path) {
                Ok(file) => return Ok(Self { file, path, is_in_place: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_in_place {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The same, for a file that only its owner may read: names, times and reasons of pods, tokens, keys.
///
/// # Errors
/// As for [`replace`].
pub fn replace_private(path: &Path, durability: Durability, content: &[u8]) -> io::Result<()> {
    replace(path, 0o600, durability, content)
}

/// Removes what interrupted calls of [`replace`] have left in a directory: it may be a key. Only call this at a program's
/// start, before it writes files there: later, such a file may be one that is being written. What cannot be removed
/// stays. Blocks on the file system.
pub fn remove_drafts(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && is_draft(&entry.file_name().to_string_lossy()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_draft(name: &str) -> bool {
    let letters = name.strip_prefix(".tmp-").and_then(|rest| rest.rsplit_once('-'));
    letters.is_some_and(|(_, letters)| {
        letters.len() == 6 && letters.bytes().all(|letter| letter.is_ascii_hexdigit())
    })
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
    fn what_an_interrupted_call_left_is_removed_and_nothing_else() {
        let there = tempfile::tempdir().unwrap();
        let at = |name: &str| there.path().join(name);
        // As if the program had been killed.
        let draft = std::mem::ManuallyDrop::new(Draft::create(there.path(), "client.pem").unwrap());
        let others = ["client.pem", ".tmp-1-17", ".tmp-012abc", "x.tmp-a-012abc", ".tmp-a-name12"];
        others.iter().for_each(|name| fs::write(at(name), "").unwrap());
        fs::create_dir(at(".tmp-directory-012abc")).unwrap();
        symlink(at("client.pem"), at(".tmp-link-012abc")).unwrap();
        remove_drafts(there.path());
        assert!(!draft.path.exists());
        assert_eq!(fs::read_dir(there.path()).unwrap().count(), others.len() + 2);
        remove_drafts(&at("missing"));
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
