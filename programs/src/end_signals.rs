//! The signals with which a user, a closed terminal or a service manager ends a command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};
use winddown_host::ignored_signals;

/// The signals that request the process to stop.
pub(super) struct EndSignals {
    signals: Vec<Signal>,
}

impl EndSignals {
    /// All of them, for a command that is nothing without its terminal.
    pub(super) fn all() -> io::Result<Self> {
        let mut ends = Self::without_hangup()?;
        ends.signals.push(signal(SignalKind::hangup())?);
        Ok(ends)
    }

    /// All of them, except a hang-up that this process was started to ignore, as by `nohup`.
    pub(super) fn unless_ignored() -> io::Result<Self> {
        // SIGHUP is signal 1, and so the lowest bit.
        if ignored_signals() & 1 == 1 { Self::without_hangup() } else { Self::all() }
    }

    fn without_hangup() -> io::Result<Self> {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()];
        let signals = kinds.into_iter().map(signal).collect::<io::Result<_>>()?;
        Ok(Self { signals })
    }

    /// Resolves at the next such signal. Cancel-safe.
    pub(super) async fn next(&mut self) {
        poll_fn(|cx| match self.signals.iter_mut().any(|signal| signal.poll_recv(cx).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}
