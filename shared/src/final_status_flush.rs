//! Who has to be told before the node goes down.

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::PodLabel;

/// Tells others what became of the node's pods, as the last thing before the node is let go.
///
/// A shutdown asks once, when its pods have ended or their time is over, and waits for the answer.
/// Where nobody has to be told there is none of this, and nothing is waited for.
pub trait FinalStatusFlush: Send + Sync + 'static {
    /// Resolves when everybody has been told, at `until` at the latest. The answer names the pods of which
    /// the last status was not told; what is not told stays where the next agent finds it.
    ///
    /// `clean`: every pod has ended, and none left anything mounted. Dropping the future abandons the
    /// wait, not the telling.
    fn tell(&self, clean: bool, until: Instant) -> BoxFuture<'_, Vec<PodLabel>>;
}
