//! The preStop hooks that have begun, in a directory that is empty after a boot: a hook runs at most once, even if the
//! agent is killed meanwhile. What a command has done by then is not known.

use std::collections::HashSet;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use winddown_engine::files;
use winddown_shared::Mutex;

/// What is in the file of a container whose hook another program runs.
const FOREIGN: &str = "kubelet";

/// One file for each container whose hook has begun.
#[derive(Debug, Default)]
pub(super) struct BegunHooks {
    /// `None` if they are not recorded.
    directory: Option<PathBuf>,
    /// The names of the files.
    begun: Mutex<HashSet<String>>,
    /// Those that an earlier agent found begun by another program.
    foreign: HashSet<String>,
}

impl BegunHooks {
    /// Records them in `directory`, which may have files of an earlier agent. Blocking.
    pub(super) fn recorded_in(directory: PathBuf) -> Self {
        let files = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let begun = files.filter_map(|file| file.file_name().into_string().ok());
        let begun: HashSet<String> = begun.collect();
        let is_foreign = |id: &&String| {
            files::read_note(&directory.join(id)).is_ok_and(|found| found == FOREIGN.as_bytes())
        };
        let foreign = begun.iter().filter(is_foreign).cloned().collect();
        Self { directory: Some(directory), begun: Mutex::new(begun), foreign }
    }

    /// Whether an earlier agent has found that another program runs hooks of some container.
    pub(super) fn has_foreign(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// Whether an earlier agent has found that another program runs this container's hook.
    pub(super) fn is_foreign(&self, container_id: &str) -> bool {
        self.foreign.contains(container_id)
    }

    /// The containers whose hook has begun.
    pub(super) fn all(&self) -> HashSet<String> {
        self.begun.lock().clone()
    }

    /// Forgets those of `begun` that the runtime has listed no more since: a container does not come back.
    pub(super) fn forget_gone<'a>(
        &self,
        begun: &HashSet<String>,
        listed: impl IntoIterator<Item = &'a str>,
    ) {
        let Some(directory) = self.directory.as_ref().filter(|_| !begun.is_empty()) else { return };
        let listed: HashSet<&str> = listed.into_iter().collect();
        for id in begun.iter().filter(|id| !listed.contains(&***id)) {
            self.begun.lock().remove(id);
            // If this fails, the next agent finds the file.
            let _ = std::fs::remove_file(directory.join(id));
        }
    }

    /// Records that the container's hook begins. Returns whether it had not begun before. A hook that cannot be recorded
    /// begins: one that runs twice is better than one that never does.
    pub(super) fn begin(&self, container_id: &str) -> bool {
        self.begin_as(container_id, "")
    }

    /// Records that another program runs the container's hook.
    pub(super) fn begins_elsewhere(&self, container_id: &str) {
        self.begin_as(container_id, FOREIGN);
    }

    fn begin_as(&self, container_id: &str, who: &str) -> bool {
        let Some(directory) = &self.directory else { return true };
        match record(directory, container_id, who) {
            Ok(()) => {
                self.begun.lock().insert(container_id.to_owned());
                true
            }
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

fn record(directory: &Path, container_id: &str, who: &str) -> io::Result<()> {
    // An ID is a name of the container runtime's choice.
    let [Component::Normal(name)] = Path::new(container_id).components().collect::<Vec<_>>()[..]
    else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(who.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_that_another_agent_began_is_not_begun_again_and_one_that_cannot_be_recorded_is() {
        let dir = tempfile::tempdir().unwrap();
        let hooks = || BegunHooks::recorded_in(dir.path().join("begun"));
        let (first, second) = (hooks(), hooks());
        assert!(first.begin("a1") && first.begin("b2"));
        assert!(!second.begin("a1") && !first.begin("b2"));
        assert!(second.begin("c3"));
        assert!(first.begin("../a1") && first.begin("../a1"), "no name of a file");
        assert!(!dir.path().join("a1").exists());
        first.begins_elsewhere("d4");
        let third = hooks();
        assert!(third.has_foreign() && third.is_foreign("d4") && !third.is_foreign("a1"));
        assert!(!third.begin("d4"));
    }

    #[test]
    fn no_file_is_left_of_a_container_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let first = BegunHooks::recorded_in(dir.path().to_owned());
        assert!(first.begin("a1") && first.begin("b2"));
        let second = BegunHooks::recorded_in(dir.path().to_owned());
        let begun = second.all();
        // It was not there yet when the containers were listed.
        assert!(second.begin("c3"));
        second.forget_gone(&begun, ["b2"]);
        assert_eq!(files(), 2);
        assert!(!second.begin("b2") && !second.begin("c3"));
        second.forget_gone(&second.all(), []);
        assert_eq!((files(), second.all().len()), (0, 0));
    }
}
