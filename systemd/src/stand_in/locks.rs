//! The stand-in's locks: pipes whose reading termination notices the release.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::StandIn;

/// A granted lock.
#[derive(Clone, Debug)]
pub struct LockRecord {
    /// The number of the lock, counted from 0.
    pub id: u64,
    /// What it inhibits, joined by colons.
    pub what: String,
    /// The name of the holder.
    pub who: String,
    /// The reason that the holder gave.
    pub why: String,
    /// `delay` or `block`.
    pub mode: String,
    /// The user that took it.
    pub uid: u32,
    /// The process that took it.
    pub pid: u32,
    /// When its last descriptor was closed.
    pub released_at: Option<Instant>,
    pub(super) listed: bool,
}

impl LockRecord {
    /// Whether it is held and a shutdown waits for it.
    pub(super) fn delays_shutdown(&self) -> bool {
        self.released_at.is_none() && self.mode == "delay" && self.inhibits("shutdown")
    }

    pub(super) fn inhibits(&self, what: &str) -> bool {
        self.what.split(':').any(|part| part == what)
    }
}

impl StandIn {
    /// Grants a lock: the writing end of a pipe.
    pub(super) fn grant(&self, mut record: LockRecord) -> io::Result<OwnedFd> {
        let (ours, theirs) = io::pipe()?;
        let mut ours = pipe::Receiver::from_owned_fd(ours.into())?;
        {
            let mut inner = self.0.inner.lock();
            record.id = inner.locks.len() as u64;
            inner.locks.push(record.clone());
        }
        self.changed();
        let stand_in = self.clone();
        tokio::spawn(async move {
            // Writing to the lock does not release it.
            while let Ok(1..) = ours.read(&mut [0; 16]).await {}
            for lock in stand_in.0.inner.lock().locks.iter_mut().filter(|lock| lock.id == record.id)
            {
                lock.released_at = Some(Instant::now());
            }
            stand_in.changed();
        });
        Ok(theirs.into())
    }
}
