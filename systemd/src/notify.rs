//! The notification protocol of the service manager (sd_notify(3)).
//!
//! Everything is a no-op without `NOTIFY_SOCKET`, so the agent runs the same from a shell.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use sd_notify::NotifyState;
use tokio::time::{Instant, interval_at};
use winddown_shared::{Mutex, error_chain};

/// The lock's name in the service manager's file descriptor store (`FDNAME=`).
pub const LOCK_NAME: &str = "winddown-inhibitor";

/// How often more time is requested: well within what one request can be for.
const RENEW_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Stores a copy of the delay lock that survives a crash of the agent.
pub trait LockStore: Send + Sync + 'static {
    /// Stores a copy of `lock`, in addition to those stored already.
    ///
    /// # Errors
    /// The lock could not be handed over; it then lives only as long as this process.
    fn put(&self, lock: BorrowedFd<'_>) -> io::Result<()>;

    /// Closes every stored copy, including those that an earlier process stored. They are closed on return.
    fn clear(&self);
}

/// Stores nothing: a crash of the agent releases the lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStore;

/// The service manager's notification socket.
///
/// The methods send one datagram each. A failure is logged and otherwise ignored: the agent does
/// not depend on it.
///
/// As a [`LockStore`], it gives the service manager a socket with the lock in its queue. The agent closes the lock by
/// emptying the queue, and so does not wait for a service manager that is busy with a hundred ending containers.
#[derive(Clone, Debug)]
pub struct Notifier {
    enabled: bool,
    watchdog: Option<Duration>,
    /// The sockets of which the service manager has copies.
    stored: Arc<Mutex<Vec<UnixDatagram>>>,
}

/// Why a lock handed down by the service manager cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InheritedError {
    /// `LISTEN_FDS` and related variables are malformed.
    #[error("LISTEN_FDS, LISTEN_FDNAMES: not as sd_listen_fds(3) describes them")]
    Environment {
        /// The problem.
        source: io::Error,
    },
    /// The descriptor cannot be taken over.
    #[error("cannot take over file descriptor {fd} ({LOCK_NAME})")]
    Descriptor {
        /// Its number.
        fd: i32,
        /// The system's error.
        source: io::Error,
    },
}

// === impl NoStore ===

impl LockStore for NoStore {
    fn put(&self, _lock: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn clear(&self) {}
}

// === impl Notifier ===

impl Notifier {
    /// Reads `NOTIFY_SOCKET` and `WATCHDOG_USEC`.
    pub fn from_env() -> Self {
        let enabled = std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| !path.is_empty());
        let watchdog = sd_notify::watchdog_enabled().filter(|_| enabled);
        Self { enabled, watchdog, stored: Arc::default() }
    }

    /// Returns a notifier without a service manager, which sends nothing.
    pub fn disabled() -> Self {
        Self { enabled: false, watchdog: None, stored: Arc::default() }
    }

    /// Whether there is a service manager to notify.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Reports that the service is up (`READY=1`), also after [`reloading`](Self::reloading).
    pub fn ready(&self) {
        self.send("READY=1", &[NotifyState::Ready]);
    }

    /// Reports one line for `systemctl status` (`STATUS=`). Line breaks become spaces.
    pub fn status(&self, text: &str) {
        if self.enabled {
            let line = text.replace(['\n', '\r'], " ");
            self.send("STATUS=", &[NotifyState::Status(&line)]);
        }
    }

    /// Reports that the service is stopping (`STOPPING=1`).
    pub fn stopping(&self) {
        self.send("STOPPING=1", &[NotifyState::Stopping]);
    }

    /// Reports that the configuration is being reloaded (`RELOADING=1`, with the timestamp that
    /// systemd 253 and later require). [`ready`](Self::ready) must follow.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send("RELOADING=1", &[NotifyState::Reloading, now]),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "cannot read the monotonic clock");
            }
        }
    }

    /// Returns the interval for watchdog pings: half of `WATCHDOG_USEC`. `None` if the watchdog is off.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// Reports that the control loop is alive (`WATCHDOG=1`).
    pub fn watchdog_ping(&self) {
        self.send("WATCHDOG=1", &[NotifyState::Watchdog]);
    }

    /// Does `work`, for which the service manager waits for `time`, counted from now, before it ends the process.
    pub async fn extend_timeout<T>(&self, time: Duration, work: impl Future<Output = T>) -> T {
        renewing(time, |left| self.request_time(left), work).await
    }

    /// Requests `time` more, counted from now, to start, reload or stop (`EXTEND_TIMEOUT_USEC=`).
    /// One request is capped at 71 minutes.
    fn request_time(&self, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.send("EXTEND_TIMEOUT_USEC=", &[NotifyState::ExtendTimeoutUsec(micros)]);
    }

    /// Takes the lock that an earlier process of this service left in the store.
    ///
    /// Returns `None` if there is none, or if this was called before: the descriptor numbers that
    /// systemd passed are valid only once.
    ///
    /// # Errors
    /// [`InheritedError`]. A descriptor that could not be taken over stays open, so that the lock
    /// is held until the process exits: here, too late is better than too early.
    pub fn take_inherited_lock(&self) -> Result<Option<OwnedFd>, InheritedError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Ok(None);
        }
        let listed = sd_notify::listen_fds_with_names()
            .map_err(|source| InheritedError::Environment { source })?;
        let mut taken = None;
        for (fd, name) in listed {
            if name != LOCK_NAME {
                continue;
            }
            let lock =
                self.adopt(fd).map_err(|source| InheritedError::Descriptor { fd, source })?;
            taken = lock.or(taken);
        }
        Ok(taken)
    }

    /// Takes over a descriptor from the store. Returns the lock, which stays in the store; `None` if there is none.
    fn adopt(&self, fd: RawFd) -> io::Result<Option<OwnedFd>> {
        // Received rather than used by its number, because a number does not say that it is ours.
        let (receives, sends) = UnixDatagram::pair()?;
        let rights = [fd];
        let message = [ControlMessage::ScmRights(&rights)];
        let text = [IoSlice::new(b"fd")];
        nix::sys::socket::sendmsg::<()>(
            sends.as_raw_fd(),
            &text,
            &message,
            MsgFlags::empty(),
            None,
        )?;
        nix::unistd::close(fd)?;
        let Some(stored) = receive(&receives, RecvFlags::empty())? else { return Ok(None) };
        let file = File::from(stored);
        let kind = file.metadata()?.file_type();
        if kind.is_socket() {
            let socket = UnixDatagram::from(OwnedFd::from(file));
            let lock = receive(&socket, RecvFlags::PEEK);
            self.stored.lock().push(socket);
            return lock;
        }
        // An agent before this version stored the lock itself, which is a FIFO.
        Ok(kind.is_fifo().then(|| file.into()))
    }

    fn send(&self, what: &str, states: &[NotifyState<'_>]) {
        if self.enabled
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::warn!(
                error = error_chain(&error),
                "the service manager did not accept {what}"
            );
        }
    }
}

impl LockStore for Notifier {
    fn put(&self, lock: BorrowedFd<'_>) -> io::Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let (stored, sends) = UnixDatagram::pair()?;
        send_fd(&sends, "lock", lock)?;
        // FDPOLL=0, so that systemd drops its copy for nothing that happens to the socket.
        notify_with_fd(&format!("FDSTORE=1\nFDNAME={LOCK_NAME}\nFDPOLL=0\n"), stored.as_fd())?;
        self.stored.lock().push(stored);
        Ok(())
    }

    fn clear(&self) {
        for stored in self.stored.lock().drain(..) {
            while let Ok(Some(lock)) = receive(&stored, RecvFlags::empty()) {
                drop(lock);
            }
        }
        // Only tidies up, but for the copy of an earlier version.
        let name = format!("FDNAME={LOCK_NAME}");
        let remove = [NotifyState::Custom("FDSTOREREMOVE=1"), NotifyState::Custom(&name)];
        self.send("FDSTOREREMOVE=1", &remove);
    }
}

/// Does `work`, and asks for what is left of `time`: before it, and then often enough.
async fn renewing<T>(time: Duration, ask: impl Fn(Duration), work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let mut renewals = interval_at(begun + RENEW_INTERVAL, RENEW_INTERVAL);
    tokio::pin!(work);
    ask(time);
    loop {
        tokio::select! {
            biased;
            _ = renewals.tick() => match time.saturating_sub(begun.elapsed()) {
                Duration::ZERO => {}
                left => ask(left),
            },
            done = &mut work => return done,
        }
    }
}

/// Sends `message` to the service manager with a copy of `fd`.
fn notify_with_fd(message: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    send_fd(&socket, message, fd)
}

fn send_fd(socket: &UnixDatagram, message: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let text = [IoSlice::new(message.as_bytes())];
    // A datagram is sent whole or not at all.
    sendmsg(socket, &text, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the descriptor of the next message; `None` if there is no message, or none with a descriptor.
fn receive(socket: &UnixDatagram, flags: RecvFlags) -> io::Result<Option<OwnedFd>> {
    let mut text = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags) {
        Ok(_) => {}
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut received) => received.next(),
        _ => None,
    });
    Ok(descriptors.last())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn more_time_is_requested_before_the_last_request_is_over_until_all_of_it_was() {
        let secs = Duration::from_secs;
        let (begun, asked) = (Instant::now(), RefCell::new(Vec::new()));
        let ask = |left: Duration| asked.borrow_mut().push((begun.elapsed(), left));
        renewing(secs(4000), ask, tokio::time::sleep(secs(9000))).await;
        let expected = [(0, 4000), (1800, 2200), (3600, 400)];
        assert_eq!(*asked.borrow(), expected.map(|(at, left)| (secs(at), secs(left))));
        asked.borrow_mut().clear();
        renewing(Duration::MAX, ask, std::future::ready(())).await;
        assert_eq!(*asked.borrow(), [(secs(9000), Duration::MAX)]);
    }
}
