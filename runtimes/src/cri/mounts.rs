//! Mounts below a pod's directory, and the safe way into a volume.

use std::ffi::CString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, unmount};

use crate::mount_table;

/// Takes care that a mount that was just made at `path` is seen by others: a service with a mount
/// namespace of its own (`PrivateMounts=`, `ProtectSystem=`) makes mounts that a runtime never sees,
/// and its containers would get the empty directory below.
///
/// # Errors
/// It is not seen, and was taken away again.
fn ensure_shared(path: &Path) -> io::Result<()> {
    // Process 1 lives where the runtime does. One that hides is not to be told from one that does not.
    let seen = fs::read("/proc/1/mountinfo")
        .is_ok_and(|text| mount_table::points(&text).any(|p| p == path));
    if seen {
        return Ok(());
    }
    let _ = unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    let why = "a mount made by this service is not seen by others: its unit hides it \
               (PrivateMounts=, ProtectSystem=) or hides process 1 (ProtectProc=)";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Mounts memory at the directory `path`, at most `size` bytes of it.
///
/// # Errors
/// This process may not mount, or what it mounts is not seen by others: `PermissionDenied`.
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
/// The kernel's list cannot be read.
pub(super) fn is_mount_point(path: &Path) -> io::Result<bool> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(mount_table::points(&text).any(|point| point == path))
}

/// Binds the part `sub` of the volume at `volume` to `target`, making it if it is not there.
///
/// What the volume holds is the container's to write, so a link in it may point anywhere: the kernel
/// resolves the part without leaving the volume, and what it found is bound by its descriptor, so that
/// nothing can be exchanged in between.
///
/// # Errors
/// The part leads out of the volume, or cannot be made or bound.
pub(super) fn bind_part(volume: &Path, sub: &Path, target: &Path) -> io::Result<()> {
    if is_mount_point(target)? {
        return Ok(());
    }
    let root =
        openat(CWD, volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let part = match resolve(&root, sub) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            make_part(&root, sub)?;
            resolve(&root, sub)?
        }
        other => other?,
    };
    let source = format!("/proc/self/fd/{}", part.as_raw_fd());
    let parent = target.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o711).create(parent)?;
    if fs::metadata(&source)?.is_dir() {
        DirBuilder::new().recursive(true).mode(0o711).create(target)?;
    } else {
        OpenOptions::new().create(true).append(true).mode(0o600).open(target)?;
    }
    mount_bind_recursive(source, target)?;
    ensure_shared(target)
}

fn resolve(root: &OwnedFd, sub: &Path) -> io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(root, sub, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), how);
    found.map_err(|errno| match errno {
        rustix::io::Errno::XDEV => io::Error::other("it leads out of the volume"),
        other => other.into(),
    })
}

/// Makes the directories of `sub`, each below the one the kernel found for its parent.
fn make_part(root: &OwnedFd, sub: &Path) -> io::Result<()> {
    let mut done = PathBuf::new();
    for part in sub.components() {
        let Component::Normal(name) = part else { continue };
        let parent = if done.as_os_str().is_empty() { Path::new(".") } else { &done };
        let parent = resolve(root, parent)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        done.push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_leads_out_of_its_volume_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        fs::create_dir_all(volume.join("in")).unwrap();
        fs::create_dir_all(dir.path().join("secret")).unwrap();
        std::os::unix::fs::symlink("../secret", volume.join("link")).unwrap();
        std::os::unix::fs::symlink("in", volume.join("inner")).unwrap();
        let open = |flags| openat(CWD, &volume, flags, Mode::empty()).unwrap();
        let root = open(OFlags::PATH | OFlags::DIRECTORY);
        for out in ["link", "../secret", "in/../../secret", "link/x"] {
            let error = resolve(&root, Path::new(out)).unwrap_err();
            assert_eq!(error.to_string(), "it leads out of the volume", "{out}");
        }
        for inside in ["in", "inner", "in/../in", "."] {
            resolve(&root, Path::new(inside)).unwrap();
        }
        make_part(&root, Path::new("a/b/c")).unwrap();
        assert!(volume.join("a/b/c").is_dir());
        make_part(&root, Path::new("inner/deep")).unwrap();
        assert!(volume.join("in/deep").is_dir());
        assert!(make_part(&root, Path::new("link/deep")).is_err());
        assert!(!dir.path().join("secret/deep").exists());
    }
}
