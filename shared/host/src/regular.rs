//! Opens, reads, creates and removes regular files that others may have replaced.
//!
//! Whoever may write to a directory can put a link, a pipe or a device in place of a file: the link leads to a file of
//! root's, opening the pipe waits for its other end, and opening a device may have effects of its own. Nothing here
//! opens a name for reading before the kernel has said that it is a regular file, so none of that can happen.
//! `clippy.toml` forbids the calls of the standard library that do it.
//!
//! Every call blocks for as long as the file system does; a caller that must not wait uses [`OneThread`].
//!
//! [`OneThread`]: crate::OneThread

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fchmod, fcntl_setfl, fstat, mkdirat, open as open_name,
    openat, statat, unlinkat,
};
use rustix::io::Errno;

/// A file that may be as large as a configuration: 1 MiB.
pub const MAX_CONFIGURATION_BYTES: u64 = 1024 * 1024;
/// More bytes than any object of an API server takes as JSON: etcd takes up to 1.5 MiB, and a byte may become six
/// (`<` is `\u003c`).
pub const MAX_OBJECT_BYTES: u64 = 16 << 20;

/// How a directory of a pod is opened: never through a link.
pub const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a regular file for reading, wherever the links of its path lead: for files whose path only root can change.
///
/// # Errors
/// The file does not exist, cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    readable(|flags| open_name(path, flags, Mode::empty()))
}

/// Opens a regular file for reading, as [`open`], but not if `path` itself is a link.
///
/// # Errors
/// As [`open`]; also if it is a link.
pub fn open_no_link(path: &Path) -> io::Result<File> {
    readable(|flags| open_name(path, flags | OFlags::NOFOLLOW, Mode::empty()))
}

/// Opens the regular file `name` below `directory` for reading. Only links above `directory` are followed: for
/// directories in which, or in whose place, a pod or another user may put one. `name` is relative, without `..`.
///
/// # Errors
/// As [`open`]; also if `name` leads out of `directory`, or it or `directory` is a link or has one in it.
pub fn open_below(directory: &Path, name: &Path) -> io::Result<File> {
    let (parent, name) = parent_below(directory, name)?;
    readable(|flags| openat(&parent, &name, flags | OFlags::NOFOLLOW, Mode::empty()))
}

/// Opens the regular file `name` below `directory` for appending, as [`open_below`] does for reading. If it does not
/// exist, it is created with `mode`, of which the umask takes away; its directory has to exist.
///
/// # Errors
/// As [`open_below`]; also if the file cannot be created.
pub fn append_below(directory: &Path, name: &Path, mode: u32) -> io::Result<File> {
    let (parent, name) = parent_below(directory, name)?;
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&parent, &name, flags | OFlags::PATH, Mode::empty()) {
        // As for reading: what opening a pipe or a device does is not found out.
        Ok(found) => must_be_regular(&found)?,
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = flags | OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let found = openat(&parent, &name, flags, Mode::from_raw_mode(mode))?;
    must_be_regular(&found)?;
    Ok(found.into())
}

/// Removes the file `name` below `directory`, which may be anything but a directory. Only links above `directory` are
/// followed.
///
/// # Errors
/// It does not exist, cannot be removed, or there is a link on the way to it.
pub fn remove_below(directory: &Path, name: &Path) -> io::Result<()> {
    let (parent, name) = parent_below(directory, name)?;
    Ok(unlinkat(&parent, &name, AtFlags::empty())?)
}

/// Opens the directory `name` below `directory`, as [`directory_below`] does. What is missing of `name` is created with
/// `mode`, whatever the umask is.
///
/// # Errors
/// As [`directory_below`]; also if a directory cannot be created.
pub fn make_directory_below(directory: &Path, name: &Path, mode: u32) -> io::Result<OwnedFd> {
    let mut here = directory_below(directory, Path::new(""))?;
    for part in parts(name) {
        let part = part?;
        match make_directory(&here, part, mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => here = enter(&here, part)?,
        }
    }
    Ok(here)
}

/// Creates the directory `name` in `above` with `mode`, whatever the umask is, and opens it.
///
/// # Errors
/// It exists, or cannot be created.
pub fn make_directory(above: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
    mkdirat(above, name, Mode::from_raw_mode(mode))?;
    let made = openat(above, name, OPEN, Mode::empty())?;
    fchmod(&made, Mode::from_raw_mode(mode))?;
    Ok(made)
}

/// Splits `path` before its last `names` names, for the calls that take a directory and what is below it: the
/// directory is only root's, and in what is below it a pod may write.
pub fn split(path: &Path, names: usize) -> (&Path, &Path) {
    let directory = path.ancestors().take(names.saturating_add(1)).last().unwrap_or(path);
    let below = path.strip_prefix(directory).unwrap_or(path);
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    (directory, below)
}

/// Opens the directory `name` below `directory`, following only links above `directory`: to rename or remove files in it.
/// The descriptor is `O_PATH`.
///
/// # Errors
/// It does not exist, is not a directory, leads out of `directory`, or is a link or has one in it.
pub fn directory_below(directory: &Path, name: &Path) -> io::Result<OwnedFd> {
    // Who may write beside `directory` can put a link in its place.
    let (above, own) = split(directory, 1);
    let mut here = open_name(above, ENTER, Mode::empty())?;
    // One name at a time: `RestrictSUIDSGID=` denies openat2, which would do it in one call.
    for part in parts(own).chain(parts(name)) {
        here = enter(&here, part?)?;
    }
    Ok(here)
}

/// As [`directory_below`], but the descriptor can also list the directory and change its mode.
///
/// # Errors
/// As [`directory_below`]; also if the directory cannot be read.
pub fn open_directory_below(directory: &Path, name: &Path) -> io::Result<OwnedFd> {
    let found = directory_below(directory, name)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&found, ".", flags, Mode::empty())?)
}

/// Reads a regular file of at most `most` bytes. Links are followed, as by [`open`].
///
/// # Errors
/// As [`open`]; also if the file cannot be read, or is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_open(&open(path)?, most)
}

/// Reads an open file to its end, at most `most` bytes.
///
/// # Errors
/// The file cannot be read, or is larger.
pub fn read_open(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
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
    text(read(path, most)?)
}

/// The text of a file's content.
///
/// # Errors
/// It is not UTF-8.
pub fn text(content: Vec<u8>) -> io::Result<String> {
    let text = String::from_utf8(content);
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

/// The directory of the file `name` below `directory`, and the file's own name.
fn parent_below(directory: &Path, name: &Path) -> io::Result<(OwnedFd, OsString)> {
    let own = name.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    Ok((directory_below(directory, name.parent().unwrap_or(Path::new("")))?, own))
}

/// The names in a path that leads nowhere but down.
fn parts(name: &Path) -> impl Iterator<Item = io::Result<&OsStr>> {
    name.components().filter_map(|part| match part {
        Component::Normal(part) => Some(Ok(part)),
        Component::CurDir => None,
        _ => Some(Err(io::ErrorKind::InvalidInput.into())),
    })
}

/// How a directory is opened to go through it.
const ENTER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens the directory `name` in `above`. A link has the error of what is no directory.
fn enter(above: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let error = match openat(above, name, ENTER | OFlags::NOFOLLOW, Mode::empty()) {
        Err(error @ Errno::NOTDIR) => error,
        entered => return Ok(entered?),
    };
    let found = statat(above, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| error)?;
    let what = format!("{} is {}, not a directory", name.display(), kind_of(found.st_mode));
    Err(io::Error::new(io::ErrorKind::NotADirectory, what))
}

/// Opens a name for reading with `open`, which adds flags of its own, if it names a regular file before and after.
fn readable(open: impl Fn(OFlags) -> rustix::io::Result<OwnedFd>) -> io::Result<File> {
    // To name a thing is not to open it: nothing happens to a pipe or a device.
    must_be_regular(&open(OFlags::PATH | OFlags::CLOEXEC)?)?;
    // What took its place since is not waited for either.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let found = open(flags)?;
    must_be_regular(&found)?;
    // To note the time of a read is a write, for which it waits where the disk is busy. Of the files of others the kernel
    // lets only CAP_FOWNER do without.
    let _ = fcntl_setfl(&found, OFlags::NONBLOCK | OFlags::NOATIME);
    Ok(found.into())
}

fn must_be_regular(found: &OwnedFd) -> io::Result<()> {
    let mode = fstat(found)?.st_mode;
    if FileType::from_raw_mode(mode) == FileType::RegularFile {
        return Ok(());
    }
    let what = format!("it is {}, not a regular file", kind_of(mode));
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// What a file of this mode is, in words.
fn kind_of(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something else",
    }
}

#[cfg(test)]
mod tests;
