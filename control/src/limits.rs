//! What a server allows.

use std::time::Duration;

/// What one server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of root answered at the same time; a quarter as many more are told to come back
    /// later, and the rest are closed.
    pub root: usize,
    /// The same of all other users together.
    pub users: usize,
    /// The same of one of them.
    pub per_user: usize,
    /// Connections from the network at the same time; the oldest makes way for the newest.
    pub network: usize,
    /// The same from one address.
    pub per_address: usize,
    /// Clients that watch the status at the same time: of root, and as many of all other users.
    pub watchers: usize,
    /// The time a request may take to arrive.
    pub read: Duration,
    /// The time the head of a request from the network may take to arrive.
    pub network_head: Duration,
    /// The time an answer may stay unread.
    pub write: Duration,
    /// Bytes of a request's head, at least 8192.
    pub head_bytes: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            root: 32,
            users: 48,
            per_user: 24,
            network: 64,
            per_address: 16,
            watchers: 16,
            read: Duration::from_secs(5),
            network_head: Duration::from_secs(2),
            write: Duration::from_secs(10),
            head_bytes: 16 * 1024,
            body_bytes: 64 * 1024,
        }
    }
}
