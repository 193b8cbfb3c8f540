//! The final delivery of pod statuses before the node goes down.

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::PodLabel;

/// Delivers what became of the node's pods, as the last step before the node is released.
///
/// A shutdown asks once, when its pods have ended or their time is over, and waits for the answer.
/// Without a cluster there is no flush, and nothing is awaited.
pub trait FinalStatusFlush: Send + Sync + 'static {
    /// Resolves when everything is delivered, at `until` at the latest. The answer names the pods
    /// whose last status was not delivered; the next agent finds and sends it.
    ///
    /// `clean`: every pod has ended, and none left anything mounted. Dropping the future abandons the
    /// wait, not the telling.
    fn tell(&self, clean: bool, until: Instant) -> BoxFuture<'_, Vec<PodLabel>>;
}
