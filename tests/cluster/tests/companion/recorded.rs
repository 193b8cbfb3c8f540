//! What an API server and a kubelet answer while pods end. The same questions go to the real ones, whose answers
//! are kept in `recorded.json`, and to the stand-ins, which have to answer alike.

use std::time::Duration;

use futures_util::StreamExt as _;
use http::{Method, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::client::Body;
use serde_json::{Value, json};

/// Between two looks at the container runtime.
const BETWEEN: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);

/// Three pods of one node, and the node's own connection.
pub(crate) struct Pods<'a> {
    pub(crate) client: kube::Client,
    pub(crate) node: &'a str,
    pub(crate) namespace: &'a str,
    /// It needs a second to end, and then ends well.
    pub(crate) willing: &'a str,
    /// The one pod of a budget that lets none go.
    pub(crate) guarded: &'a str,
    /// The picture of a manifest's pod, in `default`.
    pub(crate) mirror: &'a str,
}

/// What the container runtime has of the willing pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    pub(crate) runs: bool,
    pub(crate) has_sandbox: bool,
}

// === impl Pods ===

impl Pods<'_> {
    /// Everything that is recorded. `look` asks the container runtime for the pod of this UID.
    pub(crate) async fn record(&self, look: impl AsyncFn(&str) -> Inside) -> Value {
        let refused = self.answers_to_the_guarded().await;
        let mirror = self.mirror_comes_back().await;
        let (answers, course, order) = self.willing_ends(look).await;
        json!({"refused": refused, "mirror": mirror, "accepted": answers, "course": course, "order": order})
    }

    async fn answers_to_the_guarded(&self) -> Value {
        let uid = self.uid(self.namespace, self.guarded).await;
        let other = "00000000-0000-0000-0000-000000000000";
        json!({
            "eviction against a budget": self.evict(self.guarded, &uid, 20).await,
            "deletion of another UID": self.delete(self.namespace, self.guarded, other, 20).await,
        })
    }

    /// The picture is deleted, and the kubelet makes it anew.
    async fn mirror_comes_back(&self) -> Value {
        let uid = self.uid("default", self.mirror).await;
        let answer = self.delete("default", self.mirror, &uid, 20).await;
        let comes_back = async {
            while self
                .find("default", self.mirror)
                .await
                .is_none_or(|pod| pod.metadata.uid.as_ref() == Some(&uid))
            {
                tokio::time::sleep(BETWEEN).await;
            }
        };
        tokio::time::timeout(PATIENCE, comes_back).await.unwrap();
        json!({"deletion": answer, "comes back": "with another UID"})
    }

    /// The answers to what is asked, what the API server shows from then on, and in which order the container
    /// runtime and the API server show the end.
    async fn willing_ends(&self, look: impl AsyncFn(&str) -> Inside) -> (Value, Value, Value) {
        let all: Api<Pod> = Api::all(self.client.clone());
        let list = all.list(&self.of_node()).await.unwrap();
        let from = list.metadata.resource_version.unwrap_or_default();
        let params = WatchParams::default().fields(&format!("spec.nodeName={}", self.node));
        let events = all.watch(&params, &from).await.unwrap();
        let uid = self.uid(self.namespace, self.willing).await;
        let mut inside = look(&uid).await;
        let answers = json!([
            ["eviction with 20 s", self.evict(self.willing, &uid, 20).await],
            ["deletion with 10 s", self.delete(self.namespace, self.willing, &uid, 10).await],
            ["deletion with 15 s", self.delete(self.namespace, self.willing, &uid, 15).await],
            ["another eviction", self.evict(self.willing, &uid, 20).await],
        ]);
        let gone = Inside { runs: false, has_sandbox: false };
        let (mut course, mut order) = (Vec::new(), Vec::new());
        let mut events = std::pin::pin!(events);
        let mut is_over = false;
        let watching = async {
            while !is_over || inside != gone {
                let event = tokio::select! {
                    event = events.next(), if !is_over => Some(event),
                    () = tokio::time::sleep(BETWEEN) => None,
                };
                // What the API server says comes after what it speaks of: on a busy machine both may be there.
                let now = look(&uid).await;
                if inside.runs && !now.runs {
                    order.push("runtime: runs nothing");
                }
                if inside.has_sandbox && !now.has_sandbox {
                    order.push("runtime: no sandbox");
                }
                inside = now;
                let Some(event) = event else { continue };
                let (kind, pod) = match event.unwrap().unwrap() {
                    WatchEvent::Modified(pod) => ("modified", pod),
                    WatchEvent::Deleted(pod) => ("deleted", pod),
                    _ => continue,
                };
                if pod.metadata.uid.as_deref() != Some(&uid) {
                    continue;
                }
                is_over = kind == "deleted";
                let shown = json!([kind, shown(&pod)]);
                if shown[1]["container"] != "running" && !order.contains(&"API: ended") {
                    order.push("API: ended");
                }
                if is_over {
                    order.push("API: gone");
                }
                if course.last() != Some(&shown) {
                    course.push(shown);
                }
            }
        };
        tokio::time::timeout(PATIENCE, watching).await.unwrap();
        let answers = json!([
            answers,
            [
                ["eviction of none", self.evict(self.willing, &uid, 20).await],
                ["deletion of none", self.delete(self.namespace, self.willing, &uid, 20).await],
            ]
        ]);
        (answers, json!(course), json!(order))
    }

    async fn evict(&self, pod: &str, uid: &str, grace: u32) -> Value {
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
            "deleteOptions": {"gracePeriodSeconds": grace, "preconditions": {"uid": uid}},
        });
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", self.namespace);
        self.ask(Method::POST, &path, &body).await
    }

    async fn delete(&self, namespace: &str, pod: &str, uid: &str, grace: u32) -> Value {
        let body = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "gracePeriodSeconds": grace, "preconditions": {"uid": uid},
        });
        self.ask(Method::DELETE, &format!("/api/v1/namespaces/{namespace}/pods/{pod}"), &body).await
    }

    /// Status code, when to ask again, and the body: of a pod only what an end changes.
    async fn ask(&self, method: Method, path: &str, body: &Value) -> Value {
        let body = Body::from(serde_json::to_vec(body).unwrap());
        let request = Request::builder().method(method).uri(path);
        let request = request.header("Content-Type", "application/json").body(body).unwrap();
        let answer = self.client.send(request).await.unwrap();
        let code = answer.status().as_u16();
        let after =
            answer.headers().get("Retry-After").map(|after| after.to_str().unwrap().to_owned());
        let bytes = answer.into_body().collect_bytes().await.unwrap();
        let mut body: Value = serde_json::from_slice(&bytes).unwrap();
        if body["kind"] == "Pod" {
            body = shown(&serde_json::from_value(body).unwrap());
        }
        self.without_names(json!({"code": code, "retryAfter": after, "body": body})).await
    }

    /// What differs from node to node has the same name everywhere.
    async fn without_names(&self, said: Value) -> Value {
        let mut text = said.to_string();
        let pods: Api<Pod> = Api::all(self.client.clone());
        for pod in pods.list(&self.of_node()).await.unwrap() {
            text = text.replace(&pod.metadata.uid.unwrap_or_default(), "UID");
        }
        for (name, same) in [
            (self.mirror, "MIRROR"),
            (self.guarded, "GUARDED"),
            (self.willing, "WILLING"),
            (self.node, "NODE"),
        ] {
            text = text.replace(name, same);
        }
        serde_json::from_str(&text).unwrap()
    }

    async fn uid(&self, namespace: &str, name: &str) -> String {
        self.find(namespace, name).await.unwrap().metadata.uid.unwrap()
    }

    async fn find(&self, namespace: &str, name: &str) -> Option<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let found = pods.list(&self.of_node()).await.unwrap();
        found.items.into_iter().find(|pod| pod.metadata.name.as_deref() == Some(name))
    }

    fn of_node(&self) -> ListParams {
        ListParams::default().fields(&format!("spec.nodeName={}", self.node))
    }
}

/// What of a pod an end changes.
fn shown(pod: &Pod) -> Value {
    let status = pod.status.clone().unwrap_or_default();
    let condition = |kind: &str| {
        let all = status.conditions.iter().flatten();
        let mut of_kind = all.filter(|one| one.type_ == kind);
        of_kind.next().map(|one| json!([one.status, one.reason]))
    };
    let state = status.container_statuses.iter().flatten().next().and_then(|one| one.state.clone());
    let container = state.map(|state| match (state.running, state.terminated) {
        (Some(_), _) => json!("running"),
        (_, Some(ended)) => json!({"terminated": ended.exit_code, "reason": ended.reason}),
        _ => json!("waiting"),
    });
    json!({
        "deleting": pod.metadata.deletion_timestamp.is_some(),
        "grace": pod.metadata.deletion_grace_period_seconds,
        "phase": status.phase,
        "ready": condition("Ready"),
        "disruptionTarget": condition("DisruptionTarget"),
        "container": container,
    })
}
