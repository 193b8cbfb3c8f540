//! Opens and reads regular files that others may have replaced.
//!
//! Whoever may write to a directory can put a link, a pipe or a device in place of a file: the link leads to a file of
//! root's, opening the pipe waits for its other end, and opening a device may have effects of its own. Nothing here
//! opens a name for reading before the kernel has said that it is a regular file, so none of that can happen.
//! `clippy.toml` forbids the calls of the standard library that do it.
//!
//! Every call blocks for as long as the file system does; a caller that must not wait uses [`OneThread`].
//!
//! [`OneThread`]: crate::OneThread

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, fstat, open as open_name, openat};

/// A file that may be as large as a configuration: 1 MiB.
pub const CONFIGURATION: u64 = 1024 * 1024;

/// Opens a regular file for reading, wherever the links of its path lead: for files whose path only root can change.
///
/// # Errors
/// The file does not exist, cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    readable(|flags| open_name(path, flags, Mode::empty()))
}

/// Opens the regular file `name` below `directory` for reading. Only the links in `directory` itself are followed: for
/// directories in which a pod, or another user, may write. `name` is relative, without `..`.
///
/// # Errors
/// As [`open`]; also if `name` leads out of `directory`, or has a link in it.
pub fn open_below(directory: &Path, name: &Path) -> io::Result<File> {
    let (parent, name) = (name.parent().unwrap_or(Path::new("")), name.file_name());
    let name = name.ok_or(io::ErrorKind::InvalidInput)?;
    let parent = directory_below(directory, parent)?;
    readable(|flags| openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty()))
}

/// Opens the directory `name` below `directory`, without following links in `name`: to rename or remove files in it.
/// The descriptor is `O_PATH`.
///
/// # Errors
/// It does not exist, is not a directory, leads out of `directory`, or has a link in it.
pub fn directory_below(directory: &Path, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = open_name(directory, flags, Mode::empty())?;
    // One name at a time: `RestrictSUIDSGID=` denies openat2, which would do it in one call.
    for part in name.components() {
        let part = match part {
            Component::Normal(part) => part,
            Component::CurDir => continue,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        here = openat(here.as_fd(), part, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(here)
}

/// Reads a regular file of at most `most` bytes. Links are followed, as by [`open`].
///
/// # Errors
/// As [`open`]; also if the file cannot be read, or is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it is larger than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `most` bytes as text. Links are followed, as by [`open`].
///
/// # Errors
/// As [`read`]; also if it is not UTF-8.
pub fn read_to_string(path: &Path, most: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, most)?);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Reads the first bytes of a regular file, at most `most`. Links are followed, as by [`open`].
///
/// # Errors
/// As [`open`]; also if the file cannot be read.
pub fn read_first(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a name for reading with `open`, which adds flags of its own, if it names a regular file before and after.
fn readable(open: impl Fn(OFlags) -> rustix::io::Result<OwnedFd>) -> io::Result<File> {
    // To name a thing is not to open it: nothing happens to a pipe or a device.
    must_be_regular(&open(OFlags::PATH | OFlags::CLOEXEC)?)?;
    // What took its place since is not waited for either.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let found = open(flags)?;
    must_be_regular(&found)?;
    Ok(found.into())
}

fn must_be_regular(found: &OwnedFd) -> io::Result<()> {
    let what = match FileType::from_raw_mode(fstat(found)?.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something else",
    };
    let kind = io::ErrorKind::InvalidInput;
    Err(io::Error::new(kind, format!("it is {what}, not a regular file")))
}

#[cfg(test)]
mod tests;
