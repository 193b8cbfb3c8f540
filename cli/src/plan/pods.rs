//! Pods to plan with, as the agent would read them.

use std::path::{Path, PathBuf};

use winddown_shared::Pod;

use crate::{CommandError, Exit};
use winddown_config::Config;
use winddown_static_pods::{ManifestError, is_manifest, load_manifest};

/// The pods of a manifest, or of all in a directory.
pub(super) fn read(path: &Path, config: &Config) -> Result<Vec<Pod>, CommandError> {
    let files = if path.is_dir() { in_directory(path)? } else { vec![path.to_owned()] };
    let node = config.node_name_or(&winddown_machine::host::node_name());
    let pods = files.iter().map(|file| load_manifest(file, &node).map_err(refused));
    pods.collect()
}

fn in_directory(path: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    let unreadable = |error: std::io::Error| {
        let what = format!("{}: cannot be listed", path.display());
        CommandError::failure(anyhow::Error::new(error).context(what))
    };
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if is_manifest(&entry.file_name()) {
            files.push(entry.path());
        }
    }
    files.sort();
    if files.is_empty() {
        let why = "no pod is planned from here; a pod is a .yaml, .yml or .json file";
        let error = CommandError::message(Exit::Failure, format!("{}: {why}", path.display()));
        return Err(error.with_hint(format!(
            "give a manifest, or a directory with some: ls {}",
            path.display()
        )));
    }
    Ok(files)
}

fn refused(error: ManifestError) -> CommandError {
    let exit = match &error {
        ManifestError::Read { .. } | ManifestError::NotRegular { .. } => Exit::Failure,
        _ => Exit::ConfigInvalid,
    };
    CommandError::new(exit, error)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  \
                       - name: a\n    image: a\n";

    #[test]
    fn what_an_editor_left_is_no_manifest_here_as_it_is_none_to_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.yaml"), POD).unwrap();
        std::fs::write(dir.path().join("#a.yaml"), "half a fi").unwrap();
        std::fs::write(dir.path().join(".a.yaml"), "half a fi").unwrap();
        let pods = read(dir.path(), &Config::default()).unwrap();
        assert_eq!(pods.len(), 1);
    }

    #[test]
    fn a_pipe_among_the_manifests_is_an_error_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("a.yaml");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let error = read(dir.path(), &Config::default()).unwrap_err();
        assert_eq!(error.exit, Exit::Failure);
        let text = format!("{:#}", error.error);
        assert!(text.contains("a.yaml") && text.contains("named pipe"), "{text}");
    }

    #[test]
    fn a_file_without_an_end_is_read_only_as_far_as_a_manifest_goes() {
        let error = load_manifest(Path::new("/dev/zero"), "node1").map_err(refused).unwrap_err();
        assert_eq!(error.exit, Exit::Failure);
        let dir = tempfile::tempdir().unwrap();
        let huge = std::fs::File::create(dir.path().join("a.yaml")).unwrap();
        huge.set_len(1 << 40).unwrap();
        let error = read(dir.path(), &Config::default()).unwrap_err();
        assert_eq!(error.exit, Exit::ConfigInvalid);
    }
}
