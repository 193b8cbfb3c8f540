//! The signals that stop the agent.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, which stop the agent.
pub(super) struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

// === impl Ends ===

impl Ends {
    /// Installs the handlers. Before that, the signals terminate the process.
    pub(super) fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the first signal. Cancel-safe.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
