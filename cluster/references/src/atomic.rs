//! Writes a volume's files so that a container sees either all of the old ones or all of the new
//! ones. Blocking.
//!
//! The layout is the kubelet's, which programs that watch their configuration rely on:
//!
//! ```text
//! <volume>/..2026_11_20_10_00_00.123456789/key    the files, in a directory that is new each time
//! <volume>/..data -> ..2026_11_20_10_00_00.123456789
//! <volume>/key -> ..data/key                      what the container opens
//! ```
//!
//! The link `..data` is replaced in one step. Each write removes what an interrupted one left
//! behind.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat, readlinkat, renameat, symlinkat, unlinkat};
use rustix::io::Errno;
use winddown_host::regular::{self, OPEN};
use winddown_host::{if_exists, removal};
use winddown_shared::WallTime;

use super::payload::{File, Payload};

/// The link to the current directory.
const DATA: &str = "..data";
/// The name of the next `..data` until it is renamed into place.
const NEXT: &str = "..data_tmp";

/// Writes `payload` to the volume at `volume`, which is created if it does not exist, readable for
/// `group`. `now` names the directory. Returns false if the content was already the same.
///
/// The last two names of `volume`, the pod's and its own, are in directories that a pod may be able to write to: no link
/// there is followed.
///
/// # Errors
/// When a file, directory or link cannot be written. Until `..data` is replaced the old content stays.
pub(crate) fn write(
    volume: &Path,
    payload: &Payload,
    group: Option<u32>,
    now: WallTime,
) -> io::Result<bool> {
    write_in_steps(volume, payload, group, now, &mut |_| Ok(()))
}

/// The steps of a write. The machine may stop between any two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteStep {
    MadeDirectory,
    WroteFile,
    LinkedNext,
    Exchanged,
    LinkedFile,
    RemovedLink,
    RemovedOld,
}

fn write_in_steps(
    volume: &Path,
    payload: &Payload,
    group: Option<u32>,
    now: WallTime,
    step: &mut dyn FnMut(WriteStep) -> io::Result<()>,
) -> io::Result<bool> {
    let (root, below) = regular::split(volume, 2);
    let (Some(pod), Some(name)) = (below.parent(), below.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // Only its owner can enter it: a mount of the volume does not need access to its parents.
    let pod = regular::make_directory_below(root, pod, 0o700)?;
    let volume = &directory(&pod, name, group)?;
    let current =
        readlinkat(volume, DATA, Vec::new()).ok().and_then(|name| name.into_string().ok());
    let current = current.filter(|name| is_ours(name));
    let is_same =
        current.as_ref().is_some_and(|name| is_content(volume, name, payload, group).is_ok());
    let counts = match current.filter(|_| is_same) {
        Some(current) => current,
        None => {
            let (name, fresh) = new_directory(volume, group, now)?;
            step(WriteStep::MadeDirectory)?;
            fill(&fresh, payload, group, step)?;
            remove(volume, NEXT.as_ref())?;
            symlinkat(&name, volume, NEXT)?;
            step(WriteStep::LinkedNext)?;
            renameat(volume, NEXT, volume, DATA)?;
            step(WriteStep::Exchanged)?;
            name
        }
    };
    link_files(volume, payload, step)?;
    remove_others(volume, payload, &counts, step)?;
    Ok(!is_same)
}

fn fill(
    dir: &OwnedFd,
    payload: &Payload,
    group: Option<u32>,
    step: &mut dyn FnMut(WriteStep) -> io::Result<()>,
) -> io::Result<()> {
    for (path, file) in payload {
        let mut parent = dir.try_clone()?;
        let mut parts: Vec<&str> = path.split('/').collect();
        let name = parts.pop().unwrap_or_default();
        for part in parts {
            parent = directory(&parent, part.as_ref(), group)?;
        }
        write_file(&parent, name, file, group)?;
        step(WriteStep::WroteFile)?;
    }
    Ok(())
}

/// Writes a file that no other user can read before it has its owner and its mode.
fn write_file(dir: &OwnedFd, name: &str, file: &File, group: Option<u32>) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut out = fs::File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?);
    out.write_all(file.bytes.bytes())?;
    if file.owner.is_some() || group.is_some() {
        fchown(&out, file.owner, group)?;
    }
    out.set_permissions(Permissions::from_mode(file.mode))
}

/// Opens a directory of a volume, which is created if it does not exist, in place of a file or link.
fn directory(above: &OwnedFd, name: &OsStr, group: Option<u32>) -> io::Result<OwnedFd> {
    match openat(above, name, OPEN, Mode::empty()) {
        Err(Errno::NOENT) => {}
        // A link has the same error.
        Err(Errno::NOTDIR) => unlinkat(above, name, AtFlags::empty())?,
        found => return Ok(found?),
    }
    create(above, name, group)
}

/// Creates a directory, world-readable whatever the umask.
fn create(above: &OwnedFd, name: &OsStr, group: Option<u32>) -> io::Result<OwnedFd> {
    let made = regular::make_directory(above, name, 0o755)?;
    if group.is_some() {
        fchown(&made, None, group)?;
    }
    Ok(made)
}

/// Creates a directory that did not exist before and returns its name.
fn new_directory(
    volume: &OwnedFd,
    group: Option<u32>,
    now: WallTime,
) -> io::Result<(String, OwnedFd)> {
    let nanos = u64::try_from(now.as_nanosecond().rem_euclid(1_000_000_000)).unwrap_or(0);
    for attempt in 0_u64..1000 {
        let name = format!("..{}.{:09}", now.strftime("%Y_%m_%d_%H_%M_%S"), nanos + attempt);
        match create(volume, name.as_ref(), group) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((name, made?)),
        }
    }
    Err(io::Error::other("a thousand directories of this moment are there already"))
}

fn link_files(
    volume: &OwnedFd,
    payload: &Payload,
    step: &mut dyn FnMut(WriteStep) -> io::Result<()>,
) -> io::Result<()> {
    for name in top_names(payload) {
        let target = format!("{DATA}/{name}");
        let found = readlinkat(volume, name, Vec::new());
        if found.is_ok_and(|found| found.as_bytes() == target.as_bytes()) {
            continue;
        }
        remove(volume, name.as_ref())?;
        symlinkat(target, volume, name)?;
        step(WriteStep::LinkedFile)?;
    }
    Ok(())
}

/// Removes the links of files that no longer exist, and every directory except `counts`.
fn remove_others(
    volume: &OwnedFd,
    payload: &Payload,
    counts: &str,
    step: &mut dyn FnMut(WriteStep) -> io::Result<()>,
) -> io::Result<()> {
    let names: BTreeSet<OsString> = top_names(payload).map(OsString::from).collect();
    for entry in fs::read_dir(through(volume, ""))? {
        let name = entry?.file_name();
        let keep = name == DATA || name == counts || names.contains(&name);
        if !keep {
            remove(volume, name.as_ref())?;
            let is_link = !name.to_str().is_some_and(is_ours);
            step(if is_link { WriteStep::RemovedLink } else { WriteStep::RemovedOld })?;
        }
    }
    Ok(())
}

/// Succeeds if the directory `name` holds exactly these files, with these modes and owners.
fn is_content(
    volume: &OwnedFd,
    name: &str,
    payload: &Payload,
    group: Option<u32>,
) -> io::Result<()> {
    let differs = || io::Error::other("it differs");
    let dir = through(volume, name);
    for (path, file) in payload {
        let found = regular::open_below(&dir, Path::new(path))?;
        let meta = found.metadata()?;
        let has_rights = meta.mode() & 0o777 == file.mode
            && file.owner.is_none_or(|owner| owner == meta.uid())
            && group.is_none_or(|group| group == meta.gid());
        let bytes = file.bytes.bytes();
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if !has_rights || regular::read_open(&found, size)? != bytes {
            return Err(differs());
        }
    }
    let count = count_files(&dir)?;
    if count == payload.len() { Ok(()) } else { Err(differs()) }
}

fn count_files(dir: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

fn top_names(payload: &Payload) -> impl Iterator<Item = &str> {
    payload.keys().map(|path| path.split('/').next().unwrap_or(path))
}

/// Whether this is the name of a directory that the writer makes.
fn is_ours(name: &str) -> bool {
    name.starts_with("..") && name.len() > 2 && !name.contains('/')
}

/// Removes a file, link or directory without following links. It need not exist.
fn remove(volume: &OwnedFd, name: &Path) -> io::Result<()> {
    if_exists(removal::tree(&through(volume, name))).map(drop)
}

/// The path of what has this name in a directory, whatever has happened to the directory's own names.
fn through(directory: &OwnedFd, name: impl AsRef<Path>) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

#[cfg(test)]
mod tests;
