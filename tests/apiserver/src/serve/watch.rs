//! Watches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Body;
use super::call::Call;
use super::read::metadata_of;
use crate::core::{Core, Shared};
use crate::kinds::Kind;
use crate::refusal::Refusal;
use crate::selector::Selector;
use crate::target::{Query, Target};

/// A running watch.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    kind: &'static Kind,
    selector: Selector,
    /// The last version that was sent or skipped.
    position: u64,
    lines: VecDeque<Bytes>,
    /// Whether nothing follows after `lines`.
    over: bool,
    until: Option<Instant>,
    bookmarks: Option<Bookmarks>,
    cuts_seen: usize,
    metadata_only: bool,
}

struct Bookmarks {
    every: Duration,
    next: Instant,
    /// The number of bookmark requests that were handled.
    seen: u64,
}

impl Watcher {
    /// Starts at the version in the query, or without one with all existing objects.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        target: &Target,
        call: &Call,
    ) -> Result<Self, Refusal> {
        let query = &call.query;
        let selector = Selector::of(target, query)?;
        let changed = shared.changed();
        let now = Instant::now();
        let mut watcher = Self {
            changed,
            kind: target.kind,
            selector,
            position: 0,
            lines: VecDeque::new(),
            over: false,
            until: query.number("timeoutSeconds").map(|s| now + Duration::from_secs(s)),
            bookmarks: None,
            cuts_seen: 0,
            metadata_only: call.metadata_only,
            shared: Arc::clone(shared),
        };
        shared.with(|core| {
            core.watches.open.push(target.kind.plural.to_owned());
            watcher.cuts_seen = core.watches.cuts.len();
            if query.is_true("allowWatchBookmarks") {
                let every = core.watches.bookmark_every.unwrap_or(Duration::from_secs(60));
                let seen = core.watches.bookmarks;
                watcher.bookmarks = Some(Bookmarks { every, next: now + every, seen });
            }
            watcher.start(core, query);
        });
        Ok(watcher)
    }

    pub(super) fn into_body(self) -> Body {
        let events = stream::unfold(self, |mut watcher| async move {
            let line = watcher.next().await?;
            Some((Ok(Frame::data(line)), watcher))
        });
        StreamBody::new(events).boxed_unsync()
    }

    fn start(&mut self, core: &Core, query: &Query) {
        let initial = query.is_true("sendInitialEvents");
        match query.number("resourceVersion").filter(|version| *version > 0 && !initial) {
            Some(version) if version < core.store.compacted() => {
                self.refuse(&Refusal::expired(version, core.store.compacted()));
            }
            Some(version) => self.position = version,
            None => {
                let found: Vec<_> = core
                    .store
                    .list(self.kind, &self.selector)
                    .map(|(_, o)| Arc::clone(o))
                    .collect();
                for object in found {
                    self.tell("ADDED", &object);
                }
                self.position = core.store.version();
                if initial {
                    self.bookmark(true);
                }
            }
        }
    }

    /// The next line; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.over {
                return None;
            }
            self.changed.mark_unchanged();
            let shared = Arc::clone(&self.shared);
            shared.with(|core| self.fill(core));
            if !self.lines.is_empty() || self.over {
                continue;
            }
            let far = Instant::now() + Duration::from_secs(86_400);
            let until = self.until.unwrap_or(far);
            let bookmark = self.bookmarks.as_ref().map_or(far, |bookmarks| bookmarks.next);
            tokio::select! {
                changed = self.changed.changed() => self.over = changed.is_err(),
                () = tokio::time::sleep_until(until) => self.over = true,
                () = tokio::time::sleep_until(bookmark) => self.bookmark(false),
            }
        }
    }

    /// Queues the events for what has happened since the last call.
    fn fill(&mut self, core: &Core) {
        if let Some(error) = core.watches.end_of(self.kind.plural, self.cuts_seen) {
            if let Some(error) = error {
                self.line("ERROR", &error);
            }
            self.over = true;
            return;
        }
        if core.watches.paused {
            return;
        }
        let Some(changes) = core.store.since(self.position) else {
            self.refuse(&Refusal::expired(self.position, core.store.compacted()));
            return;
        };
        for change in changes {
            if let Some((what, object)) = change.seen_by(self.kind, &self.selector) {
                self.tell(what, &object);
            }
        }
        self.position = self.position.max(core.store.version());
        let asked = core.watches.bookmarks;
        let due =
            self.bookmarks.as_mut().is_some_and(|b| std::mem::replace(&mut b.seen, asked) < asked);
        if due {
            self.bookmark(false);
        }
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.line("ERROR", &refusal.status());
        self.over = true;
    }

    fn bookmark(&mut self, initial_events_end: bool) {
        let mut metadata =
            json!({"resourceVersion": self.position.to_string(), "creationTimestamp": null});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({
            "kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata,
        });
        self.tell("BOOKMARK", &object);
        if let Some(bookmarks) = &mut self.bookmarks {
            bookmarks.next = Instant::now() + bookmarks.every;
        }
    }

    fn tell(&mut self, what: &str, object: &Value) {
        if self.metadata_only {
            self.line(what, &metadata_of(object));
        } else {
            self.line(what, object);
        }
    }

    fn line(&mut self, what: &str, object: &Value) {
        self.lines.push_back(Bytes::from(format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")));
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let plural = self.kind.plural;
        self.shared.with(|core| {
            if let Some(index) = core.watches.open.iter().position(|open| open == plural) {
                core.watches.open.swap_remove(index);
            }
        });
    }
}
