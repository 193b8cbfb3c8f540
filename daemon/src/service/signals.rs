//! The signals that the agent is sent.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP is not the agent's end from here on: one that comes while it starts is acted on when it runs.
pub(super) struct Reloads(Signal);

/// What ends the agent.
pub(super) struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

// === impl Reloads ===

impl Reloads {
    /// Listens. What was sent before has ended the process.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// The next one, or those that came meanwhile. Cancel-safe.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}

// === impl Ends ===

impl Ends {
    /// Listens. Before, the system ends the process, which is right while it has no pods.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The first one. Cancel-safe.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
