//! The signals with which a user, a closed terminal or a service manager ends a command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};
use winddown_host::kernel;

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
        // Without /proc the ignored signals are unknown.
        let status = kernel::read_to_string("/proc/self/status").unwrap_or_default();
        if ignores_hangup(&status) { Self::without_hangup() } else { Self::all() }
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

/// Whether a process with this `/proc/PID/status` ignores SIGHUP.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, and so the lowest bit.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::ignores_hangup;

    #[test]
    fn a_hang_up_that_was_to_be_ignored_is_known_from_the_mask() {
        for (mask, ignored) in [("0001", true), ("1007", true), ("1006", false), ("", false)] {
            let status = format!("SigBlk:\t0001\nSigIgn:\t{mask}\nSigCgt:\t0001\n");
            assert_eq!(ignores_hangup(&status), ignored, "{mask}");
        }
        assert!(!ignores_hangup(""), "without /proc");
    }
}
