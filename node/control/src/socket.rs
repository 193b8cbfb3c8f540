//! Creates the control socket.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};
use winddown_host::{Watch, if_exists};
use winddown_shared::error_chain;

/// The listening socket. Its file is removed on drop, unless it was replaced.
///
/// A lock file next to it (`….lock`) is held for as long as this value lives: of two agents that start at the same
/// time, one gets the socket and the other an error.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    identity: (u64, u64),
    group: Option<u32>,
    lock: File,
}

/// A socket that is made again whenever it is removed, for as long as clients are waited for.
pub struct KeptSocket {
    socket: ControlSocket,
    watch: Watch,
}

/// Why the control socket could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another agent listens on the socket.
    #[error("{}: another agent listens here; stop it first, or choose another socket", path.display())]
    InUse {
        /// The socket's path.
        path: PathBuf,
    },
    /// The path is not a socket.
    #[error(
        "{}: there is something here that is not a socket",
        path.display()
    )]
    NotASocket {
        /// The socket's path.
        path: PathBuf,
    },
    /// The path is longer than the kernel allows.
    #[error("{}: the path of a socket has at most 107 bytes, this one has {length}", path.display())]
    TooLong {
        /// The socket's path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// A system call failed.
    #[error("{}: cannot {step} the control socket", path.display())]
    Io {
        /// The operation that failed, as a verb.
        step: &'static str,
        /// The file that it concerned.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
}

/// The longest socket path: `sun_path` has 108 bytes, one of them for the terminator.
const MAX_PATH: usize = 107;

/// Write access is needed to connect: for the owner alone, or for the members of the configured group as well.
const OWNERS_MODE: u32 = 0o600;
const GROUPS_MODE: u32 = 0o660;

impl ControlSocket {
    /// Listens at `path`: for root and the members of `group`, or without a group for root alone. Group 0 counts as no
    /// group: a process that was given a user but no group has it, and that does not make it an operator.
    ///
    /// A socket left behind by an agent that died is replaced; one with a live agent is not. No other user can connect
    /// at any moment: the socket gets its mode and group before it gets its name. The directory is created if it does
    /// not exist.
    ///
    /// # Errors
    /// See [`SocketError`]; each error names the file.
    pub async fn bind(path: &Path, group: Option<u32>) -> Result<Self, SocketError> {
        let failed = |step, path: &Path| {
            let path = path.to_owned();
            move |source| SocketError::Io { step, path, source }
        };
        let length = path.as_os_str().len();
        if length > MAX_PATH {
            return Err(SocketError::TooLong { path: path.to_owned(), length });
        }
        let directory = directory_of(path);
        std::fs::create_dir_all(directory).map_err(failed("make the directory of", directory))?;
        let lock = lock(path)?;
        refuse_if_alive(path).await?;
        let group = group.filter(|gid| *gid != 0);
        let (listener, identity) = listen(path, group)?;
        Ok(Self { listener, path: path.to_owned(), identity, group, lock })
    }

    /// Moves away what is at `path` if it is not a socket, and returns its new path; `None` if there is nothing to move.
    /// Only for a path in a directory of the agent's own: elsewhere it may be somebody's file.
    ///
    /// # Errors
    /// It cannot be looked at or renamed.
    pub fn make_way(path: &Path) -> io::Result<Option<PathBuf>> {
        let facts = if_exists(std::fs::symlink_metadata(path))?;
        if facts.is_none_or(|facts| facts.file_type().is_socket()) {
            return Ok(None);
        }
        let beside = |count: u32| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".moved-away-{count}"));
            PathBuf::from(name)
        };
        let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
        let aside = (1..1000).map(beside).find(is_free).ok_or(io::ErrorKind::AlreadyExists)?;
        std::fs::rename(path, &aside)?;
        Ok(Some(aside))
    }

    /// Makes the socket again from now on whenever it is removed.
    pub fn keep(self) -> KeptSocket {
        let (mut watch, opened) = Watch::open();
        if let Err(error) = opened {
            let (path, error) = (self.path.display(), error_chain(&error));
            tracing::warn!(
                error,
                "the socket {path} cannot be watched: if it is removed, it is not recreated"
            );
        }
        self.follow(&mut watch);
        let mut kept = KeptSocket { socket: self, watch };
        // It may have been removed before it was watched.
        kept.restore();
        kept
    }

    fn follow(&self, watch: &mut Watch) {
        let mut watcher = watch.watcher();
        let added = watcher.as_mut().and_then(|watcher| watcher.add(directory_of(&self.path)));
        watch.follow(vec![added]);
    }

    /// Listens again if nothing is at the socket's path any more: without it no command reaches the agent. Something else
    /// in its place is left alone. Returns whether it was gone.
    ///
    /// # Errors
    /// The socket cannot be made. The old one goes on serving the connections that it has.
    fn restore(&mut self, watch: &mut Watch) -> Result<bool, SocketError> {
        let facts = std::fs::symlink_metadata(&self.path);
        if !facts.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(false);
        }
        let directory = directory_of(&self.path);
        std::fs::create_dir_all(directory).map_err(|source| SocketError::Io {
            step: "make the directory of",
            path: directory.to_owned(),
            source,
        })?;
        (self.listener, self.identity) = listen(&self.path, self.group)?;
        self.follow(watch);
        Ok(true)
    }

    /// Waits for the next client. Cancel-safe.
    ///
    /// # Errors
    /// The system lacks resources for the connection; a later call may succeed.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

// === impl KeptSocket ===

impl KeptSocket {
    /// Waits for the next client. Cancel-safe.
    ///
    /// # Errors
    /// As [`ControlSocket::accept`].
    pub async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            tokio::select! {
                accepted = self.socket.accept() => return accepted,
                _ = self.watch.next() => self.restore(),
            }
        }
    }

    /// The group whose members may connect and change the node's state.
    pub(super) fn group(&self) -> Option<u32> {
        self.socket.group
    }

    fn restore(&mut self) {
        let restored = self.socket.restore(&mut self.watch);
        let path = self.socket.path.display();
        match restored {
            Ok(false) => {}
            Ok(true) => tracing::warn!("the socket {path} was removed, and has been recreated"),
            Err(error) => tracing::error!(
                error = error_chain(&error),
                "the socket {path} was removed: no client reaches the agent there until it is restarted"
            ),
        }
    }
}

impl fmt::Debug for KeptSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|facts| (facts.dev(), facts.ino()) == self.identity);
        if ours {
            let _ = std::fs::remove_file(&self.path);
        }
        // Closing the file is not enough: a child that was just forked has it open until its exec.
        let _ = self.lock.unlock();
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Listens at `path`, whatever is there, and returns the device and inode of the socket.
fn listen(path: &Path, group: Option<u32>) -> Result<(UnixListener, (u64, u64)), SocketError> {
    let failed = |step, path: &Path| {
        let path = path.to_owned();
        move |source| SocketError::Io { step, path, source }
    };
    let directory = directory_of(path);
    // A directory that only this user can enter: the socket is created with the umask's mode, and until that is narrowed
    // any user could connect.
    let private = tempfile::Builder::new()
        .prefix(".wd")
        .rand_bytes(6)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(directory)
        .map_err(failed("prepare", directory))?;
    let hidden = private.path().join("s");
    let listener = UnixListener::bind(&hidden).map_err(failed("listen on", path))?;
    if let Some(gid) = group {
        std::os::unix::fs::chown(&hidden, None, Some(gid))
            .map_err(failed("set the group of", path))?;
    }
    let mode = if group.is_some() { GROUPS_MODE } else { OWNERS_MODE };
    std::fs::set_permissions(&hidden, Permissions::from_mode(mode))
        .map_err(failed("set the mode of", path))?;
    let facts = std::fs::metadata(&hidden).map_err(failed("look at", path))?;
    std::fs::rename(&hidden, path).map_err(failed("name", path))?;
    Ok((listener, (facts.dev(), facts.ino())))
}

fn lock(path: &Path) -> Result<File, SocketError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let io = |source| SocketError::Io { step: "lock", path: name.clone(), source };
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(nofollow)
        .open(&name)
        .map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SocketError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

/// Refuses to replace the socket of a live program that does not use the lock file.
async fn refuse_if_alive(path: &Path) -> Result<(), SocketError> {
    let unseen = |source| SocketError::Io { step: "look at", path: path.to_owned(), source };
    let facts = if_exists(std::fs::symlink_metadata(path)).map_err(unseen)?;
    let Some(facts) = facts else { return Ok(()) };
    if !facts.file_type().is_socket() {
        return Err(SocketError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full accept queue (EAGAIN) has a listener behind it too.
        _ => Err(SocketError::InUse { path: path.to_owned() }),
    }
}
