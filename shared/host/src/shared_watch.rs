//! Notification of changes in directories for any number of readers, from one inotify instance.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch::{Receiver, Sender};
use winddown_shared::Mutex;

use crate::inotify::{FileEvents, ReadFlags, WatchFlags, WatchMark, Watches};

/// Watches directories in which files are written, created and renamed. Cheap to clone.
///
/// By default a user may have 128 inotify instances (`fs.inotify.max_user_instances`), so all readers share one.
#[derive(Clone)]
pub struct SharedWatch(Arc<Mutex<Directories>>);

/// Notifies the readers. Does nothing unless its [`run`](Self::run) is polled.
pub struct SharedWatchTask {
    events: FileEvents,
    watch: SharedWatch,
}

/// A directory that one reader follows; no longer followed when dropped.
pub struct Subscription {
    watch: SharedWatch,
    watched: WatchMark,
    changes: Receiver<()>,
}

struct Directories {
    watches: Watches,
    told: HashMap<WatchMark, Sender<()>>,
    /// How many directories are being looked up.
    lookups: usize,
    /// What nobody follows any more, unless one of these leads to it.
    let_go: HashSet<WatchMark>,
}

// === impl SharedWatch ===

impl SharedWatch {
    /// Creates an instance that follows nothing yet. Must be called inside a tokio runtime with I/O.
    ///
    /// # Errors
    /// The kernel refused an inotify instance.
    pub fn open() -> io::Result<(Self, SharedWatchTask)> {
        let events = FileEvents::open()?;
        let (watches, told, let_go) = (events.watches(), HashMap::new(), HashSet::new());
        let directories = Directories { watches, told, lookups: 0, let_go };
        let watch = Self(Arc::new(Mutex::new(directories)));
        Ok((watch.clone(), SharedWatchTask { events, watch }))
    }

    /// Follows the directory that is at this path now. Changes after the call are reported. Blocks
    /// on the file system.
    ///
    /// # Errors
    /// The directory does not exist, or the kernel refused another watch.
    pub fn follow(&self, directory: &Path) -> io::Result<Subscription> {
        let changes = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::ONLYDIR;
        self.follow_by(|watches| watches.add(directory, changes))
    }

    /// Not locked during the `lookup`: a disk that hangs must not keep other readers waiting, nor an async thread.
    fn follow_by(
        &self,
        lookup: impl FnOnce(&Watches) -> io::Result<WatchMark>,
    ) -> io::Result<Subscription> {
        let watches = {
            let mut directories = self.0.lock();
            directories.lookups += 1;
            directories.watches.clone()
        };
        let found = lookup(&watches);
        let mut directories = self.0.lock();
        directories.lookups -= 1;
        // The same directory has the same mark.
        let followed = found.map(|watched| {
            let told = directories.told.entry(watched).or_insert_with(|| Sender::new(()));
            Subscription { watch: self.clone(), watched, changes: told.subscribe() }
        });
        directories.tidy();
        followed
    }
}

impl Directories {
    /// Lets go of what nobody follows, unless a directory is being looked up, which may be the same.
    fn tidy(&mut self) {
        if self.lookups > 0 {
            return;
        }
        for watched in std::mem::take(&mut self.let_go) {
            if !self.told.contains_key(&watched) {
                // Fails if the directory is gone, and the watch with it.
                let _ = self.watches.remove(watched);
            }
        }
    }
}

// === impl SharedWatchTask ===

impl SharedWatchTask {
    /// Notifies the readers for as long as it is polled. Returns when the kernel reports no more
    /// events; the readers see that as a change.
    pub async fn run(mut self) {
        while let Ok(event) = self.events.next().await {
            let mut directories = self.watch.0.lock();
            if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                directories.told.values().for_each(|told| told.send_modify(|()| {}));
            } else if let Some(told) = directories.told.get(&event.watched) {
                told.send_modify(|()| {});
                if event.flags.contains(ReadFlags::IGNORED) {
                    directories.told.remove(&event.watched);
                }
            }
        }
        self.watch.0.lock().told.clear();
    }
}

// === impl Subscription ===

impl Subscription {
    /// Resolves when something has changed since the last call, or since the directory was
    /// followed. Returns false if nothing more will be reported. Cancel-safe.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut directories = self.watch.0.lock();
        let is_last =
            directories.told.get(&self.watched).is_some_and(|told| told.receiver_count() == 1);
        if is_last {
            directories.told.remove(&self.watched);
            directories.let_go.insert(self.watched);
            directories.tidy();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn every_reader_hears_of_what_is_written_and_the_last_one_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = std::fs::File::create(directory.path().join("0.log")).unwrap();
        let (watch, task) = SharedWatch::open().unwrap();
        let running = tokio::spawn(task.run());
        let mut readers: Vec<Subscription> =
            (0..300).map(|_| watch.follow(directory.path()).unwrap()).collect();
        for _ in 0..2 {
            log.write_all(b"x").unwrap();
            for reader in &mut readers {
                assert!(reader.changed().await);
            }
        }
        std::fs::rename(directory.path().join("0.log"), directory.path().join("0.log.1")).unwrap();
        assert!(readers[0].changed().await, "a log that turns is a change");
        assert_eq!(watch.0.lock().told.len(), 1, "one watch for all of them");
        readers.truncate(1);
        log.write_all(b"x").unwrap();
        assert!(readers[0].changed().await, "the others took nothing of it with them");
        readers.clear();
        assert!(watch.0.lock().told.is_empty());
        assert!(watch.follow(&directory.path().join("missing")).is_err());
        running.abort();
    }

    #[tokio::test]
    async fn a_disk_that_hangs_keeps_no_other_reader_waiting_and_none_loses_its_watch() {
        let directory = tempfile::tempdir().unwrap();
        let (watch, task) = SharedWatch::open().unwrap();
        let running = tokio::spawn(task.run());
        let first = watch.follow(directory.path()).unwrap();
        let ((go, gate), (found, finds)) = (mpsc::channel::<()>(), mpsc::channel());
        let (hung, path) = (watch.clone(), directory.path().to_owned());
        let second = std::thread::spawn(move || {
            hung.follow_by(|watches| {
                let watched = watches.add(&path, WatchFlags::CREATE);
                found.send(()).unwrap();
                let _ = gate.recv();
                watched
            })
        });
        finds.recv().unwrap();
        let (gone, goes) = mpsc::channel();
        std::thread::spawn(move || {
            drop(first);
            gone.send(()).unwrap();
        });
        goes.recv_timeout(Duration::from_secs(10)).expect("it waits for the disk");
        drop(go);
        let mut second = second.join().unwrap().unwrap();
        for log in ["0.log", "1.log"] {
            std::fs::write(directory.path().join(log), "x").unwrap();
            assert!(second.changed().await, "{log}");
        }
        drop(second);
        let directories = watch.0.lock();
        assert!(directories.told.is_empty() && directories.let_go.is_empty());
        running.abort();
    }

    #[tokio::test]
    async fn a_directory_that_goes_is_the_last_change_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let (watch, task) = SharedWatch::open().unwrap();
        let running = tokio::spawn(task.run());
        let mut reader = watch.follow(directory.path()).unwrap();
        directory.close().unwrap();
        while reader.changed().await {}
        running.abort();
    }
}
