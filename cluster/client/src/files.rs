//! Files that credentials are read from, and whether they have changed since.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use winddown_host::regular;

use super::error::CredentialsError;

/// The maximum size of a file of credentials. A bundle of every public authority is a fifth of it.
const MAX_CREDENTIALS_BYTES: u64 = 1 << 20;

/// The files that were read, each with its state just before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files(Vec<(PathBuf, Option<Look>)>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    device: u64,
    inode: u64,
    size: u64,
    modified: Option<SystemTime>,
}

// === impl Files ===

impl Files {
    /// Reads a file and remembers its state. Blocks.
    pub(super) fn read(
        &mut self,
        what: &'static str,
        path: &Path,
    ) -> Result<Vec<u8>, CredentialsError> {
        self.remember(path);
        let failed = |source| CredentialsError::Read { what, path: path.to_path_buf(), source };
        let size = std::fs::metadata(path).map_err(failed)?.len();
        if size > MAX_CREDENTIALS_BYTES {
            let problem = format!("{size} bytes are too many for {what}: name the right file");
            return Err(CredentialsError::contents(path.display().to_string(), problem));
        }
        regular::read(path, MAX_CREDENTIALS_BYTES).map_err(failed)
    }

    /// Remembers the state of a file that other code reads.
    pub(super) fn remember(&mut self, path: &Path) {
        if !self.0.iter().any(|(known, _)| known == path) {
            self.0.push((path.to_path_buf(), Look::at(path)));
        }
    }

    /// Whether one of the files has changed. Blocks.
    pub(super) fn changed(&self) -> bool {
        self.0.iter().any(|(path, look)| *look != Look::at(path))
    }

    /// The files, for messages.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|(path, _)| path.display().to_string()).collect();
        names.join(", ")
    }
}

// === impl Look ===

impl Look {
    fn at(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        // Follows links: projected volumes are updated by replacing a link.
        let facts = std::fs::metadata(path).ok()?;
        Some(Self {
            device: facts.dev(),
            inode: facts.ino(),
            size: facts.size(),
            modified: facts.modified().ok(),
        })
    }
}
