//! The limits of a server.

use std::time::Duration;

/// The limits of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of root that are served at the same time. A quarter as many more are asked to retry later, and the
    /// rest are closed.
    pub root: usize,
    /// The same for all other users together.
    pub users: usize,
    /// The same for one other user.
    pub per_user: usize,
    /// Connections from the network at the same time; a new one replaces the oldest of the address that has most.
    pub network: usize,
    /// Clients that watch the status at the same time: for root, and separately for all other users.
    pub watchers: usize,
    /// How often the agent looks for a client that watches at what nothing announces, such as the lock of a kubelet.
    pub look: Duration,
    /// How long a request may take to arrive.
    pub read: Duration,
    /// How long the head of a request from the network may take to arrive.
    pub network_head: Duration,
    /// How long a response may stay unread.
    pub write: Duration,
    /// The largest request head in bytes, at least 8192.
    pub head_bytes: usize,
    /// The largest request body in bytes, unless it is a manifest.
    pub body_bytes: usize,
    /// The largest manifest in bytes. `winddown-yaml`, which reads it, takes no more either.
    pub manifest_bytes: usize,
    /// Manifests that are in memory at the same time: for root, and separately for all other users. The next one waits
    /// as long as a request may take to arrive.
    pub manifests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            root: 32,
            users: 48,
            per_user: 24,
            network: 64,
            watchers: 16,
            look: Duration::from_secs(5),
            read: Duration::from_secs(5),
            network_head: Duration::from_secs(2),
            write: Duration::from_secs(10),
            head_bytes: 16 * 1024,
            body_bytes: 64 * 1024,
            manifest_bytes: 1024 * 1024,
            manifests: 4,
        }
    }
}
