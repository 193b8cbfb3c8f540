//! One ticker for all periodic work of a node.

use std::time::Duration;

use tokio::sync::watch;

use winddown_shared::fraction;

/// Receives every tick. A tick that comes while the receiver is busy is dropped.
#[derive(Clone, Debug)]
pub(super) struct Ticker(watch::Receiver<u64>);

#[derive(Debug)]
pub(super) struct TickSource(watch::Sender<u64>);

/// The jitter of a tick, so that nodes that started together drift apart. The kubelet's value for leases.
const TICK_JITTER: f64 = 0.04;

// === impl TickSource ===

impl TickSource {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(super) fn ticker(&self) -> Ticker {
        let mut beats = self.0.subscribe();
        beats.mark_unchanged();
        Ticker(beats)
    }

    /// Ticks forever, about every `interval`. One timer wakes lease, ping and status together.
    pub(super) async fn beat(&self, interval: Duration) {
        loop {
            tokio::time::sleep(interval.mul_f64(1.0 + TICK_JITTER * fraction())).await;
            self.0.send_modify(|beats| *beats += 1);
        }
    }
}

// === impl Ticker ===

impl Ticker {
    /// Waits for the next tick. Cancel-safe.
    pub(super) async fn next(&mut self) {
        self.0.mark_unchanged();
        if self.0.changed().await.is_err() {
            // The source is gone: the controller is being dropped.
            std::future::pending::<()>().await;
        }
    }
}
