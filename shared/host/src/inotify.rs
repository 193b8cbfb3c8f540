//! An inotify instance whose events are awaited.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::inotify;
pub(crate) use rustix::fs::inotify::{ReadFlags, WatchFlags};

use crate::ready::Ready;

/// The events of an instance. Its watches end when this is dropped.
pub(crate) struct FileEvents {
    instance: Arc<Ready>,
    /// Events that were read together with the last one returned.
    waiting: VecDeque<FileEvent>,
}

/// Adds and removes watches of an instance. Clones share it.
#[derive(Clone)]
pub(crate) struct Watches(Weak<Ready>);

/// A watched file or directory. The same one has the same mark within an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WatchMark(i32);

pub(crate) struct FileEvent {
    pub(crate) watched: WatchMark,
    pub(crate) flags: ReadFlags,
    /// The file in the watched directory; `None` for the directory itself.
    pub(crate) name: Option<OsString>,
}

// === impl FileEvents ===

impl FileEvents {
    /// Creates an instance without watches. Must be called inside a tokio runtime with I/O.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let instance = Arc::new(Ready::new(inotify::init(flags)?)?);
        Ok(Self { instance, waiting: VecDeque::new() })
    }

    pub(crate) fn watches(&self) -> Watches {
        Watches(Arc::downgrade(&self.instance))
    }

    /// The next event. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<FileEvent> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            self.waiting = self.instance.read(read).await?;
        }
    }
}

/// Reads the events that there are, at most one buffer of them.
fn read(instance: BorrowedFd<'_>) -> io::Result<VecDeque<FileEvent>> {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    let mut reader = inotify::Reader::new(instance, &mut buffer);
    let mut events = VecDeque::new();
    loop {
        let event = reader.next()?;
        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
        events.push_back(FileEvent { watched: WatchMark(event.wd()), flags: event.events(), name });
        if reader.is_buffer_empty() {
            return Ok(events);
        }
    }
}

// === impl Watches ===

impl Watches {
    /// Watches what is at this path now. Blocks on the file system.
    pub(crate) fn add(&self, path: &Path, flags: WatchFlags) -> io::Result<WatchMark> {
        let instance = self.0.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        Ok(WatchMark(inotify::add_watch(&*instance, path, flags)?))
    }

    /// Fails if what was watched is gone, and the watch with it.
    pub(crate) fn remove(&self, watched: WatchMark) -> io::Result<()> {
        let instance = self.0.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        Ok(inotify::remove_watch(&*instance, watched.0)?)
    }
}
