//! How many requests the API server is asked to take.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// The longest that one answer can make ordinary requests wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Holds ordinary requests back to a rate. What a node's state depends on never waits.
#[derive(Debug)]
pub(crate) struct Limits {
    bucket: Mutex<Bucket>,
    waiting: AtomicUsize,
}

/// Whether a request may wait behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Statuses of pods and of the node, its lease, deletions and evictions of pods.
    Urgent,
    /// Everything else: reads, watches, events, tokens.
    Ordinary,
}

/// A token bucket that is told by one number: when it would be full again.
#[derive(Clone, Debug)]
struct Bucket {
    every: Duration,
    burst: u32,
    full_at: Instant,
    paused_until: Instant,
}

/// Counts a waiting request, also when its future is dropped.
struct Waiting<'a>(&'a AtomicUsize);

/// What a request is, by its method and path.
pub(crate) fn urgency(method: &Method, path: &str) -> Urgency {
    let urgent = match *method {
        Method::GET => false,
        Method::DELETE => is_core(path, "pods", None),
        Method::POST => is_core(path, "pods", Some("eviction")) || is_lease(path),
        _ => {
            is_core(path, "pods", Some("status"))
                || is_core(path, "nodes", Some("status"))
                || is_core(path, "nodes", None)
                || is_lease(path)
        }
    };
    if urgent { Urgency::Urgent } else { Urgency::Ordinary }
}

/// `path` names one object of `resource` in the core group, and its `subresource`.
fn is_core(path: &str, resource: &str, subresource: Option<&str>) -> bool {
    let Some(rest) = path.strip_prefix("/api/v1/") else {
        return false;
    };
    let rest = match rest.strip_prefix("namespaces/") {
        Some(namespaced) => namespaced.split_once('/').map_or("", |(_, rest)| rest),
        None => rest,
    };
    let mut parts = rest.split('/');
    parts.next() == Some(resource) && parts.next().is_some() && parts.next() == subresource
}

fn is_lease(path: &str) -> bool {
    path.starts_with("/apis/coordination.k8s.io/v1/")
}

// === impl Limits ===

impl Limits {
    /// `qps` requests per second on average, `burst` at once; both are at least 1.
    pub(crate) fn new(qps: u32, burst: u32, now: Instant) -> Self {
        let bucket = Bucket {
            every: Duration::from_secs(1) / qps.max(1),
            burst: burst.max(1),
            full_at: now,
            paused_until: now,
        };
        Self { bucket: Mutex::new(bucket), waiting: AtomicUsize::new(0) }
    }

    /// Waits until the request may be sent. Dropping the future gives up the place, and the token
    /// with it.
    pub(crate) async fn admit(&self, urgency: Urgency) {
        let now = Instant::now();
        let wait = self.bucket().take(now, urgency);
        if !wait.is_zero() {
            let _counted = Waiting::new(&self.waiting);
            tokio::time::sleep_until(now + wait).await;
        }
    }

    /// The server has asked to be left alone for a while; that binds ordinary requests.
    pub(crate) fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait.min(LONGEST_PAUSE);
        let mut bucket = self.bucket();
        bucket.paused_until = bucket.paused_until.max(until);
    }

    /// Requests that wait at this moment.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn bucket(&self) -> std::sync::MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Bucket ===

impl Bucket {
    /// Takes a token, and returns how long its holder has to wait before using it.
    fn take(&mut self, now: Instant, urgency: Urgency) -> Duration {
        let room = self.every * self.burst;
        let full_at = self.full_at.max(now) + self.every;
        match urgency {
            Urgency::Urgent => {
                // What was sent without asking is still counted, but no further than one burst.
                self.full_at = full_at.min(now + room).max(self.full_at);
                Duration::ZERO
            }
            Urgency::Ordinary => {
                self.full_at = full_at;
                let rate = full_at.saturating_duration_since(now).saturating_sub(room);
                rate.max(self.paused_until.saturating_duration_since(now))
            }
        }
    }
}

// === impl Waiting ===

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
