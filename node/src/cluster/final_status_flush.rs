//! Sends final statuses, conditions and events to the API server before the node goes down.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_api_client::ConnectionState;
use winddown_cluster::events::Subject;
use winddown_cluster::status::submit_status;
use winddown_shared::status::StatusStore;
use winddown_shared::{PluginName, PodRef, ShutdownPoint, ShutdownWork, WorkContext, WorkError};

use super::Membership;
use super::facts::Clean;

/// How long to wait for a first answer if there are no credentials, or the API server rejects them: nothing arrives.
const UNAUTHORIZED_TIMEOUT: Duration = Duration::from_millis(100);

/// The same if the API server was unreachable: it may be back since, and then a connection has to be made.
const UNREACHABLE_SERVER_TIMEOUT: Duration = Duration::from_millis(500);

/// The same if the API server was connected: more than the second that Kubernetes allows it for an answer.
const SILENT_SERVER_TIMEOUT: Duration = Duration::from_millis(1500);

/// How long it may take to write to the disk what the next agent sends, where the API server does not get it.
const PERSIST_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the stop of an agent waits for the API server.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends the final statuses, conditions and events of a node that is going down, for as long as there is time.
pub(super) struct FinalReport {
    pub(super) cluster: Membership,
    pub(super) statuses: StatusStore,
}

/// What was not delivered to the API server.
struct Undelivered {
    /// The pods whose final status is missing.
    pods: Vec<PodRef>,
    /// Whether the Node object is missing that the node is going down.
    node: bool,
    /// The objects whose events are missing.
    events: Vec<Subject>,
}

impl Undelivered {
    fn is_any(&self) -> bool {
        self.node || !self.events.is_empty() || !self.pods.is_empty()
    }

    /// The result of the work: done only if the API server has everything.
    fn result(self) -> Result<(), WorkError> {
        let what = match (self.pods.is_empty(), self.node, self.events.is_empty()) {
            (false, ..) => return Err(WorkError::NotTold(self.pods)),
            (true, false, true) => return Ok(()),
            (true, true, true) => "the Node object was not updated",
            (true, false, false) => "events were not sent",
            (true, true, false) => "the Node object was not updated, and events were not sent",
        };
        Err(WorkError::Failed(what.into()))
    }
}

impl Membership {
    /// Has the node's conditions promise nothing after the stop of an agent whose node stays up, where the API server is
    /// there to be told.
    pub(super) async fn leave(&self) {
        let is_up = matches!(self.0.changing.lock().clean, Clean::Up(_));
        if is_up && self.api().is_connected() {
            self.change(|changing| changing.stopped = true);
            // The next agent sets them in any case.
            let _ = self.node().flush(Instant::now() + STOP_TIMEOUT).await;
        }
    }
}

impl FinalReport {
    /// The flush as the last work before the lock is released. The next agent sends what was not delivered.
    pub(super) fn work(self) -> ShutdownWork {
        let report = Arc::new(self);
        let what = match report.cluster.pods() {
            Some(_) => "send the pods' final statuses to the API server",
            None => "tell the API server that the node goes down",
        };
        let point = ShutdownPoint::BeforeRelease;
        ShutdownWork::new(PluginName::new("cluster"), what, point, None, move |context| {
            let report = Arc::clone(&report);
            async move { report.deliver(context).await.result() }
        })
    }

    /// Returns what was not delivered.
    async fn deliver(&self, context: WorkContext) -> Undelivered {
        let WorkContext { until, clean, .. } = context;
        let begun = Instant::now();
        self.cluster.0.connection.hurry(until);
        let persisted_within = until.min(begun + PERSIST_TIMEOUT);
        let (answered_within, persisted_until) = match self.cluster.api().state {
            ConnectionState::Connected | ConnectionState::Unknown => (SILENT_SERVER_TIMEOUT, until),
            ConnectionState::Unreachable { .. } | ConnectionState::Untrusted { .. } => {
                (UNREACHABLE_SERVER_TIMEOUT, persisted_within)
            }
            _ => (UNAUTHORIZED_TIMEOUT, persisted_within),
        };
        self.cluster.change(|changing| changing.clean = Clean::Down { clean });
        // The last changes may not have reached the outbox yet.
        if let Some(side) = self.cluster.pods() {
            let submit = |entry| submit_status(entry, &side.outbox, Some(&side.mirrors));
            self.statuses.all().iter().for_each(submit);
        }
        let telling = async {
            let left = self.flush(until.min(begun + answered_within)).await;
            let answers = self.cluster.0.connection.last_contact().is_some_and(|at| at >= begun);
            if left.is_any() && answers { self.flush(until).await } else { left }
        };
        let keeping = async {
            if let Some(side) = self.cluster.pods() {
                side.ended.flush(persisted_until).await;
            }
        };
        let (left, ()) = tokio::join!(telling, keeping);
        if left.node {
            tracing::warn!("the API server does not know that this node goes down");
        }
        if !left.events.is_empty() {
            let names: Vec<&str> = left.events.iter().map(Subject::name).collect();
            let of = names.join(", ");
            tracing::warn!(of, "events were not sent to the API server");
        }
        left
    }

    /// Sends everything, and returns what is not delivered by `until`.
    async fn flush(&self, until: Instant) -> Undelivered {
        let pods = async {
            let Some(side) = self.cluster.pods() else { return Vec::new() };
            side.outbox.flush(until).await
        };
        let node = self.cluster.node().flush(until);
        let events = self.cluster.0.events.flush(until);
        let (pods, node, events) = tokio::join!(pods, node, events);
        Undelivered { pods, node: node.is_err(), events }
    }
}
