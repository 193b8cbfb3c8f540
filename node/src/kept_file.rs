//! Small files, one per pod, for the next agent of this boot.
//!
//! They survive the agent but not the machine, so no write waits for a disk.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
pub(crate) use winddown_host::regular::MAX_OBJECT_BYTES as MOST_BYTES;
use winddown_host::{Durability, regular, replace_private};
use winddown_shared::{PodUid, error_chain};

/// The files' extension.
pub(crate) const ENDING: &str = "json";

/// The extension of a file that could not be read.
pub(crate) const SET_ASIDE: &str = "bad";

/// The file of the pod `uid` in `directory`.
///
/// # Errors
/// The UID, which comes from the API server, is not a safe file name. Kubernetes' own UIDs always are.
pub(crate) fn path(directory: &Path, uid: &PodUid) -> io::Result<PathBuf> {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if uid.as_str().is_empty() || uid.as_str().len() > 200 || !uid.as_str().bytes().all(valid) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the UID is no file name"));
    }
    Ok(directory.join(format!("{uid}.{ENDING}")))
}

/// Reads a file that [`write`] wrote, of at most so many bytes.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, most: u64) -> io::Result<T> {
    Ok(serde_json::from_slice(&regular::read(path, most)?)?)
}

/// Reads a file that [`write`] wrote, if it is there. One that cannot be read is set aside, and `problem` logged.
pub(crate) fn read_if_there<T: DeserializeOwned>(path: &Path, problem: &str) -> Option<T> {
    let kept = read(path, MOST_BYTES).inspect_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(file = %path.display(), error = error_chain(error), "{problem}; setting it aside");
            set_aside(path);
        }
    });
    kept.ok()
}

/// Renames a file that cannot be read, so that it is kept and no later agent takes it for true.
pub(crate) fn set_aside(path: &Path) {
    let _ = std::fs::rename(path, path.with_extension(SET_ASIDE));
}

pub(crate) fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|own| own == ending)
}

/// Replaces the file atomically; only its owner may read it. Creates its directory.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_text(path, &serde_json::to_vec(value)?)
}

/// The same for what is JSON already.
pub(crate) fn write_text(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    replace_private(path, Durability::Process, text)
}
