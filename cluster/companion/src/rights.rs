//! The permissions that this agent needs from the API server next to a kubelet.

use futures_util::future::try_join_all;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, ResourceAttributes, SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use winddown_api_client::refusal::{self, Refusal};

use crate::eviction_requests;

/// One verb on one kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The verb, e.g. `get` or `create`.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, e.g. `pods` or `pods/eviction`.
    pub resource: &'static str,
}

/// All permissions that are required next to a kubelet.
pub const NEEDS: [Need; 11] = [
    Need::core("list", "pods"),
    Need::core("watch", "pods"),
    Need::core("delete", "pods"),
    Need::core("create", "pods/eviction"),
    Need::core("get", "nodes"),
    Need::core("list", "nodes"),
    Need::core("watch", "nodes"),
    Need::core("patch", "nodes"),
    Need::core("patch", "nodes/status"),
    Need { verb: "create", group: "events.k8s.io", resource: "events" },
    Need { verb: "patch", group: "events.k8s.io", resource: "events" },
];

/// Optional permission that allows deleting a pod without evicting it first if no budget selects it. A kubelet's own
/// credentials do not have it.
pub const READ_BUDGETS: Need =
    Need { verb: "list", group: "policy", resource: "poddisruptionbudgets" };

/// Optional permissions to make requests to a pod's eviction responders, if the API server supports them.
pub const REQUEST_EVICTIONS: [Need; 2] = [
    Need { verb: "create", group: "lifecycle.k8s.io", resource: "evictionrequests" },
    Need { verb: "get", group: "lifecycle.k8s.io", resource: "evictionrequests" },
];

/// The beginning of the names of the users that kubelets are.
const KUBELETS: &str = "system:node:";

/// The API server did not say what is allowed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the API server does not report this agent's rights: {why}")]
pub struct RightsUnknown {
    /// What happened, as text for users.
    pub why: String,
}

/// Those of [`NEEDS`] that the API server does not allow `client` for this node. Changes nothing.
///
/// # Errors
/// The API server cannot be queried.
pub async fn missing_rights(client: &kube::Client, node: &str) -> Result<Vec<Need>, RightsUnknown> {
    missing(client, node, NEEDS).await
}

async fn missing<const N: usize>(
    client: &kube::Client,
    node: &str,
    needs: [Need; N],
) -> Result<Vec<Need>, RightsUnknown> {
    let ask = async |need: Need| Ok((!may(client, node, need).await?).then_some(need));
    let answers = try_join_all(needs.map(ask)).await?;
    Ok(answers.into_iter().flatten().collect())
}

/// Those of [`REQUEST_EVICTIONS`] that the API server does not allow `client` although it serves eviction requests.
/// Changes nothing.
///
/// # Errors
/// The API server cannot be queried.
pub async fn missing_for_requests(
    client: &kube::Client,
    node: &str,
) -> Result<Vec<Need>, RightsUnknown> {
    let unknown = |error| RightsUnknown { why: refusal::text(&error) };
    match eviction_requests::served(client).await.map_err(unknown)? {
        true => missing(client, node, REQUEST_EVICTIONS).await,
        false => Ok(Vec::new()),
    }
}

/// Whether the API server allows `client` this need for this node. Changes nothing.
///
/// # Errors
/// The API server cannot be queried.
pub async fn may(client: &kube::Client, node: &str, need: Need) -> Result<bool, RightsUnknown> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    match reviews.create(&PostParams::default(), &need.review(node)).await {
        Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
        Err(error) => Err(RightsUnknown { why: refusal::text(&error) }),
    }
}

/// Whether the API server lets `client` change this node's taints, found out by a dry run. A review of permissions does
/// not cover this, because admission decides it (NodeRestriction).
///
/// # Errors
/// The API server cannot be queried, or does not know the node.
pub async fn may_taint(client: &kube::Client, node: &str) -> Result<bool, RightsUnknown> {
    let nodes: Api<Node> = Api::all(client.clone());
    let asked = async {
        let taints = nodes.get(node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let probe = json!({"key": "winddown.dev/asks", "effect": "NoSchedule"});
        let taints = taints.iter().map(|taint| json!(taint)).chain([probe]).collect::<Vec<_>>();
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        nodes.patch(node, &params, &Patch::Strategic(json!({"spec": {"taints": taints}}))).await
    };
    match asked.await {
        Ok(_) => Ok(true),
        Err(error) if Refusal::of(&error) == Refusal::NotAllowed => Ok(false),
        Err(error) => Err(RightsUnknown { why: refusal::text(&error) }),
    }
}

/// The name of another node than `node`, if the credentials are those of its kubelet. No rule gives these more rights.
/// Changes nothing.
pub async fn kubelet_elsewhere(client: &kube::Client, node: &str) -> Option<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let asked = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    // An old API server that serves no such review does not know.
    let user = asked.ok()?.status?.user_info?.username?;
    let other = user.strip_prefix(KUBELETS)?;
    (other != node).then(|| other.to_owned())
}

// === impl Need ===

impl Need {
    const fn core(verb: &'static str, resource: &'static str) -> Self {
        Self { verb, group: "", resource }
    }

    fn review(self, node: &str) -> SelfSubjectAccessReview {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource, None),
        };
        // A node may access only its own Node object, and may list pods only by its own node name.
        let name = (resource == "nodes").then(|| node.to_owned());
        let of_node = matches!((resource, self.verb), ("pods", "list" | "watch"));
        let field_selector = of_node.then(|| FieldSelectorAttributes {
            raw_selector: Some(format!("spec.nodeName={node}")),
            requirements: None,
        });
        let attributes = ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: Some(self.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            name,
            field_selector,
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            non_resource_attributes: None,
        };
        SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() }
    }
}

/// Formats as in `create pods/eviction`.
impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}
