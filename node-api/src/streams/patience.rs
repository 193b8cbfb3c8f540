//! How long a stream waits for its client.

use std::time::Duration;

/// One who takes nothing for so long is cut off: the kubelet's `streamingConnectionIdleTimeout`.
pub(super) const TAKES: Duration = Duration::from_secs(4 * 60 * 60);
/// How long what was said last may take, once the pod or the command has ended.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a farewell may take.
pub(super) const FAREWELL: Duration = Duration::from_secs(10);
