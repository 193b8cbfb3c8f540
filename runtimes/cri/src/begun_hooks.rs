//! The preStop hooks that have begun, in a directory that is empty after a boot: a hook runs at most once, even if the
//! agent is killed meanwhile. What a command has done by then is not known.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

/// One empty file for each container whose hook has begun.
#[derive(Debug, Default)]
pub(super) struct BegunHooks {
    /// `None` if they are not recorded.
    pub(super) directory: Option<PathBuf>,
}

impl BegunHooks {
    /// Records that the container's hook begins. Returns whether it had not begun before. A hook that cannot be recorded
    /// begins: one that runs twice is better than one that never does.
    pub(super) fn begin(&self, container_id: &str) -> bool {
        let Some(directory) = &self.directory else { return true };
        match record(directory, container_id) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => {
                let directory = directory.display();
                tracing::warn!(
                    "cannot record in {directory} that a preStop hook runs, which the next agent would run again: {error}"
                );
                true
            }
        }
    }
}

fn record(directory: &Path, container_id: &str) -> io::Result<()> {
    // An ID is a name of the container runtime's choice.
    let [Component::Normal(name)] = Path::new(container_id).components().collect::<Vec<_>>()[..]
    else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(name);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_that_another_agent_began_is_not_begun_again_and_one_that_cannot_be_recorded_is() {
        let dir = tempfile::tempdir().unwrap();
        let hooks = || BegunHooks { directory: Some(dir.path().join("begun")) };
        let (first, second) = (hooks(), hooks());
        assert!(first.begin("a1") && first.begin("b2"));
        assert!(!second.begin("a1") && !first.begin("b2"));
        assert!(second.begin("c3"));
        assert!(first.begin("../a1") && first.begin("../a1"), "no name of a file");
        assert!(!dir.path().join("a1").exists());
    }
}
