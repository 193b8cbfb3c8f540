//! Waits for an owned file descriptor to become readable.
//!
//! The only module of the workspace with unsafe code: tokio's registration of a raw descriptor is an `unsafe fn`,
//! because it cannot know that the descriptor stays open; here it is owned. And there is no safe wrapper yet for the
//! ioctl that returns the exit code of a pidfd's process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Updater, ioctl, opcode::read_write};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const URGENT: Interest = Interest::PRIORITY.add(Interest::ERROR);

/// An owned descriptor (a pidfd, the read end of a pipe) that can be waited on.
#[derive(Debug)]
pub struct Ready(AsyncFd<OwnedFd>);

impl Ready {
    /// Registers `fd` with the runtime this is called in.
    ///
    /// # Errors
    /// The descriptor cannot be polled, or the kernel's limit of watches is reached.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Self::register(fd, Interest::READABLE)
    }

    /// Like [`new`](Self::new), for a descriptor with priority events (`POLLPRI`), such as a pressure trigger.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    ///
    /// # Panics
    /// See [`new`](Self::new).
    pub fn for_urgent(fd: OwnedFd) -> io::Result<Self> {
        Self::register(fd, URGENT)
    }

    #[allow(unsafe_code)]
    fn register(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        // SAFETY: an OwnedFd names the same open descriptor for its whole life, and AsyncFd, which
        // owns it, takes it off the poller before dropping it.
        let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
        Ok(Self(registered.map_err(io::Error::from)?))
    }

    /// Waits for a priority event. Returns false if there will be no more. Several events may be merged. Cancel-safe.
    pub async fn urgent(&self) -> bool {
        let Ok(mut news) = self.0.ready(URGENT).await else { return false };
        let ready = news.ready();
        news.clear_ready();
        !ready.is_error() && !ready.is_read_closed()
    }

    /// Whether [`readable`](Self::readable) would resolve now, according to the kernel. Never blocks.
    pub fn is_readable(&self) -> bool {
        let mut asked = [PollFd::new(self.0.get_ref(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut asked, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Resolves when there is data to read, the other end is closed, or the process has exited.
    /// Stays resolved from then on. Cancel-safe.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await?.retain_ready();
        Ok(())
    }

    /// Calls `read` when there is data, and again as long as it says `WouldBlock` or `Interrupted`. Cancel-safe.
    pub(crate) async fn read<T>(
        &self,
        read: impl Fn(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let mut news = self.0.readable().await?;
            match news.try_io(|fd| read(fd.get_ref().as_fd())) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }
}

impl Ready {
    /// The exit code of a pidfd's process as Kubernetes shows it (128 + signal if killed by a signal), even if the
    /// process is not our child; none until its parent has reaped it.
    ///
    /// # Errors
    /// The descriptor is not a pidfd, or the kernel does not support the query, or knows no process of it any more (before Linux 6.15).
    pub fn exit_code(&self) -> io::Result<Option<i32>> {
        // One that its parent reaps meanwhile is not found (`ESRCH`), though its code is there by then.
        let info = self.info().or_else(|_| self.info())?;
        if info.mask & PIDFD_INFO_EXIT == 0 {
            // A kernel that does not support exit codes never sets the flag.
            return Ok(None);
        }
        let (signal, code) = (info.exit_code & 0x7f, info.exit_code >> 8 & 0xff);
        Ok(Some(if signal == 0 { code } else { 128 + signal }))
    }

    #[allow(unsafe_code)]
    fn info(&self) -> io::Result<PidfdInfo> {
        let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
        // SAFETY: the kernel reads and writes at most the size that is part of the operation's
        // number, which is that of `info`, and any bytes are valid for its integers.
        unsafe {
            let asked = Updater::<{ read_write::<PidfdInfo>(0xff, 11) }, PidfdInfo>::new(&mut info);
            ioctl(self.0.get_ref(), asked)?;
        }
        Ok(info)
    }
}

const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// `struct pidfd_info` of linux/pidfd.h, in its first version.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    /// Ids of the process, thread group and parent, of users and groups.
    ids: [u32; 11],
    /// The status as in wait(2).
    exit_code: i32,
}

impl AsFd for Ready {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
