//! A disk that fails on request.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::status::spool::disk::{Disk, RealDisk};

/// The longest time that the disk hangs.
const LONGEST: Duration = Duration::from_secs(10);

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// There is no room.
    Full,
    /// The operation is done by half, and no later one at all.
    PowerCut,
    /// It blocks until [`FaultyDisk::go_on`] is called.
    Hang,
}

/// The machine's disk, of which operations with certain numbers fail.
#[derive(Debug)]
pub(crate) struct FaultyDisk {
    mode: Mode,
    hit: Range<usize>,
    count: AtomicUsize,
    was_hit: AtomicBool,
    released: Mutex<bool>,
    release: Condvar,
    hanging: Notify,
}

impl FaultyDisk {
    pub(crate) fn new(mode: Mode, hit: Range<usize>) -> Self {
        Self {
            mode,
            hit,
            count: AtomicUsize::new(0),
            was_hit: AtomicBool::new(false),
            released: Mutex::new(false),
            release: Condvar::new(),
            hanging: Notify::new(),
        }
    }

    pub(crate) fn was_hit(&self) -> bool {
        self.was_hit.load(Ordering::SeqCst)
    }

    /// The number of operations so far.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) async fn until_hanging(&self) {
        self.hanging.notified().await;
    }

    pub(crate) fn go_on(&self) {
        *self.released.lock().unwrap() = true;
        self.release.notify_all();
    }

    /// Counts one operation. `half` does what a power cut in its middle leaves.
    fn change(
        &self,
        half: impl FnOnce(),
        whole: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        let is_off = self.mode == Mode::PowerCut && self.was_hit();
        if is_off {
            return Err(io::Error::other("the power is off"));
        }
        if !self.hit.contains(&number) {
            return whole();
        }
        self.was_hit.store(true, Ordering::SeqCst);
        match self.mode {
            Mode::Full => Err(io::ErrorKind::StorageFull.into()),
            Mode::PowerCut => {
                half();
                Err(io::Error::other("the power is off"))
            }
            Mode::Hang => {
                self.hanging.notify_one();
                let released = self.released.lock().unwrap();
                // A test that fails in the meantime must not hang forever.
                let wait =
                    self.release.wait_timeout_while(released, LONGEST, |released| !*released);
                drop(wait.unwrap());
                whole()
            }
        }
    }
}

impl Disk for FaultyDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.change(|| (), || RealDisk.create_directory(path))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let half = || drop(RealDisk.write(path, &bytes[..bytes.len() / 2]));
        self.change(half, || RealDisk.write(path, bytes))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|| (), || RealDisk.rename(from, to))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.change(|| (), || RealDisk.sync_directory(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|| (), || RealDisk.remove(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(path)
    }

    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        RealDisk.read(path, most)
    }
}
