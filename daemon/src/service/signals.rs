//! The signals that the agent handles.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP, which requests a reload. One that arrives during the start is handled once the agent runs.
pub(super) struct Reloads(Signal);

/// SIGTERM and SIGINT, which stop the agent.
pub(super) struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

// === impl Reloads ===

impl Reloads {
    /// Installs the handler. Before that, the signal terminates the process.
    ///
    /// # Errors
    /// The handler cannot be installed.
    pub(super) fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next signal; several that arrived meanwhile count as one. Cancel-safe.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}

// === impl Ends ===

impl Ends {
    /// Installs the handlers. Before that, the signals terminate the process, which is right while it has no pods.
    ///
    /// # Errors
    /// The handlers cannot be installed.
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
