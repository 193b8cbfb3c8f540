//! Mounts and directories below a pod's directory, and safe access to parts of a volume.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, unmount};
use winddown_host::{if_exists, kernel, mounts, regular};

use super::tree::{Bounds, DirectoryTree, NewDirectory, SET_GROUP_ID, change_mode};

/// The mode of an `emptyDir` that is not complete yet: it can be listed but not entered, which no pod wants of its own.
pub(super) const UNFINISHED: u32 = 0o400;
/// A volume in memory has room for one inode for each of so many bytes: about what the kernel needs for one.
const INODE_BYTES: i64 = 1024;
/// The inodes of the smallest volume.
const LEAST_INODES: i64 = 1024;

/// Ensures that a mount that was just made at `path` is visible to other processes. A service with a mount
/// namespace of its own (`PrivateMounts=`, `ProtectSystem=`) makes mounts that a runtime never sees,
/// and its containers would get the empty directory below.
///
/// # Errors
/// The mount is not visible, and was removed again.
fn ensure_shared(path: &Path) -> io::Result<()> {
    // The runtime sees the mounts of process 1, also from a mount namespace of its own (OpenShift's `kubens.service`), into
    // which they propagate. If process 1 is hidden, the check fails as if the mount were.
    let seen = kernel::read("/proc/1/mountinfo")
        .is_ok_and(|text| mounts(&text).any(|mount| mount.point == path));
    if seen {
        return Ok(());
    }
    let _ = unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    let why = "a mount made by this service is not seen by others: its unit hides it \
               (PrivateMounts=, ProtectSystem=) or hides process 1 (ProtectProc=)";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Mounts a tmpfs with the mode [`UNFINISHED`] at the directory `path`, of at most `size` bytes of content; `None` for
/// the kernel's limit. Where the kernel allows that, nothing in it is swapped out. An existing mount stays as it is. The
/// kernel needs about as much again for names and inodes at most.
///
/// # Errors
/// `path` is not a directory, or a link below the pods' directories leads to it; `PermissionDenied` if this process may
/// not mount, or if its mounts are not visible to others.
pub(super) fn memory(path: &Path, size: Option<i64>) -> io::Result<()> {
    if is_mount_point(path)? {
        return Ok(());
    }
    let size = size.map(|bytes| {
        format!("size={bytes},nr_inodes={},", (bytes / INODE_BYTES).max(LEAST_INODES))
    });
    let options = format!("{}mode={UNFINISHED:o}", size.unwrap_or_default());
    // `UID/volumes/NAME`
    let (pods, name) = regular::split(path, 3);
    let place = regular::directory_below(pods, name)?;
    let mount = |options: String| {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", through(&place), "tmpfs", flags, &*CString::new(options)?)
            .map_err(io::Error::from)
    };
    // KEP-2400. A kernel before 6.4 does not know the option.
    match mount(format!("{options},noswap")) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => mount(options)?,
        mounted => mounted?,
    }
    ensure_shared(path)
}

/// Completes the `emptyDir` at `path`, which has its group: everybody may use it, and what is created in it belongs to
/// that group.
///
/// # Errors
/// As [`memory`]; `PermissionDenied` if this process may not set the set-group-ID bit, and nothing was changed.
pub(super) fn open_to_group(path: &Path) -> io::Result<()> {
    // `UID/volumes/NAME`
    let (pods, name) = regular::split(path, 3);
    let made = regular::open_directory_below(pods, name)?;
    // First the bit: a directory that can be entered counts as complete.
    change_mode(&made, SET_GROUP_ID | UNFINISHED)?;
    Ok(change_mode(&made, SET_GROUP_ID | 0o777)?)
}

/// The path of what a descriptor refers to, whatever has happened to its name.
fn through(place: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", place.as_raw_fd())
}

/// Whether something is mounted at `path` itself.
pub(super) fn is_mount_point(path: &Path) -> io::Result<bool> {
    let text = kernel::read("/proc/self/mountinfo")?;
    Ok(mounts(&text).any(|mount| mount.point == path))
}

/// Bind-mounts the part `sub` of the volume at `volume`, a path of the host, to `target`. If `sub` does not exist,
/// directories are created with the volume's mode and owner. An existing mount stays if it is
/// still the same file; a volume with content from the API gets new directories for new content.
///
/// The part is resolved without leaving the volume, and the result is mounted by its descriptor, so
/// that a container cannot replace it in between.
///
/// # Errors
/// The part leads out of the volume, or cannot be created or mounted; `PermissionDenied` if this process
/// may not mount, or if its mounts are not visible to others.
pub(super) fn bind_part(
    proc_root: &Path,
    volume: &Path,
    sub: &Path,
    target: &Path,
) -> io::Result<()> {
    let part = part_of(proc_root, volume, sub)?;
    let stat = fstat(&part)?;
    if is_mount_point(target)? {
        let bound = fs::symlink_metadata(target)?;
        if (bound.dev(), bound.ino()) == (stat.st_dev, stat.st_ino) {
            return Ok(());
        }
        unmount(target, UnmountFlags::NOFOLLOW)?;
    }
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    // `UID/subpaths/CONTAINER/INDEX`
    let (pods, name) = regular::split(target, 4);
    let parent = name.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = regular::make_directory_below(pods, parent, 0o711)?;
    remove_if_other(&parent, name.file_name().unwrap_or_default(), is_dir)?;
    if is_dir {
        let place = regular::make_directory_below(pods, name, 0o711)?;
        mount_bind_recursive(through(&part), through(&place))?;
    } else {
        let place = regular::append_below(pods, name, 0o600)?;
        mount_bind_recursive(through(&part), through(&place))?;
    }
    ensure_shared(target)
}

/// Opens the part `sub` of the volume at `volume`, and creates it if it does not exist.
fn part_of(proc_root: &Path, volume: &Path, sub: &Path) -> io::Result<OwnedFd> {
    let root = DirectoryTree::of_host(proc_root)?.find(volume, None)?;
    let root =
        openat(&root, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let tree = DirectoryTree::new(root, Bounds::Refuse);
    let of_volume = tree.stat()?;
    let new = NewDirectory {
        mode: of_volume.st_mode & (SET_GROUP_ID | 0o777),
        owner: Some((of_volume.st_uid, of_volume.st_gid)),
    };
    tree.find(sub, Some(new))
}

/// Removes a target of the wrong kind: a file cannot be mounted on a directory, nor a directory on a file. A link is
/// neither.
fn remove_if_other(parent: &OwnedFd, name: &OsStr, is_dir: bool) -> io::Result<()> {
    let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from);
    let Some(found) = if_exists(found)? else { return Ok(()) };
    match (FileType::from_raw_mode(found.st_mode), is_dir) {
        (FileType::Directory, true) | (FileType::RegularFile, false) => Ok(()),
        (FileType::Directory, false) => Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?),
        _ => Ok(unlinkat(parent, name, AtFlags::empty())?),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_part_that_is_not_there_is_made_like_its_volume() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o2777)).unwrap();
        part_of(Path::new("/proc"), &volume, Path::new("data/db")).unwrap();
        for path in ["data", "data/db"] {
            let mode = fs::metadata(volume.join(path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o2777, "{path}");
        }
        std::os::unix::fs::symlink(dir.path(), volume.join("out")).unwrap();
        let error = part_of(Path::new("/proc"), &volume, Path::new("out/x")).unwrap_err();
        assert_eq!(error.to_string(), "it leads out of the volume");
    }

    #[test]
    fn what_stands_in_the_way_of_a_bind_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (target, parent) = (dir.path().join("0"), fs::File::open(dir.path()).unwrap().into());
        let clear = |is_dir| remove_if_other(&parent, "0".as_ref(), is_dir).unwrap();
        fs::create_dir(&target).unwrap();
        clear(true);
        assert!(target.is_dir());
        clear(false);
        assert!(!target.exists());
        clear(false);
        std::os::unix::fs::symlink(dir.path(), &target).unwrap();
        clear(true);
        assert!(!target.is_symlink(), "what it leads to is not mounted on");
    }
}
