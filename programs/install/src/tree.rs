//! Reads and changes a machine's files below a root. After a crash, a file is either the old or the new one.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};
use winddown_host::mount_table::holders;
use winddown_host::{if_exists, regular};

use super::assets::{PACKAGED_UNIT, UNIT};
use super::error::InstallError;
use super::mounts;

/// The file tree of a machine or an image.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: PathBuf,
}

/// What exists at a path. Symbolic links are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundPath {
    Nothing,
    /// A regular file; `signed` means that its first line says that winddown wrote it.
    File {
        sha256: String,
        mode: u32,
        signed: bool,
    },
    Link(PathBuf),
    Directory,
    /// A socket, a device or the like.
    Other,
}

/// The maximum number of symbolic links in one path, as in the kernel.
const MAX_LINKS: usize = 40;

impl Tree {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path on this machine of `path` in the tree.
    ///
    /// Symbolic links are followed as for a process inside the tree, so that an absolute link in an image (e.g. for
    /// `/etc`) never leads to the host's files. The last component is not followed.
    pub(super) fn resolve(&self, path: &str) -> Result<PathBuf, InstallError> {
        self.follow(path, false)
    }

    /// Like [`resolve`](Self::resolve), but follows the last component as well: the file that is read at `path`.
    pub(super) fn resolve_whole(&self, path: &str) -> Result<PathBuf, InstallError> {
        self.follow(path, true)
    }

    fn follow(&self, path: &str, whole: bool) -> Result<PathBuf, InstallError> {
        let mut left: VecDeque<OsString> = names(Path::new(path)).collect();
        let mut inside = PathBuf::new();
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                inside.pop();
                continue;
            }
            let here = self.root.join(&inside).join(&name);
            match fs::read_link(&here) {
                Ok(target) if whole || !left.is_empty() => {
                    links += 1;
                    if links > MAX_LINKS {
                        let path = self.root.join(path.trim_start_matches('/'));
                        return Err(InstallError::LinkLoop { path });
                    }
                    if target.is_absolute() {
                        inside.clear();
                    }
                    let rest = std::mem::take(&mut left);
                    left = names(&target).chain(rest).collect();
                }
                _ => inside.push(name),
            }
        }
        Ok(self.root.join(inside))
    }

    /// Whether a package owns the programs and the units.
    pub(super) fn is_packaged(&self) -> Result<bool, InstallError> {
        Ok(matches!(self.look(PACKAGED_UNIT)?, FoundPath::File { .. }))
    }

    /// Whether the agent has a unit, of an installation or of a package.
    pub(super) fn has_unit(&self) -> Result<bool, InstallError> {
        Ok(self.look(UNIT)? != FoundPath::Nothing || self.is_packaged()?)
    }

    pub(super) fn look(&self, path: &str) -> Result<FoundPath, InstallError> {
        let path = self.resolve(path)?;
        let read = || -> io::Result<FoundPath> {
            let meta = match fs::symlink_metadata(&path) {
                Ok(meta) => meta,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    return Ok(FoundPath::Nothing);
                }
                Err(e) => return Err(e),
            };
            Ok(if meta.is_symlink() {
                FoundPath::Link(fs::read_link(&path)?)
            } else if meta.is_dir() {
                FoundPath::Directory
            } else if meta.is_file() {
                let (sha256, signed) = digest_of(&regular::open(&path)?)?;
                FoundPath::File { sha256, mode: meta.permissions().mode() & 0o7777, signed }
            } else {
                FoundPath::Other
            })
        };
        read().map_err(InstallError::file("read", &path))
    }

    /// Writes a file atomically, replacing any old one. With `keep_old`, the old file is kept as
    /// `NAME.before-winddown`; what is there already is the same.
    pub(super) fn write(
        &self,
        path: &str,
        mode: u32,
        content: &mut dyn Read,
        keep_old: bool,
    ) -> Result<(), InstallError> {
        let path = self.resolve(path)?;
        let new = beside(&path, ".", ".winddown-new");
        let mut put = || -> io::Result<()> {
            if_exists(fs::remove_file(&new))?;
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            io::copy(content, &mut file)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            file.sync_all()?;
            put_in_place(&new, &path, keep_old)
        };
        put().map_err(|error| {
            // Only we use this name. If the removal fails too, nothing more can be done.
            let _ = fs::remove_file(&new);
            InstallError::file("write", path)(error)
        })
    }

    /// Whether the file system of the path, or of where it would be, is mounted read-only.
    pub(super) fn is_read_only(&self, path: &str) -> Result<bool, InstallError> {
        let path = self.resolve(path)?;
        let there = path.ancestors().skip(1).find(|path| path.is_dir());
        let facts = there.and_then(|directory| rustix::fs::statvfs(directory).ok());
        Ok(facts.is_some_and(|facts| facts.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)))
    }

    pub(super) fn set_mode(&self, path: &str, mode: u32) -> Result<(), InstallError> {
        let path = self.resolve(path)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))
            .map_err(InstallError::file("change the mode of", path))
    }

    pub(super) fn make_directory(&self, path: &str, mode: u32) -> Result<(), InstallError> {
        let path = self.resolve(path)?;
        let make = || -> io::Result<()> {
            fs::create_dir(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            sync_parent(&path)
        };
        make().map_err(InstallError::file("create directory", &path))
    }

    /// Makes a symbolic link as [`write`](Self::write) makes a file.
    pub(super) fn link(
        &self,
        path: &str,
        target: &str,
        keep_old: bool,
    ) -> Result<(), InstallError> {
        let path = self.resolve(path)?;
        let new = beside(&path, ".", ".winddown-new");
        let make = || -> io::Result<()> {
            if_exists(fs::remove_file(&new))?;
            symlink(target, &new)?;
            put_in_place(&new, &path, keep_old)
        };
        make().map_err(InstallError::file("link", &path))
    }

    pub(super) fn remove(&self, path: &str) -> Result<(), InstallError> {
        let path = self.resolve(path)?;
        let removed = if_exists(fs::remove_file(&path));
        removed.map(drop).map_err(InstallError::file("remove", path))
    }

    /// Removes a directory if it is empty. Returns whether it no longer exists.
    pub(super) fn remove_if_empty(&self, path: &str) -> Result<bool, InstallError> {
        let path = self.resolve(path)?;
        match fs::remove_dir(&path) {
            Ok(()) => Ok(true),
            Err(e) => match e.kind() {
                io::ErrorKind::NotFound => Ok(true),
                // Leave a mount point alone, and anything that is not a directory.
                io::ErrorKind::DirectoryNotEmpty
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::ResourceBusy => Ok(false),
                _ => Err(InstallError::file("remove", path)(e)),
            },
        }
    }

    /// Removes a directory with its content, without crossing to other file systems. Returns whether it no longer
    /// exists. A mount point is emptied but kept. A symbolic link is left alone.
    pub(super) fn remove_all(&self, path: &str) -> Result<bool, InstallError> {
        let resolved = self.resolve(path)?;
        let removed = if_exists(winddown_host::removal::contents(&resolved));
        removed.map_err(InstallError::file("remove", resolved))?;
        self.remove_if_empty(path)
    }

    /// Returns an error if something is mounted below the directory, because the mounted files are not ours.
    pub(super) fn refuse_mounts(&self, path: &str) -> Result<(), InstallError> {
        match self.mount_below(path)? {
            Some(mount) => Err(InstallError::Mounted { directory: self.resolve(path)?, mount }),
            None => Ok(()),
        }
    }

    /// Returns an error if a process uses what is in the directory.
    pub(super) fn refuse_use(&self, path: &str) -> Result<(), InstallError> {
        let directory = self.resolve(path)?;
        let there = directory.canonicalize().ok();
        match there.and_then(|there| holders(Path::new("/proc"), &there)) {
            Some(processes) => Err(InstallError::InUse { directory, processes }),
            None => Ok(()),
        }
    }

    /// Returns a mount point below the directory, if there is one.
    pub(super) fn mount_below(&self, path: &str) -> Result<Option<PathBuf>, InstallError> {
        Ok(mounts::below(Path::new("/proc"), &self.resolve(path)?).pop())
    }

    /// Returns the sorted names in a directory; empty if it does not exist.
    pub(super) fn names_in(&self, path: &str) -> Result<Vec<OsString>, InstallError> {
        let path = self.resolve(path)?;
        let read = || -> io::Result<Vec<OsString>> {
            let Some(entries) = if_exists(fs::read_dir(&path))? else { return Ok(Vec::new()) };
            let mut names = entries.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<_>>>()?;
            names.sort();
            Ok(names)
        };
        read().map_err(InstallError::file("read", &path))
    }
}

/// As [`digest`], but not of a file that is larger than any program: its owner need not be trusted.
pub(super) fn digest_of(file: &File) -> io::Result<(String, bool)> {
    const MOST_BYTES: u64 = 1 << 30;
    match file.metadata()?.len() > MOST_BYTES {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => digest(&mut file.take(MOST_BYTES)),
    }
}

/// Returns the SHA-256 in lower-case hexadecimal, and whether the first line is winddown's signature.
pub(super) fn digest(content: &mut dyn Read) -> io::Result<(String, bool)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut signed = None;
    loop {
        let read = match content.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let part = &buffer[..read];
        signed.get_or_insert_with(|| is_signature(part));
        hash.update(part);
    }
    let hex = hash.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        hex.extend([byte >> 4, byte & 15].map(|n| char::from_digit(n.into(), 16).unwrap_or('0')));
        hex
    });
    Ok((hex, signed.unwrap_or(false)))
}

fn is_signature(content: &[u8]) -> bool {
    let first = content.split(|b| *b == b'\n').next().unwrap_or_default();
    first.starts_with(b"#") && first.windows(8).any(|word| word == b"winddown")
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Where the old file is kept that another one replaces.
pub(super) fn before_winddown(path: &Path) -> PathBuf {
    beside(path, "", ".before-winddown")
}

fn beside(path: &Path, before: &str, after: &str) -> PathBuf {
    let mut name = OsString::from(before);
    name.push(path.file_name().unwrap_or_default());
    name.push(after);
    path.with_file_name(name)
}

fn put_in_place(new: &Path, path: &Path, keep_old: bool) -> io::Result<()> {
    if keep_old {
        match fs::hard_link(path, before_winddown(path)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    fs::rename(new, path)?;
    sync_parent(path)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), winddown_host::sync_directory)
}
