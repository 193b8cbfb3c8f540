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
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, symlink,
};
use std::path::{Path, PathBuf};

use winddown_host::if_exists;
use winddown_shared::WallTime;

use super::payload::{File, Payload};

/// The link to the current directory.
const DATA: &str = "..data";
/// The name of the next `..data` until it is renamed into place.
const NEXT: &str = "..data_tmp";

/// Writes `payload` to the volume at `volume`, which is created if it does not exist, readable for
/// `group`. `now` names the directory. Returns false if the content was already the same.
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
    directory(volume, group)?;
    let current = fs::read_link(volume.join(DATA)).ok().filter(|target| is_ours(target));
    let is_same =
        current.as_ref().is_some_and(|c| is_content(&volume.join(c), payload, group).is_ok());
    let counts = match current.filter(|_| is_same) {
        Some(current) => current,
        None => {
            let fresh = new_directory(volume, group, now)?;
            step(WriteStep::MadeDirectory)?;
            fill(&volume.join(&fresh), payload, group, step)?;
            let next = volume.join(NEXT);
            remove(&next)?;
            symlink(&fresh, &next)?;
            step(WriteStep::LinkedNext)?;
            fs::rename(&next, volume.join(DATA))?;
            step(WriteStep::Exchanged)?;
            fresh
        }
    };
    link_files(volume, payload, step)?;
    remove_others(volume, payload, &counts, step)?;
    Ok(!is_same)
}

fn fill(
    dir: &Path,
    payload: &Payload,
    group: Option<u32>,
    step: &mut dyn FnMut(WriteStep) -> io::Result<()>,
) -> io::Result<()> {
    for (path, file) in payload {
        let mut parent = dir.to_owned();
        let mut parts: Vec<&str> = path.split('/').collect();
        let name = parts.pop().unwrap_or_default();
        for part in parts {
            parent.push(part);
            directory(&parent, group)?;
        }
        write_file(&parent.join(name), file, group)?;
        step(WriteStep::WroteFile)?;
    }
    Ok(())
}

/// Writes a file that no other user can read before it has its owner and its mode.
fn write_file(path: &Path, file: &File, group: Option<u32>) -> io::Result<()> {
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    out.write_all(file.bytes.bytes())?;
    if file.owner.is_some() || group.is_some() {
        chown(path, file.owner, group)?;
    }
    out.set_permissions(Permissions::from_mode(file.mode))
}

/// Creates a directory of a volume, world-readable whatever the umask, in place of a file or link.
fn directory(path: &Path, group: Option<u32>) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => fs::remove_file(path)?,
        Err(_) => {}
    }
    DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    if group.is_some() {
        chown(path, None, group)?;
    }
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// Creates a directory that did not exist before and returns its name.
fn new_directory(volume: &Path, group: Option<u32>, now: WallTime) -> io::Result<PathBuf> {
    let nanos = u64::try_from(now.as_nanosecond().rem_euclid(1_000_000_000)).unwrap_or(0);
    for attempt in 0_u64..1000 {
        let name = format!("..{}.{:09}", now.strftime("%Y_%m_%d_%H_%M_%S"), nanos + attempt);
        let path = volume.join(&name);
        match DirBuilder::new().mode(0o755).create(&path) {
            Ok(()) => {
                if group.is_some() {
                    chown(&path, None, group)?;
                }
                fs::set_permissions(&path, Permissions::from_mode(0o755))?;
                return Ok(name.into());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("a thousand directories of this moment are there already"))
}

fn link_files(
    volume: &Path,
    payload: &Payload,
    step: &mut dyn FnMut(WriteStep) -> io::Result<()>,
) -> io::Result<()> {
    for name in top_names(payload) {
        let (link, target) = (volume.join(name), Path::new(DATA).join(name));
        if fs::read_link(&link).is_ok_and(|found| found == target) {
            continue;
        }
        remove(&link)?;
        symlink(target, &link)?;
        step(WriteStep::LinkedFile)?;
    }
    Ok(())
}

/// Removes the links of files that no longer exist, and every directory except `counts`.
fn remove_others(
    volume: &Path,
    payload: &Payload,
    counts: &Path,
    step: &mut dyn FnMut(WriteStep) -> io::Result<()>,
) -> io::Result<()> {
    let names: BTreeSet<OsString> = top_names(payload).map(OsString::from).collect();
    for entry in fs::read_dir(volume)? {
        let name = entry?.file_name();
        let keep = name == DATA || name == counts.as_os_str() || names.contains(&name);
        if !keep {
            remove(&volume.join(&name))?;
            let is_link = !is_ours(Path::new(&name));
            step(if is_link { WriteStep::RemovedLink } else { WriteStep::RemovedOld })?;
        }
    }
    Ok(())
}

/// Succeeds if the directory holds exactly these files, with these modes and owners.
fn is_content(dir: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    let differs = || io::Error::other("it differs");
    for (path, file) in payload {
        let mut found = OpenOptions::new().read(true).open(dir.join(path))?;
        let meta = found.metadata()?;
        let has_rights = meta.mode() & 0o777 == file.mode
            && file.owner.is_none_or(|owner| owner == meta.uid())
            && group.is_none_or(|group| group == meta.gid());
        let size = u64::try_from(file.bytes.bytes().len()).unwrap_or(u64::MAX);
        if !meta.is_file() || !has_rights || meta.len() != size {
            return Err(differs());
        }
        let mut bytes = Vec::with_capacity(file.bytes.bytes().len());
        found.read_to_end(&mut bytes)?;
        if bytes != file.bytes.bytes() {
            return Err(differs());
        }
    }
    let count = count_files(dir)?;
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
fn is_ours(target: &Path) -> bool {
    target
        .to_str()
        .is_some_and(|name| name.starts_with("..") && name.len() > 2 && !name.contains('/'))
}

/// Removes a file, link or directory without following links. It need not exist.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    if_exists(removed).map(drop)
}

#[cfg(test)]
mod tests;
