//! Discovery: the server's version, health and API resources.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Reply;
use crate::kinds::{KINDS, Kind, of_group};

/// The answer of Kubernetes 1 with this minor version. `None` if the path does not exist.
pub(super) fn answer(path: &str, minor: u32) -> Option<Reply> {
    let object = match path.trim_end_matches('/') {
        "/healthz" | "/livez" | "/readyz" => return Some(Reply::Text("ok")),
        "/version" => {
            let git = format!("v1.{minor}.0");
            let minor = minor.to_string();
            json!({"major": "1", "minor": minor, "gitVersion": git, "platform": "linux/amd64"})
        }
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
        "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups(minor)}),
        "/api/v1" => resources("", "v1", minor)?,
        other => {
            let mut parts = other.strip_prefix("/apis/")?.split('/');
            match (parts.next()?, parts.next(), parts.next()) {
                (group, Some(version), None) => resources(group, version, minor)?,
                (name, None, None) => groups(minor).into_iter().find(|g| g["name"] == name)?,
                _ => return None,
            }
        }
    };
    Some(Reply::Object(200, Arc::new(object)))
}

fn groups(minor: u32) -> Vec<Value> {
    let served = KINDS.iter().filter(|kind| kind.since <= minor);
    let mut names: Vec<(&str, &str)> =
        served.filter(|k| !k.group.is_empty()).map(|k| (k.group, k.version)).collect();
    names.dedup();
    names
        .into_iter()
        .map(|(group, version)| {
            let version = json!({"groupVersion": format!("{group}/{version}"), "version": version});
            json!({"name": group, "versions": [version], "preferredVersion": version})
        })
        .collect()
}

fn resources(group: &str, version: &str, minor: u32) -> Option<Value> {
    let served = of_group(group, version).filter(|kind| kind.since <= minor);
    let list: Vec<Value> = served.flat_map(described).collect();
    if list.is_empty() {
        return None;
    }
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": list,
    }))
}

fn described(kind: &'static Kind) -> Vec<Value> {
    let one = |name: String, verbs: Value| {
        json!({
            "name": name, "singularName": kind.kind.to_lowercase(), "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": verbs,
        })
    };
    let all =
        json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    let mut list = vec![one(kind.plural.to_owned(), all)];
    if kind.status {
        list.push(one(format!("{}/status", kind.plural), json!(["get", "patch", "update"])));
    }
    if kind.is_pod() {
        list.push(one("pods/eviction".to_owned(), json!(["create"])));
    }
    list
}
