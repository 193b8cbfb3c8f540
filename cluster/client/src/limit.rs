//! Limits the rate of requests to the API server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use winddown_shared::Mutex;

#[cfg(test)]
mod tests;

/// The longest pause of ordinary requests that one answer can cause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest time that late requests wait for urgent ones.
const LONGEST_WAY: Duration = Duration::from_secs(1);

/// Limits the rate of ordinary requests. Requests that the node's state depends on never wait.
#[derive(Debug)]
pub(crate) struct RequestLimits {
    bucket: Mutex<Bucket>,
    hurried: Notify,
    urgent_under_way: watch::Sender<usize>,
    waiting: AtomicUsize,
}

/// Whether a request may wait behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Statuses of pods and of the node, its lease, deletions and evictions of pods, its list of pods, the server's version.
    Urgent,
    /// Everything else: other reads and watches, tokens.
    Ordinary,
    /// Events. A hundred pods that stop cause as many, which would delay their other requests.
    Late,
}

/// A token bucket as one number: when it would be full again.
#[derive(Clone, Debug)]
struct Bucket {
    every: Duration,
    burst: u32,
    full_at: Instant,
    paused_until: Instant,
    in_haste_until: Instant,
}

/// An urgent request that has not been answered yet.
#[must_use]
pub(crate) struct InProgress<'a>(Option<&'a watch::Sender<usize>>);

/// Counts a waiting request until it is dropped. Gives its token back if its turn has not come by then.
struct Waiting<'a> {
    limits: &'a RequestLimits,
    is_over: bool,
}

/// The urgency of a request, by its method and path.
pub(crate) fn urgency(method: &Method, path: &str) -> Urgency {
    let urgent = match *method {
        // The probe, and the list and the watch of the node's pods: a stop that waits for one takes its delay for an outage.
        Method::GET => matches!(path, "/version" | "/api/v1/pods"),
        Method::DELETE => is_core(path, "pods", None),
        Method::POST => is_core(path, "pods", Some("eviction")) || is_lease(path),
        _ => {
            is_core(path, "pods", Some("status"))
                || is_core(path, "nodes", Some("status"))
                || is_core(path, "nodes", None)
                || is_lease(path)
        }
    };
    if urgent {
        Urgency::Urgent
    } else if path.starts_with("/apis/events.k8s.io/") {
        Urgency::Late
    } else {
        Urgency::Ordinary
    }
}

/// Whether `path` names one object of `resource` in the core group, and this `subresource`.
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

// === impl RequestLimits ===

impl RequestLimits {
    /// A limit of `qps` requests per second on average and `burst` at once; both are at least 1.
    pub(crate) fn new(qps: u32, burst: u32, now: Instant) -> Self {
        let bucket = Bucket {
            every: Duration::from_secs(1) / qps.max(1),
            burst: burst.max(1),
            full_at: now,
            paused_until: now,
            in_haste_until: now,
        };
        Self {
            bucket: Mutex::new(bucket),
            hurried: Notify::new(),
            urgent_under_way: watch::Sender::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits until the request may be sent. The caller keeps the result until there is an answer.
    /// Dropping the future gives the place and the token back.
    pub(crate) async fn admit(&self, urgency: Urgency) -> InProgress<'_> {
        if urgency == Urgency::Late {
            let mut urgent = self.urgent_under_way.subscribe();
            // The sender lives as long as `self`.
            let _ = timeout(LONGEST_WAY, urgent.wait_for(|count| *count == 0)).await;
        }
        let now = Instant::now();
        let hurried = self.hurried.notified();
        let (wait, paused) = {
            let mut bucket = self.bucket.lock();
            (bucket.take(now, urgency), bucket.paused_until)
        };
        if !wait.is_zero() {
            let mut waiting = Waiting::new(self);
            let in_haste = async {
                hurried.await;
                tokio::time::sleep_until(paused).await;
            };
            tokio::select! {
                () = tokio::time::sleep_until(now + wait) => {}
                () = in_haste => {}
            }
            waiting.is_over = true;
        }
        InProgress::new((urgency == Urgency::Urgent).then_some(&self.urgent_under_way))
    }

    /// Suspends the rate limit until this time, also for requests that wait already.
    pub(crate) fn hurry(&self, until: Instant) {
        self.bucket.lock().in_haste_until = until;
        self.hurried.notify_waiters();
    }

    /// Pauses ordinary requests, because the server has asked for it.
    pub(crate) fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait.min(LONGEST_PAUSE);
        let mut bucket = self.bucket.lock();
        bucket.paused_until = bucket.paused_until.max(until);
    }

    /// The number of requests that wait at the moment.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

// === impl Bucket ===

impl Bucket {
    /// Takes a token, and returns how long its holder has to wait before using it.
    fn take(&mut self, now: Instant, urgency: Urgency) -> Duration {
        let room = self.every * self.burst;
        let full_at = self.full_at.max(now) + self.every;
        let paused = self.paused_until.saturating_duration_since(now);
        if urgency != Urgency::Urgent && self.in_haste_until <= now {
            self.full_at = full_at;
            return full_at.saturating_duration_since(now).saturating_sub(room).max(paused);
        }
        // Requests that were sent without waiting still count, but for no more than one burst.
        self.full_at = full_at.min(now + room).max(self.full_at);
        if urgency == Urgency::Urgent { Duration::ZERO } else { paused }
    }
}

// === impl InProgress ===

impl<'a> InProgress<'a> {
    fn new(count: Option<&'a watch::Sender<usize>>) -> Self {
        count.inspect(|count| count.send_modify(|count| *count += 1));
        Self(count)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.inspect(|count| count.send_modify(|count| *count -= 1));
    }
}

// === impl Waiting ===

impl<'a> Waiting<'a> {
    fn new(limits: &'a RequestLimits) -> Self {
        limits.waiting.fetch_add(1, Ordering::Relaxed);
        Self { limits, is_over: false }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.limits.waiting.fetch_sub(1, Ordering::Relaxed);
        if !self.is_over {
            let mut bucket = self.limits.bucket.lock();
            let every = bucket.every;
            bucket.full_at -= every;
        }
    }
}
