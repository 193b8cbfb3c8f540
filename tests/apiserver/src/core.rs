//! The server's whole state, behind one lock that is never held across an await.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::clock::Clock;
use crate::fault::Faults;
use crate::pki::Authority;
use crate::request::{Request, matches};
use crate::store::Store;
use crate::write::Writer;

/// The number of requests that the journal keeps.
const KEPT_REQUESTS: usize = 100_000;

/// The state, and notifications of its changes.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Counts changes that a watch may have to report.
    changed: watch::Sender<u64>,
    /// Counts these changes and requests.
    activity: watch::Sender<u64>,
}

/// The state.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) faults: Faults,
    pub(crate) access: Access,
    pub(crate) authority: Authority,
    pub(crate) clock: Clock,
    pub(crate) watches: Watches,
    /// The lifetime of certificates that are signed at once; `None`: requests wait.
    pub(crate) sign_for: Option<Duration>,
    /// Whether nodes are restricted to what the real server lets a node do.
    pub(crate) nodes_restricted: bool,
    /// The minor version of Kubernetes 1 that the server claims to be.
    pub(crate) minor: u32,
    journal: VecDeque<Request>,
    requests: u64,
    pub(crate) connections: u64,
    pub(crate) is_cut_off: bool,
    /// Cancelled to close every open connection.
    pub(crate) connections_closed: CancellationToken,
}

/// The state of the running watches, and what is done to them.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    pub(crate) paused: bool,
    /// The times that watches were ended, with the resource and the final error event, if any.
    pub(crate) cuts: Vec<(String, Option<Value>)>,
    /// Counts requests for bookmarks.
    pub(crate) bookmarks: u64,
    /// The interval between bookmarks.
    pub(crate) bookmark_every: Option<Duration>,
    /// The resources of the open watches.
    pub(crate) open: Vec<String>,
}

impl Shared {
    pub(crate) fn new(authority: Authority, clock: Clock) -> Arc<Self> {
        let core = Core {
            store: Store::new(),
            faults: Faults::default(),
            access: Access::default(),
            authority,
            clock,
            watches: Watches::default(),
            sign_for: Some(Duration::from_secs(86_400)),
            nodes_restricted: false,
            minor: 36,
            journal: VecDeque::new(),
            requests: 0,
            connections: 0,
            is_cut_off: false,
            connections_closed: CancellationToken::new(),
        };
        Arc::new(Self {
            core: Mutex::new(core),
            changed: watch::Sender::new(0),
            activity: watch::Sender::new(0),
        })
    }

    /// Reads or changes the state. Wakes waiting tasks if it changed.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let before = core.mark();
        let result = act(&mut core);
        let after = core.mark();
        drop(core);
        if before.watched != after.watched {
            self.changed.send_modify(|count| *count += 1);
        }
        if before != after {
            self.activity.send_modify(|count| *count += 1);
        }
        result
    }

    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn activity(&self) -> watch::Receiver<u64> {
        self.activity.subscribe()
    }

    /// Waits until a fault is lifted.
    pub(crate) async fn until_lifted(&self, fault: u64) {
        let mut activity = self.activity();
        while self.with(|core| core.faults.is_set(fault)) {
            // The sender lives as long as `self`.
            let _ = activity.changed().await;
        }
    }

    /// Wakes all waiting tasks. Needed when entries of the journal change in place.
    pub(crate) fn touch(&self) {
        self.activity.send_modify(|count| *count += 1);
    }
}

impl Core {
    pub(crate) fn writer(&mut self) -> Writer<'_> {
        Writer { now: self.clock.now(), store: &mut self.store, node: None }
    }

    /// Enters a request in the journal and returns its number.
    pub(crate) fn enter(&mut self, mut request: Request) -> u64 {
        self.requests += 1;
        request.number = self.requests;
        self.journal.push_back(request);
        if self.journal.len() > KEPT_REQUESTS {
            self.journal.pop_front();
        }
        self.requests
    }

    /// Completes a journal entry.
    pub(crate) fn amend(&mut self, number: u64, change: impl FnOnce(&mut Request)) {
        let first = self.journal.front().map_or(0, |request| request.number);
        // A request that was dropped meanwhile is before the first.
        let index = number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        if let Some(request) = index.and_then(|index| self.journal.get_mut(index)) {
            change(request);
        }
    }

    pub(crate) fn journal(&self) -> &VecDeque<Request> {
        &self.journal
    }

    pub(crate) fn forget_requests(&mut self) {
        self.journal.clear();
    }

    pub(crate) fn close_connections(&mut self) {
        std::mem::take(&mut self.connections_closed).cancel();
    }

    fn mark(&self) -> Mark {
        let w = &self.watches;
        Mark {
            watched: (self.store.version(), w.paused, w.cuts.len(), w.bookmarks),
            other: (
                self.requests,
                self.journal.len(),
                w.open.len(),
                self.connections,
                self.faults.len(),
            ),
        }
    }
}

/// The parts of the state whose changes wake waiting tasks.
#[derive(PartialEq)]
struct Mark {
    /// The part that watches wait for.
    watched: (u64, bool, usize, u64),
    /// The part that only other tasks wait for.
    other: (u64, usize, usize, u64, usize),
}

impl Watches {
    /// Ends the running watches of a resource; `*` means all.
    pub(crate) fn cut(&mut self, resource: &str, error: Option<Value>) {
        self.cuts.push((resource.to_owned(), error));
    }

    /// Whether a watch that started after `seen` cuts has to end, and with which error.
    pub(crate) fn end_of(&self, resource: &str, seen: usize) -> Option<Option<Value>> {
        let mut cuts = self.cuts.get(seen..).unwrap_or_default().iter();
        cuts.find(|(pattern, _)| matches(pattern, resource)).map(|(_, error)| error.clone())
    }

    pub(crate) fn count(&self, resource: &str) -> usize {
        self.open.iter().filter(|open| matches(resource, open)).count()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::request::Right;

    fn request() -> Request {
        let right = Right {
            verb: "get".to_owned(),
            group: String::new(),
            resource: "pods".to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
        };
        Request {
            at: Instant::now(),
            user: String::new(),
            right,
            path: String::new(),
            content_type: String::new(),
            user_agent: String::new(),
            body: Value::Null,
            code: None,
            fault: None,
            number: 0,
        }
    }

    #[test]
    fn the_answer_to_a_request_that_was_forgotten_is_not_that_of_another() {
        let clock = Clock::default();
        let shared = Shared::new(Authority::new(clock.now()).unwrap(), clock);
        let codes = shared.with(|core| {
            let forgotten = core.enter(request());
            core.forget_requests();
            let kept = core.enter(request());
            core.amend(forgotten, |request| request.code = Some(500));
            core.amend(kept, |request| request.fault = Some("delayed".to_owned()));
            core.journal().iter().map(|r| (r.code, r.fault.clone())).collect::<Vec<_>>()
        });
        assert_eq!(codes, [(None, Some("delayed".to_owned()))]);
    }
}
