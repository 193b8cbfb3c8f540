//! The signals with which a user, a closed terminal or a service manager ends a command.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that request the process to stop.
pub(super) struct EndSignals {
    signals: [Signal; 4],
}

impl EndSignals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            signals: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::hangup())?,
                signal(SignalKind::quit())?,
            ],
        })
    }

    /// Resolves at the next such signal. Cancel-safe.
    pub(super) async fn next(&mut self) {
        let [terminate, interrupt, hangup, quit] = &mut self.signals;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    }
}
