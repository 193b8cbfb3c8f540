//! Waits for a descriptor of ours to become readable.
//!
//! The one module of the workspace with unsafe code: tokio's registration of a raw descriptor is an
//! `unsafe fn`, because it cannot see that the descriptor stays open. Here it is owned.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An owned descriptor (a pidfd, the read end of a pipe) that can be waited on.
#[derive(Debug)]
pub(crate) struct Ready(AsyncFd<OwnedFd>);

impl Ready {
    /// Registers `fd` with the runtime this is called in.
    ///
    /// # Errors
    /// The descriptor cannot be polled, or the kernel is out of watches.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    #[allow(unsafe_code)]
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an OwnedFd names the same open descriptor for its whole life, and AsyncFd, which
        // owns it, takes it off the poller before dropping it.
        let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self(registered.map_err(io::Error::from)?))
    }

    /// Resolves when there is something to read, the other end is closed, or the process has ended.
    /// Stays resolved from then on. Cancel-safe.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await?.retain_ready();
        Ok(())
    }
}

impl AsFd for Ready {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
