//! Aggregates similar events. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::queue::Queued;
use super::{EventDraft, EventKind, Subject, Weight};

/// How long a series continues after its last event, and how long messages are compared.
const SERIES_WINDOW: Duration = Duration::from_secs(600);
/// If there are more different messages than this for one reason and object, the rest are one series.
const MAX_DIFFERENT_MESSAGES: usize = 10;
/// The burst of events of one object, and the time until one more is allowed.
const EVENT_BURST: f64 = 25.0;
const BURST_REFILL_INTERVAL: Duration = Duration::from_secs(300);
/// The number of entries from which on old ones are removed.
const PRUNE_FROM_ENTRIES: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CorrelationStep {
    /// Write it as a separate event with this message.
    Create { key: SeriesKey, message: Arc<str> },
    /// Update the event with this name to this number of occurrences.
    Repeat { key: SeriesKey, name: Arc<str>, count: i32 },
    /// Its object had too many. It counts when the series is written next.
    HoldBack,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey {
    class: Class,
    /// `None` for events with too many different messages to distinguish.
    message: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Class {
    about: Subject,
    kind: EventKind,
    reason: Arc<str>,
}

/// Remembers what was written. Its memory is bounded by the events of ten minutes.
#[derive(Debug)]
pub(super) struct Correlator {
    series: HashMap<SeriesKey, Series>,
    classes: HashMap<Class, Similar>,
    buckets: HashMap<Subject, Bucket>,
    look_at: usize,
}

#[derive(Debug)]
struct Series {
    name: Option<Arc<str>>,
    count: i32,
    last: Instant,
}

#[derive(Debug)]
struct Similar {
    messages: Vec<Arc<str>>,
    last: Instant,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

// === impl Correlator ===

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            series: HashMap::new(),
            classes: HashMap::new(),
            buckets: HashMap::new(),
            look_at: PRUNE_FROM_ENTRIES,
        }
    }

    /// Decides what to do with the event.
    pub(super) fn observe(&mut self, queued: &Queued) -> CorrelationStep {
        let now = queued.since;
        self.forget_old(now);
        let draft = &queued.draft;
        let key = self.key(draft, now);
        let may_write = draft.weight == Weight::Decision || self.take_token(&draft.about, now);
        if let Some(series) = self.series.get_mut(&key).filter(|s| is_recent(s.last, now)) {
            series.count = series.count.saturating_add(1);
            series.last = now;
            if !may_write {
                return CorrelationStep::HoldBack;
            }
            if let Some(name) = series.name.clone() {
                return CorrelationStep::Repeat { key, name, count: series.count };
            }
        } else {
            self.series.insert(key.clone(), Series { name: None, count: 1, last: now });
            if !may_write {
                return CorrelationStep::HoldBack;
            }
        }
        let message = match &key.message {
            Some(message) => Arc::clone(message),
            None => format!("(combined from similar events): {}", draft.message).into(),
        };
        CorrelationStep::Create { key, message }
    }

    /// Records that the event was written under this name.
    pub(super) fn written(&mut self, key: &SeriesKey, name: Arc<str>) {
        if let Some(series) = self.series.get_mut(key) {
            series.name = Some(name);
        }
    }

    /// Forgets a series whose event does not exist.
    pub(super) fn forget(&mut self, key: &SeriesKey) {
        self.series.remove(key);
    }

    fn key(&mut self, draft: &EventDraft, now: Instant) -> SeriesKey {
        let class = Class {
            about: draft.about.clone(),
            kind: draft.kind,
            reason: Arc::from(draft.reason.as_ref()),
        };
        let similar = self
            .classes
            .entry(class.clone())
            .or_insert_with(|| Similar { messages: Vec::new(), last: now });
        if !is_recent(similar.last, now) {
            similar.messages.clear();
        }
        similar.last = now;
        let is_known = similar.messages.contains(&draft.message);
        if !is_known && similar.messages.len() < MAX_DIFFERENT_MESSAGES {
            similar.messages.push(Arc::clone(&draft.message));
            return SeriesKey { class, message: Some(Arc::clone(&draft.message)) };
        }
        SeriesKey { class, message: is_known.then(|| Arc::clone(&draft.message)) }
    }

    fn take_token(&mut self, about: &Subject, now: Instant) -> bool {
        let bucket =
            self.buckets.entry(about.whole()).or_insert(Bucket { tokens: EVENT_BURST, at: now });
        let gained =
            now.saturating_duration_since(bucket.at).div_duration_f64(BURST_REFILL_INTERVAL);
        bucket.tokens = (bucket.tokens + gained).min(EVENT_BURST);
        bucket.at = now;
        let may = bucket.tokens >= 1.0;
        if may {
            bucket.tokens -= 1.0;
        }
        may
    }

    /// Removes old entries, but only once there are twice as many as the last removal left.
    fn forget_old(&mut self, now: Instant) {
        if self.series.len() + self.buckets.len() < self.look_at {
            return;
        }
        self.series.retain(|_, series| is_recent(series.last, now));
        self.classes.retain(|_, similar| is_recent(similar.last, now));
        let until_full = BURST_REFILL_INTERVAL.mul_f64(EVENT_BURST);
        self.buckets.retain(|_, b| now.saturating_duration_since(b.at) < until_full);
        self.look_at = (2 * (self.series.len() + self.buckets.len())).max(PRUNE_FROM_ENTRIES);
    }
}

fn is_recent(last: Instant, now: Instant) -> bool {
    now.saturating_duration_since(last) < SERIES_WINDOW
}
