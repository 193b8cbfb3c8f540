//! The last known state of this node at the API server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::watcher::{Config, Event};
use tokio::sync::watch;
use tokio::time::timeout;

use winddown_api_client::outage::Outage;
use winddown_api_client::refusal::Refusal;
use winddown_api_client::{events_of, list_and_watch};

/// The Node object as the server has it, from its own watch and from the answers to writes.
#[derive(Clone, Debug)]
pub(super) struct ServerNode(watch::Sender<Option<Arc<Node>>>);

/// Reads the Node object by itself.
#[derive(Clone, Debug)]
pub(super) struct NodeReader {
    pub(super) api: Api<Node>,
    pub(super) name: Arc<str>,
    pub(super) request_timeout: Duration,
    pub(super) server: ServerNode,
}

#[derive(Debug, Default)]
struct Listing {
    /// What was known when it began.
    before: Option<Arc<Node>>,
    has_node: bool,
}

impl NodeReader {
    /// Returns whether the API server has answered. If it refuses, there is nothing newer to know.
    pub(super) async fn read(&self) -> bool {
        let before = self.server.node();
        match timeout(self.request_timeout, self.api.get_opt(&self.name)).await {
            Ok(Ok(Some(node))) => self.server.offer(node, before.as_ref()),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => return Refusal::of(&error) == Refusal::NotAllowed,
            Err(_) => return false,
        }
        true
    }
}

impl ServerNode {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Arc<Node>>> {
        self.0.subscribe()
    }

    pub(super) fn node(&self) -> Option<Arc<Node>> {
        self.0.borrow().clone()
    }

    /// Takes a node that the server sent, unless a newer one is known. Answers and the watch race.
    ///
    /// `before` is what was known when the request was sent that this answers, a list or a write. An answer is
    /// never older than that, but its version is lower if the server's data was restored from a backup.
    pub(super) fn offer(&self, node: Node, before: Option<&Arc<Node>>) {
        self.0.send_if_modified(|known| {
            if let Some(known) = known.as_ref() {
                let is_answer = before.is_some_and(|before| Arc::ptr_eq(before, known));
                let differs = node.metadata.resource_version != known.metadata.resource_version;
                let counts = is_newer(&node, known) || (is_answer && differs);
                if !counts {
                    return false;
                }
            }
            *known = Some(Arc::new(node));
            true
        });
    }

    /// Records that the node with this UID is gone.
    pub(super) fn gone(&self, uid: Option<&str>) {
        self.0.send_if_modified(|known| {
            let same = known.as_ref().is_some_and(|known| known.metadata.uid.as_deref() == uid);
            if same {
                *known = None;
            }
            same
        });
    }

    /// Follows the node forever. Without the watch (no permission, no connection), answers to
    /// writes still show most changes.
    pub(super) async fn follow(&self, api: Api<Node>, name: &str) {
        let config = Config::default().fields(&format!("metadata.name={name}"));
        let outage = Outage::new("watching this node's object");
        let mut events = events_of(list_and_watch(api, config), outage, |_| {});
        let mut listing = Listing::default();
        while let Some(event) = events.next().await {
            self.take(event, &mut listing);
        }
    }

    fn take(&self, event: Event<Node>, listing: &mut Listing) {
        match event {
            Event::Init => *listing = Listing { before: self.node(), has_node: false },
            Event::InitApply(node) => {
                listing.has_node = true;
                self.offer(node, listing.before.as_ref());
            }
            Event::InitDone if listing.has_node => {}
            Event::InitDone => {
                let before = listing.before.as_ref();
                self.gone(before.and_then(|node| node.metadata.uid.as_deref()));
            }
            Event::Apply(node) => self.offer(node, None),
            Event::Delete(node) => self.gone(node.metadata.uid.as_deref()),
        }
    }
}

/// Whether `node` is a different and not an earlier version than `known`.
fn is_newer(node: &Node, known: &Node) -> bool {
    if node.metadata.uid != known.metadata.uid {
        // Another object with the same name: the one that was created later counts.
        return node.metadata.creation_timestamp >= known.metadata.creation_timestamp;
    }
    match (version(node), version(known)) {
        (Some(node), Some(known)) => node > known,
        _ => node.metadata.resource_version != known.metadata.resource_version,
    }
}

fn version(node: &Node) -> Option<u64> {
    node.metadata.resource_version.as_deref()?.parse().ok()
}
