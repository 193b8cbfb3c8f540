//! Resolves a path below a directory one name at a time.
//!
//! Containers can write to volumes, so a link in one may point anywhere. Each name is opened on its
//! own and the kernel never follows a link: links are resolved here, and `..` goes back to a
//! descriptor that is held. So nothing that is replaced meanwhile leads elsewhere. `openat2` would do
//! the same in one call, but the seccomp filter of `RestrictSUIDSGID=` blocks it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fchmod, fchown, fstat, mkdirat, openat, readlinkat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

/// The most directories on the way to a part of a volume. Each takes a descriptor until the part is found, and the agent has
/// few; the kernel bounds a path by its bytes, which leaves room for eight times as many.
pub(super) const MOST_NAMES: usize = 256;
/// Maximum number of links in a path, the same as the kernel's.
const MOST_LINKS: usize = 40;

/// The bit of a directory that hands its group down to what is created in it.
pub(super) const SET_GROUP_ID: u32 = 0o2000;

/// How a link that leads above the directory is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bounds {
    Refuse,
    /// It stops at the directory, as if that were the root directory.
    Root,
}

/// The mode and owner of missing directories that are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewDirectory {
    pub(super) mode: u32,
    /// UID and GID of the owner; `None` for this process's.
    pub(super) owner: Option<(u32, u32)>,
}

/// A directory and everything below it.
#[derive(Debug)]
pub(super) struct DirectoryTree {
    root: OwnedFd,
    bounds: Bounds,
}

impl DirectoryTree {
    pub(super) fn new(root: OwnedFd, bounds: Bounds) -> Self {
        Self { root, bounds }
    }

    /// The host's files, as process 1 sees them: a service has a view of its own (`ProtectSystem=`,
    /// `PrivateTmp=`, `PrivateDevices=`). If the root of process 1 cannot be opened, the files as this
    /// process sees them. `proc_root` is where `/proc` is.
    ///
    /// # Errors
    /// Not even this process's own root can be opened.
    pub(super) fn of_host(proc_root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, proc_root.join("1/root"), flags, Mode::empty())
            .or_else(|_| openat(CWD, "/", flags, Mode::empty()))?;
        Ok(Self::new(root, Bounds::Root))
    }

    /// Opens `path` with `O_PATH`. Missing directories are created as `new` says, if given.
    ///
    /// # Errors
    /// The path does not exist, leads out of the tree, or leads through more than [`MOST_NAMES`] directories.
    pub(super) fn find(&self, path: &Path, new: Option<NewDirectory>) -> io::Result<OwnedFd> {
        let mut ahead: VecDeque<OsString> = names(path)?;
        if ahead.len() > MOST_NAMES {
            return Err(too_deep());
        }
        let mut held: Vec<OwnedFd> = Vec::new();
        let mut links = 0;
        while let Some(name) = ahead.pop_front() {
            if name == ".." {
                if held.pop().is_none() && self.bounds == Bounds::Refuse {
                    return Err(leads_out());
                }
                continue;
            }
            if held.len() >= MOST_NAMES {
                return Err(too_deep());
            }
            let here = held.last().map_or(self.root.as_fd(), |fd| fd.as_fd());
            let found = match open(here, &name) {
                Err(Errno::NOENT) if new.is_some() => made(here, &name, new)?,
                other => other?,
            };
            if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Symlink {
                held.push(found);
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            let target = readlinkat(&found, "", Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                if self.bounds == Bounds::Refuse {
                    return Err(leads_out());
                }
                held.clear();
            }
            for name in names(&target)?.into_iter().rev() {
                ahead.push_front(name);
            }
        }
        match held.pop() {
            Some(found) => Ok(found),
            None => Ok(self.root.try_clone()?),
        }
    }

    /// Creates an empty file where nothing exists. Its parent directory must exist.
    ///
    /// # Errors
    /// The path exists, or the file cannot be created.
    pub(super) fn make_file(&self, path: &Path, mode: u32) -> io::Result<OwnedFd> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.find(path.parent().unwrap_or(Path::new("")), None)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&parent, name, flags, Mode::from_raw_mode(0o600))?;
        // Independent of the process's umask.
        fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(file)
    }

    /// The metadata of the tree's own directory.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        Ok(fstat(&self.root)?)
    }
}

fn leads_out() -> io::Error {
    io::Error::other("it leads out of the volume")
}

fn too_deep() -> io::Error {
    io::Error::other(format!("it leads through more than {MOST_NAMES} directories"))
}

/// The names in a path, including `..`.
fn names(path: &Path) -> io::Result<VecDeque<OsString>> {
    let mut all = VecDeque::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => all.push_back(name.to_owned()),
            Component::ParentDir => all.push_back("..".into()),
            Component::RootDir | Component::CurDir => {}
            Component::Prefix(_) => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(all)
}

fn open(parent: BorrowedFd<'_>, name: &OsString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // `O_DIRECTORY` makes the kernel mount what is mounted on demand; a plain `O_PATH` descriptor would not.
    match openat(parent, name.as_os_str(), flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOTDIR) => openat(parent, name.as_os_str(), flags, Mode::empty()),
        opened => opened,
    }
}

/// Creates a directory, or opens one that was created concurrently.
fn made(
    parent: BorrowedFd<'_>,
    name: &OsString,
    new: Option<NewDirectory>,
) -> Result<OwnedFd, Errno> {
    let Some(new) = new else { return Err(Errno::NOENT) };
    match mkdirat(parent, name.as_os_str(), Mode::from_raw_mode(0o700)) {
        Ok(()) => {}
        Err(Errno::EXIST) => return open(parent, name),
        Err(other) => return Err(other),
    }
    if let Err(error) = complete(parent, name, new) {
        // Whoever may do it finds nothing half made.
        let _ = unlinkat(parent, name.as_os_str(), AtFlags::REMOVEDIR);
        return Err(error);
    }
    open(parent, name)
}

/// Gives a directory that was just created its owner and its mode.
fn complete(parent: BorrowedFd<'_>, name: &OsString, new: NewDirectory) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(parent, name.as_os_str(), flags, Mode::empty())?;
    if let Some((uid, gid)) = new.owner {
        fchown(&dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    // Independent of the process's umask.
    change_mode(&dir, new.mode)
}

/// Changes the mode of a directory.
///
/// # Errors
/// `EPERM` if this process may not set [`SET_GROUP_ID`]: a sandbox refuses it (`RestrictSUIDSGID=`), and without
/// `CAP_FSETID` the kernel leaves it out and reports success.
pub(super) fn change_mode(dir: &OwnedFd, mode: u32) -> Result<(), Errno> {
    fchmod(dir, Mode::from_raw_mode(mode))?;
    let is_left_out = (mode & !fstat(dir)?.st_mode) & SET_GROUP_ID != 0;
    if is_left_out { Err(Errno::PERM) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn tree(path: &Path, bounds: Bounds) -> DirectoryTree {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        DirectoryTree::new(openat(CWD, path, flags, Mode::empty()).unwrap(), bounds)
    }

    #[test]
    fn a_path_that_leads_out_of_its_volume_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        fs::create_dir_all(volume.join("in/deep")).unwrap();
        fs::create_dir_all(dir.path().join("secret")).unwrap();
        for (link, target) in [
            ("link", "../secret"),
            ("in/link", "../../secret"),
            ("absolute", "/etc"),
            ("magic", "/proc/self/root"),
            ("chain", "in/link"),
            ("inner", "in"),
            ("in/up", "../in/deep"),
        ] {
            symlink(target, volume.join(link)).unwrap();
        }
        symlink("loop", volume.join("loop")).unwrap();
        let volume_tree = tree(&volume, Bounds::Refuse);
        let outs = ["link", "in/link", "link/x", "absolute", "magic", "chain", "../secret"];
        for out in outs {
            let error = volume_tree.find(Path::new(out), None).unwrap_err();
            assert_eq!(error.to_string(), "it leads out of the volume", "{out}");
            let new = Some(NewDirectory { mode: 0o755, owner: None });
            assert!(volume_tree.find(&Path::new(out).join("new"), new).is_err(), "{out}");
        }
        assert!(!dir.path().join("secret/new").exists());
        let looped = volume_tree.find(Path::new("loop"), None).unwrap_err();
        assert_eq!(looped.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        for inside in ["in", "inner", "in/../in", ".", "in/up", "inner/up"] {
            volume_tree.find(Path::new(inside), None).unwrap();
        }
    }

    #[test]
    fn a_path_of_ten_thousand_names_takes_few_descriptors_and_makes_nothing() {
        let volume = tempfile::tempdir().unwrap();
        let volume_tree = tree(volume.path(), Bounds::Refuse);
        let new = Some(NewDirectory { mode: 0o755, owner: None });
        let error = volume_tree.find(Path::new(&"a/".repeat(10_000)), new).unwrap_err();
        assert_eq!(error.to_string(), "it leads through more than 256 directories");
        assert!(!volume.path().join("a").exists());
        volume_tree.find(Path::new(&"a/".repeat(256)), new).unwrap();
        // What a link adds counts as well.
        symlink("a/".repeat(100), volume.path().join("link")).unwrap();
        volume_tree.find(&Path::new("link").join("a/".repeat(156)), new).unwrap();
        assert!(volume_tree.find(&Path::new("link").join("a/".repeat(157)), new).is_err());
    }

    #[test]
    fn a_link_of_the_host_stays_in_the_hosts_root() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir_all(host.path().join("run/lock")).unwrap();
        fs::create_dir_all(host.path().join("var")).unwrap();
        symlink("/run", host.path().join("var/run")).unwrap();
        symlink("../../../../run", host.path().join("var/climbs")).unwrap();
        let inode = |path: &str| fs::metadata(host.path().join(path)).unwrap().ino();
        let host_tree = tree(host.path(), Bounds::Root);
        for path in ["/var/run/lock", "/var/climbs/lock", "run/lock"] {
            let found = host_tree.find(Path::new(path), None).unwrap();
            assert_eq!(fstat(&found).unwrap().st_ino, inode("run/lock"), "{path}");
        }
    }

    #[test]
    fn directories_are_made_with_the_mode_and_owner_that_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let own = fs::metadata(dir.path()).unwrap();
        let new = NewDirectory { mode: 0o775, owner: Some((own.uid(), own.gid())) };
        symlink("a", dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        tree(dir.path(), Bounds::Refuse).find(Path::new("link/b/c"), Some(new)).unwrap();
        for path in ["a/b", "a/b/c"] {
            let made = fs::metadata(dir.path().join(path)).unwrap();
            assert_eq!((made.permissions().mode() & 0o7777, made.gid()), (0o775, own.gid()));
        }
    }
}
