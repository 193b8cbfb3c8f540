//! Watches the nodes that go down first.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_api_client::outage::Outage;
use winddown_api_client::{events_of, list_and_watch, refusal};

use super::{DownStage, SeenNodes};

/// Watches the nodes of a selector.
pub struct NodesFollower {
    api: Api<Node>,
    selector: String,
    own_name: String,
    seen: watch::Sender<SeenNodes>,
}

impl NodesFollower {
    /// Watches the nodes that `selector` selects, except `own_name`. Makes no request before [`run`](Self::run).
    pub fn new(client: Client, selector: &str, own_name: &str) -> Self {
        Self {
            api: Api::all(client),
            selector: selector.to_owned(),
            own_name: own_name.to_owned(),
            seen: watch::Sender::default(),
        }
    }

    /// The current state, and every change of it.
    pub fn seen(&self) -> watch::Receiver<SeenNodes> {
        self.seen.subscribe()
    }

    /// Follows the API server until `cancel`. Never gives up; the last known state stays.
    pub async fn run(self, cancel: CancellationToken) {
        cancel.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&self) {
        let outage = Outage::new("watching the nodes that go down before this one");
        let config = Config::default().labels(&self.selector);
        let failed = |error: &watcher::Error| {
            let why: Arc<str> = refusal::watch_text(error).into();
            self.seen.send_if_modified(|seen| seen.trouble.replace(Arc::clone(&why)) != Some(why));
        };
        let mut events = events_of(list_and_watch(self.api.clone(), config), outage, failed);
        let mut listed = BTreeMap::new();
        while let Some(event) = events.next().await {
            self.take(event, &mut listed);
        }
    }

    /// Handles one event. A list counts once it has been read completely.
    fn take(&self, event: Event<Node>, listed: &mut BTreeMap<Arc<str>, DownStage>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => {
                listed.extend(self.other(&node).map(|name| (name, DownStage::of(&node))));
            }
            Event::InitDone => self.change(|nodes| *nodes = std::mem::take(listed)),
            Event::Apply(node) => self.change(|nodes| {
                nodes.extend(self.other(&node).map(|name| (name, DownStage::of(&node))));
            }),
            Event::Delete(node) => self.change(|nodes| {
                nodes.remove(node.metadata.name.as_deref().unwrap_or_default());
            }),
        }
    }

    /// Applies an answer of the API server. Heartbeats change nothing, so receivers are not notified.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<Arc<str>, DownStage>)) {
        self.seen.send_if_modified(|seen| {
            let before = seen.clone();
            seen.trouble = None;
            change(seen.nodes.get_or_insert_default());
            *seen != before
        });
    }

    /// The name of the node, unless it is this one.
    fn other(&self, node: &Node) -> Option<Arc<str>> {
        node.metadata.name.as_deref().filter(|name| *name != self.own_name).map(Arc::from)
    }
}

impl std::fmt::Debug for NodesFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodesFollower").field("selector", &self.selector).finish_non_exhaustive()
    }
}
