//! Being told when the directory changes.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::pin::Pin;

use futures_util::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use winddown_shared::error_chain;

use super::file::Role;

/// Events of the directory and of its parent, where the directory itself comes and goes.
///
/// Only ever a hint that a look is worth while: the kernel drops events when there are too many, and
/// some file systems have none.
pub(super) struct Watch {
    stream: Option<Pin<Box<EventStream<[u8; 4096]>>>>,
    attached: Attached,
}

/// What an event says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// A writer closed this file, or it was moved here: it is complete.
    Closed(OsString),
    /// Something else changed.
    Changed,
}

/// What is watched, as it was found by [`attach`].
#[derive(Default)]
pub(super) struct Attached {
    directory: Option<WatchDescriptor>,
    parent: Option<WatchDescriptor>,
}

/// Watches the directory that has this path now. Blocks on the file system.
///
/// Watching the same directory again does nothing, so this is called before every look: what
/// happens after it gives an event, what happened before it is seen.
pub(super) fn attach(mut watches: Watches, directory: &Path) -> Attached {
    let own = WatchMask::CLOSE_WRITE
        | WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR;
    let parents = WatchMask::CREATE | WatchMask::MOVE | WatchMask::DELETE | WatchMask::ONLYDIR;
    let parent = directory.parent().and_then(|parent| watches.add(parent, parents).ok());
    let directory = watches.add(directory, own).ok();
    Attached { directory, parent }
}

// === impl Watch ===

impl Watch {
    /// Needs a tokio runtime with I/O. Without inotify it stays silent.
    pub(super) fn open() -> Self {
        let stream = Inotify::init().and_then(|inotify| inotify.into_event_stream([0; 4096]));
        let stream = stream.map(Box::pin).inspect_err(|error| {
            tracing::warn!(
                error = error_chain(&error),
                "inotify is not available: manifests are looked at periodically"
            );
        });
        Self { stream: stream.ok(), attached: Attached::default() }
    }

    /// A handle for [`attach`].
    pub(super) fn watches(&self) -> Option<Watches> {
        self.stream.as_ref().map(|stream| stream.watches())
    }

    /// Takes what [`attach`] found. A directory that had our path before is no longer watched.
    pub(super) fn attached(&mut self, attached: Attached) {
        let before = std::mem::replace(&mut self.attached, attached);
        let Some(mut watches) = self.watches() else { return };
        let now = [&self.attached.directory, &self.attached.parent];
        for old in [before.directory, before.parent].into_iter().flatten() {
            if !now.contains(&&Some(old.clone())) {
                // It fails when the directory is gone, and the watch with it.
                let _ = watches.remove(old);
            }
        }
    }

    /// The next hint about `directory`. Cancel-safe. Waits for ever when there is no inotify.
    pub(super) async fn next(&mut self, directory: &Path) -> Hint {
        loop {
            let Some(stream) = &mut self.stream else { return std::future::pending().await };
            let event = match stream.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Some(Err(_)) | None => {
                    tracing::warn!("inotify failed: manifests are looked at periodically");
                    self.stream = None;
                    return Hint::Changed;
                }
            };
            if event.mask.contains(EventMask::Q_OVERFLOW) {
                return Hint::Changed;
            }
            let from = |watched: &Option<WatchDescriptor>| watched.as_ref() == Some(&event.wd);
            let name = event.name.as_deref();
            let hint = match () {
                () if from(&self.attached.directory) => from_directory(event.mask, name),
                () if from(&self.attached.parent) => {
                    let ours = name.is_none() || name == directory.file_name();
                    ours.then_some(Hint::Changed)
                }
                () => None,
            };
            if let Some(hint) = hint {
                return hint;
            }
        }
    }
}

fn from_directory(mask: EventMask, name: Option<&OsStr>) -> Option<Hint> {
    match name {
        // `..data` is the link that Kubernetes' tools swap to change all files at once.
        Some(name) if Role::of(name) == Role::Hidden && name != "..data" => None,
        Some(name) if mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO) => {
            Some(Hint::Closed(name.to_owned()))
        }
        _ => Some(Hint::Changed),
    }
}
