//! Files that credentials are read from, and whether they have changed since.

use std::io;
use std::path::{Path, PathBuf};

use winddown_host::{FileStamp, regular};

use super::error::CredentialsError;

/// The maximum size of a file of credentials. A bundle of every public authority is a fifth of it.
const MAX_CREDENTIALS_BYTES: u64 = 1 << 20;

/// The file tree of the first process, in whose place a unit's sandbox gives its service another one.
pub(super) const MACHINE: &str = "/proc/1/root";

/// The error of a file that the agent does not find, or that its unit's sandbox hides from it if `machine` has the file:
/// to install what is there would not help.
pub(super) fn unless_hidden(machine: &Path, path: &Path, error: io::Error) -> io::Error {
    let there = machine.join(path.strip_prefix("/").unwrap_or(path));
    match error.kind() {
        io::ErrorKind::NotFound if there.exists() => io::Error::other(
            "it is hidden by the unit's sandbox: `winddown doctor` says how to show it",
        ),
        _ => error,
    }
}

/// The files that were read, each with its state just before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files(Vec<(PathBuf, Option<FileStamp>)>);

// === impl Files ===

impl Files {
    /// Reads a file and remembers its state. Blocks.
    pub(super) fn read(
        &mut self,
        what: &'static str,
        path: &Path,
    ) -> Result<Vec<u8>, CredentialsError> {
        self.remember(path);
        let failed = |source| {
            let source = unless_hidden(Path::new(MACHINE), path, source);
            CredentialsError::Read { what, path: path.to_path_buf(), source }
        };
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
            self.0.push((path.to_path_buf(), FileStamp::at(path)));
        }
    }

    /// Whether one of the files has changed. Blocks.
    pub(super) fn changed(&self) -> bool {
        self.0.iter().any(|(path, stamp)| *stamp != FileStamp::at(path))
    }

    /// The files, for messages.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|(path, _)| path.display().to_string()).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The unit shows the agent no /home: advice to install what is there would be wrong.
    #[test]
    fn a_file_that_only_the_machine_sees_is_hidden_and_not_missing() {
        let machine = tempfile::tempdir().unwrap();
        let command = Path::new("/home/no-such-user/login");
        let told = |kind: io::ErrorKind| unless_hidden(machine.path(), command, kind.into());
        assert_eq!(told(io::ErrorKind::NotFound).kind(), io::ErrorKind::NotFound);
        let there = machine.path().join("home/no-such-user");
        std::fs::create_dir_all(&there).unwrap();
        std::fs::write(there.join("login"), "").unwrap();
        let hidden = told(io::ErrorKind::NotFound);
        assert_eq!(
            hidden.to_string(),
            "it is hidden by the unit's sandbox: `winddown doctor` says how to show it"
        );
        assert_ne!(hidden.kind(), io::ErrorKind::NotFound, "it is not awaited like a missing one");
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!(told(denied).kind(), denied);
    }
}
