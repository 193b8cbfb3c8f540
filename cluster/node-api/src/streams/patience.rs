//! Timeouts of streams.

use std::time::Duration;

/// How long a write may block; the value is the kubelet's default `streamingConnectionIdleTimeout`.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);
/// How long the last output may take once the pod or the command has ended.
pub(super) const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long closing a connection may take.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
