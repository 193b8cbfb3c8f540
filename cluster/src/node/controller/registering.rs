//! Registers the Node object.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use tracing::{info, warn};
use winddown_shared::error_chain;

use super::{Core, Registration};
use crate::node::desired::NodeFacts;
use crate::node::fault::Fault;
use winddown_api_client::refusal::Refusal;
use winddown_api_client::within;

/// The result of a registration.
#[derive(Debug)]
pub(super) enum Registered {
    /// There is a Node object, which the server's view now has.
    Yes,
    /// There is none, and this agent does not create one.
    NotOurs,
    /// The request failed, so this is not known.
    Failed(Fault),
}

impl Core {
    /// Looks for the Node object, and creates it if this agent registers the node.
    pub(super) async fn register(&self) -> Registered {
        match self.bounded(self.api.get(&self.name)).await {
            Ok(node) => return self.found(node),
            Err(fault) if fault.refusal() == Refusal::NotFound => {
                self.state.send_if_modified(|state| !std::mem::replace(&mut state.was_read, true));
            }
            Err(fault) => return Registered::Failed(fault),
        }
        if !self.may_create() {
            return Registered::NotOurs;
        }
        let node = self.to_create(true);
        let mut created = self.create(&node).await;
        if let Err(fault) = &created
            && fault.is_for_good()
        {
            // One forbidden label must not prevent the registration. Taints can be set only now.
            warn!(
                node = %self.name,
                error = error_chain(fault),
                "the API server does not admit the node with its labels; retrying without them"
            );
            created = self.create(&self.to_create(false)).await;
        }
        match created {
            Ok(node) => {
                self.state.send_modify(|state| state.registrations += 1);
                self.found(node)
            }
            Err(fault) => Registered::Failed(fault),
        }
    }

    fn to_create(&self, labelled: bool) -> Node {
        let wanted = self.wanted(&[]);
        let now = Time(self.clock.now());
        let facts = self.facts.borrow();
        if labelled {
            return facts.to_node(&self.name, wanted, &now);
        }
        let bare = NodeFacts { labels: BTreeMap::new(), ..facts.clone() };
        bare.to_node(&self.name, wanted, &now)
    }

    async fn create(&self, node: &Node) -> Result<Node, Fault> {
        let params = PostParams {
            field_manager: Some(self.field_manager.to_string()),
            ..PostParams::default()
        };
        self.bounded(self.api.create(&params, node)).await
    }

    /// Sends a request with the usual timeout.
    pub(super) async fn bounded<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Fault> {
        let answer = within(self.settings.request_timeout, request).await;
        answer.flatten().map_err(Fault::Api)
    }

    fn found(&self, node: Node) -> Registered {
        self.server.offer(node, None);
        Registered::Yes
    }

    /// Records that the API server has this Node object. The watch may find it before
    /// [`register`](Self::register) looks for it, above all one that others have created.
    pub(super) fn note_registered(&self, node: &Node) {
        let uid = node.metadata.uid.as_deref().unwrap_or_default();
        self.state.send_if_modified(|state| {
            let new = state.uid.as_deref() != Some(uid);
            if new {
                info!(node = %self.name, node_uid = uid, "the node is registered");
                state.uid = Some(uid.into());
            }
            state.was_read = true;
            std::mem::take(&mut state.deleted) || new
        });
    }

    /// Whether to create a missing Node object.
    fn may_create(&self) -> bool {
        if self.desired.borrow().shutting_down.is_some() {
            return false;
        }
        let known_before = {
            let state = self.state.borrow();
            state.uid.is_some() || state.deleted
        };
        match self.settings.registration {
            Registration::Always => true,
            Registration::AtStart if !known_before => true,
            Registration::AtStart => {
                self.state.send_if_modified(|state| {
                    let first = !std::mem::replace(&mut state.deleted, true);
                    if first {
                        state.uid = None;
                        warn!(
                            node = %self.name,
                            "the Node object was deleted: restart the agent to register the node \
                             again, or let it do so by itself (registration: always)"
                        );
                    }
                    first
                });
                false
            }
            Registration::Never => false,
        }
    }
}
