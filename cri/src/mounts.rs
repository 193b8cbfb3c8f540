//! Mounts below a pod's directory, and safe access to parts of a volume.

use std::ffi::CString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, unmount};
use winddown_files::kernel;
use winddown_shared::mounts;

use super::tree::{Bounds, NewDirectory, Tree};

/// Ensures that a mount that was just made at `path` is visible to other processes. A service with a mount
/// namespace of its own (`PrivateMounts=`, `ProtectSystem=`) makes mounts that a runtime never sees,
/// and its containers would get the empty directory below.
///
/// # Errors
/// The mount is not visible, and was removed again.
fn ensure_shared(path: &Path) -> io::Result<()> {
    // Process 1 is in the runtime's mount namespace. If it is hidden, the check fails as if the mount were.
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

/// Mounts a tmpfs of at most `size` bytes at the directory `path`.
///
/// # Errors
/// `PermissionDenied` if this process may not mount, or if its mounts are not visible to others.
pub(super) fn memory(path: &Path, size: Option<i64>) -> io::Result<()> {
    if is_mount_point(path)? {
        return Ok(());
    }
    let size = size.map(|bytes| format!("size={bytes},")).unwrap_or_default();
    let options = CString::new(format!("{size}mode=0777"))?;
    mount("tmpfs", path, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, &*options)?;
    ensure_shared(path)
}

/// Whether something is mounted at `path` itself.
///
/// # Errors
/// The mount table cannot be read.
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
    let parent = target.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o711).create(parent)?;
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    remove_if_other(target, is_dir)?;
    if is_dir {
        DirBuilder::new().recursive(true).mode(0o711).create(target)?;
    } else {
        OpenOptions::new().create(true).append(true).mode(0o600).open(target)?;
    }
    mount_bind_recursive(format!("/proc/self/fd/{}", part.as_raw_fd()), target)?;
    ensure_shared(target)
}

/// Opens the part `sub` of the volume at `volume`, and creates it if it does not exist.
fn part_of(proc_root: &Path, volume: &Path, sub: &Path) -> io::Result<OwnedFd> {
    let root = Tree::of_host(proc_root)?.find(volume, None)?;
    let root =
        openat(&root, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let tree = Tree::new(root, Bounds::Refuse);
    let of_volume = tree.stat()?;
    let new = NewDirectory {
        mode: of_volume.st_mode & 0o777,
        owner: Some((of_volume.st_uid, of_volume.st_gid)),
    };
    tree.find(sub, Some(new))
}

/// Removes a target of the wrong kind: a file cannot be mounted on a directory, nor a directory on a file.
fn remove_if_other(target: &Path, is_dir: bool) -> io::Result<()> {
    match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() != is_dir => match found.is_dir() {
            true => fs::remove_dir(target),
            false => fs::remove_file(target),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(mode & 0o777, 0o777, "{path}");
        }
        std::os::unix::fs::symlink(dir.path(), volume.join("out")).unwrap();
        let error = part_of(Path::new("/proc"), &volume, Path::new("out/x")).unwrap_err();
        assert_eq!(error.to_string(), "it leads out of the volume");
    }

    #[test]
    fn what_stands_in_the_way_of_a_bind_goes() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("0");
        fs::create_dir(&target).unwrap();
        remove_if_other(&target, true).unwrap();
        assert!(target.is_dir());
        remove_if_other(&target, false).unwrap();
        assert!(!target.exists());
        remove_if_other(&target, false).unwrap();
    }
}
