//! Writes and removes the agent's own drop-in.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use winddown_host::{Durability, link_in_root, regular};
use winddown_shared::{error_chain, seconds_up};

use super::name_of;

const TEMPLATE: &str = include_str!("../../units/logind.conf.d/zz-agent.conf");

/// The directories for the drop-in. The second one does not survive a reboot; it is for nodes whose
/// /etc is read-only.
const PLACES: [&str; 2] = ["/etc/systemd/logind.conf.d", "/run/systemd/logind.conf.d"];

/// The result of [`write()`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Written {
    /// The file was written.
    Changed {
        /// Its path on the node.
        file: PathBuf,
    },
    /// The file already has this content.
    Unchanged {
        /// Its path on the node.
        file: PathBuf,
    },
}

/// Why the drop-in could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An administrator masked the drop-in, so the agent must not set the delay.
    #[error("{} is linked to /dev/null, so {owner} does not set logind's delay", file.display())]
    Masked {
        /// The agent's name.
        owner: String,
        /// Its path on the node.
        file: PathBuf,
    },
    /// The drop-in exists and cannot be removed.
    #[error(
        "cannot remove {}, which makes logind's delay shorter than it is without; remove it",
        file.display()
    )]
    Stays {
        /// Its path on the node.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Neither directory can be written to, or the drop-in in /etc cannot be replaced: it hides one in /run.
    #[error("cannot write {}; it has to be writable in /etc or, where /etc has none, in /run", file.display())]
    Failed {
        /// The path tried last (on the node).
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Returns the content of the drop-in of the agent `owner` that sets `delay`, rounded up to whole seconds.
pub fn content(owner: &str, delay: Duration) -> String {
    let delay = seconds_up(delay).to_string();
    TEMPLATE.replace("@OWNER@", &one_line(owner)).replace("@DELAY@", &delay)
}

/// The name as a comment can have it.
fn one_line(owner: &str) -> String {
    owner.split(char::is_control).collect()
}

/// Writes the drop-in of the agent `owner` for `delay` below `root`, in /etc or, if that fails and /etc has none, in /run.
///
/// The change is atomic, and on disk when this returns: logind sees the old file or the new one,
/// also after a loss of power. Blocks on the file system.
///
/// # Errors
/// [`WriteError`]. The old file, if there is one, is intact.
pub fn write(root: &Path, owner: &str, delay: Duration) -> Result<Written, WriteError> {
    let text = content(owner, delay);
    let [first, second] = PLACES;
    match write_in(root, first, owner, &text) {
        Err(WriteError::Failed { file, source })
            if fs::symlink_metadata(link_in_root(root, &file)).is_err() =>
        {
            tracing::debug!(file = %file.display(), error = error_chain(&source), "trying /run instead");
            write_in(root, second, owner, &text)
        }
        done => done,
    }
}

/// Removes the drop-in of the agent `owner` from both directories below `root`, and returns the path it had on
/// the node. Keeps a link to /dev/null, and a file of that name whose first line does not name that
/// agent. Blocks on the file system.
///
/// # Errors
/// [`WriteError::Stays`].
pub fn remove(root: &Path, owner: &str) -> Result<Option<PathBuf>, WriteError> {
    let mut removed = None;
    for place in PLACES {
        let file = Path::new(place).join(name_of(owner));
        if !is_signed(&link_in_root(root, &file), owner) {
            continue;
        }
        let path = link_in_root(root, &file);
        match fs::remove_file(&path).and_then(|()| sync_directory(&path)) {
            Ok(()) => removed = removed.or(Some(file)),
            Err(source) => return Err(WriteError::Stays { file, source }),
        }
    }
    Ok(removed)
}

/// Whether the agent's drop-in exists in one of its directories.
pub(super) fn is_there(root: &Path, owner: &str) -> bool {
    let name = name_of(owner);
    PLACES.iter().any(|place| is_signed(&link_in_root(root, &Path::new(place).join(&name)), owner))
}

/// Whether the file's first line names the agent.
fn is_signed(path: &Path, owner: &str) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    let text = if is_file {
        regular::read(path, regular::MAX_CONFIGURATION_BYTES).unwrap_or_default()
    } else {
        Vec::new()
    };
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    first.starts_with(b"#") && String::from_utf8_lossy(first).contains(&one_line(owner))
}

fn write_in(root: &Path, place: &str, owner: &str, text: &str) -> Result<Written, WriteError> {
    let file = Path::new(place).join(name_of(owner));
    let path = link_in_root(root, &file);
    if fs::read_link(&path).is_ok_and(|target| target == Path::new("/dev/null")) {
        return Err(WriteError::Masked { owner: owner.to_owned(), file });
    }
    if regular::read(&path, regular::MAX_CONFIGURATION_BYTES)
        .is_ok_and(|old| old == text.as_bytes())
    {
        return Ok(Written::Unchanged { file });
    }
    match replace(&path, text) {
        Ok(()) => Ok(Written::Changed { file }),
        Err(source) => Err(WriteError::Failed { file, source }),
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    // The temporary file is hidden, so logind never reads a half-written one.
    winddown_host::replace(path, 0o644, Durability::PowerCut, text.as_bytes())
}

fn sync_directory(file: &Path) -> io::Result<()> {
    let directory = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    winddown_host::sync_directory(directory)
}

#[cfg(test)]
mod tests;
