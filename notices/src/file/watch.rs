//! Being told when the file changes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use futures_util::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use winddown_shared::error_chain;

/// Events of the file's directory, or of the nearest directory above it that exists.
///
/// Only ever a hint that a look is worth while.
pub(super) struct Watch {
    stream: Option<Pin<Box<EventStream<[u8; 4096]>>>>,
    attached: Attached,
}

/// What is watched, as [`attach`] found it.
#[derive(Default)]
pub(super) struct Attached {
    watched: Option<(WatchDescriptor, OsString)>,
}

/// Watches the directory nearest to `file`. Blocks on the file system. Repeating it is harmless.
pub(super) fn attach(mut watches: Watches, file: &Path) -> Attached {
    let mask = WatchMask::CLOSE_WRITE
        | WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR;
    let mut below: PathBuf = file.to_owned();
    let mut watched = None;
    while let (Some(directory), Some(name)) = (below.parent(), below.file_name()) {
        let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        if let Ok(descriptor) = watches.add(here, mask) {
            watched = Some((descriptor, name.to_owned()));
            break;
        }
        below = directory.to_owned();
    }
    Attached { watched }
}

// === impl Watch ===

impl Watch {
    /// Needs a tokio runtime with I/O. Without inotify it stays silent.
    pub(super) fn open() -> Self {
        let stream = Inotify::init().and_then(|inotify| inotify.into_event_stream([0; 4096]));
        let stream = stream.map(Box::pin).inspect_err(|error| {
            tracing::warn!(
                error = error_chain(&error),
                "no inotify: the notice file is looked at once a minute"
            );
        });
        Self { stream: stream.ok(), attached: Attached::default() }
    }

    /// A handle for [`attach`].
    pub(super) fn watches(&self) -> Option<Watches> {
        self.stream.as_ref().map(|stream| stream.watches())
    }

    /// Takes what [`attach`] found, and lets go of a directory that is no longer the nearest.
    pub(super) fn attached(&mut self, attached: Attached) {
        let before = std::mem::replace(&mut self.attached, attached);
        let Some((old, _)) = before.watched else { return };
        if self.attached.watched.as_ref().is_some_and(|(now, _)| *now == old) {
            return;
        }
        if let Some(mut watches) = self.watches() {
            // It fails when the directory is gone, and the watch with it.
            let _ = watches.remove(old);
        }
    }

    /// Resolves when the file may have changed. Cancel-safe. Waits for ever when there is no
    /// inotify.
    pub(super) async fn changed(&mut self) {
        loop {
            let Some(stream) = &mut self.stream else { return std::future::pending().await };
            let event = match stream.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Some(Err(_)) | None => {
                    tracing::warn!("inotify failed: the notice file is looked at once a minute");
                    self.stream = None;
                    return;
                }
            };
            if event.mask.contains(EventMask::Q_OVERFLOW) {
                return;
            }
            let Some((descriptor, name)) = &self.attached.watched else { return };
            // Without a name the event is about the directory itself.
            let ours = event.name.as_ref().is_none_or(|n| n == name);
            if event.wd == *descriptor && ours {
                return;
            }
        }
    }
}
