//! What a node may do with its credentials: the Node authorizer and the NodeRestriction admission, as far as they
//! affect a node agent.

mod admission;
mod references;
#[cfg(test)]
mod tests;

pub(crate) use self::admission::{admit_update, admit_write};

use crate::access::User;
use crate::request::Right;
use crate::store::{Key, Store};
use crate::target::{Query, Target};
use crate::write::text;

/// The node to which these credentials belong.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    let is_node = user.groups.iter().any(|group| group == "system:nodes");
    user.name.strip_prefix("system:node:").filter(|name| is_node && !name.is_empty())
}

/// The Node authorizer: whether a node may make this request at all.
pub(crate) fn may(
    store: &Store,
    node: &str,
    right: &Right,
    target: &Target,
    query: &Query,
) -> Result<(), String> {
    let (verb, sub) = (right.verb.as_str(), right.subresource.as_str());
    let read = matches!(verb, "get" | "list" | "watch");
    match (right.group.as_str(), right.resource.as_str()) {
        ("", "pods") => pods(store, node, right, target, query),
        ("", "nodes") => match (sub, verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", _) if read && right.name == node => Ok(()),
            ("", _) if read && right.name.is_empty() => {
                Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            ("", _) if read => {
                Err(format!("node '{node}' cannot read '{}', only its own Node object", right.name))
            }
            _ => Err(String::new()),
        },
        ("", "secrets" | "configmaps") if read && sub.is_empty() => {
            if right.name.is_empty() {
                return Err("No Object name found".to_owned());
            }
            let named = references::from_node(store, node, right);
            let why = || format!("no relationship found between node '{node}' and this object");
            named.then_some(()).ok_or_else(why)
        }
        ("coordination.k8s.io", "leases") => lease(node, right),
        ("", "serviceaccounts") if verb == "create" && sub == "token" => Ok(()),
        ("", "services" | "persistentvolumeclaims") if read => Ok(()),
        ("", "events") | ("events.k8s.io", "events") => {
            matches!(verb, "create" | "patch" | "update").then_some(()).ok_or_else(String::new)
        }
        ("certificates.k8s.io", _) => {
            (read || verb == "create").then_some(()).ok_or_else(String::new)
        }
        ("authentication.k8s.io" | "authorization.k8s.io", _) => Ok(()),
        ("node.k8s.io", _) if read => Ok(()),
        _ => Err(String::new()),
    }
}

fn pods(
    store: &Store,
    node: &str,
    right: &Right,
    target: &Target,
    query: &Query,
) -> Result<(), String> {
    let on_node = || {
        let key = Key::new(target.kind, target.namespace.as_deref(), &right.name);
        store.get(&key).is_some_and(|pod| text(pod, "/spec/nodeName") == node)
    };
    let unrelated = || format!("no relationship found between node '{node}' and this object");
    match (right.subresource.as_str(), right.verb.as_str()) {
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
            Ok(())
        }
        ("", "get") => on_node().then_some(()).ok_or_else(unrelated),
        ("", "list" | "watch") => {
            let own = format!("spec.nodeName={node}");
            let fields = query.get("fieldSelector").unwrap_or_default();
            if fields.replace("==", "=").split(',').any(|rule| rule == own) {
                return Ok(());
            }
            if right.name.is_empty() {
                return Err("can only list/watch pods with spec.nodeName field selector".to_owned());
            }
            on_node().then_some(()).ok_or_else(unrelated)
        }
        _ => Err(String::new()),
    }
}

fn lease(node: &str, right: &Right) -> Result<(), String> {
    if !matches!(right.verb.as_str(), "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".to_owned());
    }
    if right.namespace != "kube-node-lease" {
        return Err("can only access leases in the \"kube-node-lease\" system namespace".to_owned());
    }
    if right.name != node {
        return Err(
            "can only access node lease with the same name as the requesting node".to_owned()
        );
    }
    Ok(())
}
