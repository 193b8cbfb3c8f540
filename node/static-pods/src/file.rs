//! The files in the directory.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use winddown_host::{FileStamp, regular};

use super::ManifestError;

/// The role of a directory entry according to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryRole {
    Manifest,
    /// A copy that a program made for itself, and what that is. It is named, not read: it may be half written, or what
    /// was to be replaced.
    Copy(&'static str),
    /// Hidden: its name begins with a dot. The kubelet reads every other name, too.
    Hidden,
}

/// The ends of names that programs give to copies of their own.
const COPIES: [(&str, &[&str]); 4] = [
    ("an editor's backup", &["~", ".save"]),
    ("an editor's swap file", &[".swp", ".swo", ".swx"]),
    (
        "a temporary file",
        &[".tmp", ".part", "___jb_tmp___", "___jb_old___", ".dpkg-new", ".dpkg-tmp"],
    ),
    (
        "a copy of a package manager",
        &[
            ".dpkg-dist",
            ".dpkg-old",
            ".dpkg-bak",
            ".dpkg-remove",
            ".ucf-dist",
            ".ucf-new",
            ".ucf-old",
            ".rpmnew",
            ".rpmorig",
            ".rpmsave",
        ],
    ),
];

/// The state of the file with a given name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    Missing,
    Regular(FileStamp),
    /// Not a regular file; says what it is instead.
    Special(&'static str),
    /// A link that leads nowhere, yet: what it leads to may be mounted later.
    Dangling,
    Unreadable(io::ErrorKind),
}

// === impl EntryRole ===

impl EntryRole {
    pub(super) fn of(name: &OsStr) -> Self {
        let bytes = name.as_bytes();
        let ends = |endings: &[&str]| endings.iter().any(|end| bytes.ends_with(end.as_bytes()));
        match bytes {
            [b'.', ..] => Self::Hidden,
            [b'#', ..] => Self::Copy("an editor's unsaved text"),
            // vim creates it to try whether it may.
            b"4913" => Self::Copy("a temporary file"),
            _ => COPIES
                .iter()
                .find(|(_, endings)| ends(endings))
                .map_or(Self::Manifest, |(kind, _)| Self::Copy(kind)),
        }
    }
}

// === impl FileState ===

impl FileState {
    /// Checks `path`, following links, without opening it.
    pub(super) fn of(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(meta) => match special(&meta) {
                Some(kind) => Self::Special(kind),
                None => Self::Regular(FileStamp::of(&meta)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match fs::symlink_metadata(path) {
                    Ok(_) => Self::Dangling,
                    Err(_) => Self::Missing,
                }
            }
            Err(error) => Self::Unreadable(error.kind()),
        }
    }
}

fn special(meta: &Metadata) -> Option<&'static str> {
    let kind = meta.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a named pipe"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a device"),
    }
}

/// Reads a manifest without ever waiting for a writer.
///
/// # Errors
/// The file cannot be read, or is not a regular file. A file that is too large is only read far enough to know that.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ManifestError> {
    let read = regular::open(path).and_then(winddown_yaml::read);
    read.map_err(|source| ManifestError::Read { path: path.to_owned(), source: Arc::new(source) })
}
