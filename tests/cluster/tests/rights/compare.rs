//! What the manifests of `cluster/rbac` grant, beside what is used.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// Who the agent is with `cluster/rbac/own-node.yaml`, as the API server names users.
pub(crate) const ACCOUNT: &str = "system:serviceaccount:kube-system:winddown";

/// One verb on one kind of object, as a rule grants it or as a request needs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    pub(crate) verb: String,
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// `pods` or `pods/status`.
    pub(crate) resource: String,
    /// The one namespace it is for; empty for all, and for what has none.
    pub(crate) namespace: String,
}

/// Where manifests and use differ. Both lists are sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Used, and granted by no rule.
    pub(crate) missing: Vec<String>,
    /// Granted, and used by nothing.
    pub(crate) unused: Vec<String>,
}

/// The objects of one manifest of `cluster/rbac`.
pub(crate) fn manifest(name: &str) -> Vec<Value> {
    objects(&format!("cluster/rbac/{name}.yaml"))
}

/// The objects that run companion as a DaemonSet.
pub(crate) fn daemon_set() -> Vec<Value> {
    objects("programs/packaging/kubernetes/companion.yaml")
}

/// What the kustomization of this directory consists of.
pub(crate) fn kustomized(directory: &str) -> Vec<Value> {
    let [kustomization] = &objects(&format!("{directory}/kustomization.yaml"))[..] else {
        panic!("{directory} has more than one kustomization");
    };
    let resources = kustomization["resources"].as_array().into_iter().flatten();
    let names = resources.map(|name| format!("{directory}/{}", name.as_str().unwrap()));
    names
        .flat_map(|name| if name.ends_with(".yaml") { objects(&name) } else { kustomized(&name) })
        .collect()
}

fn objects(file: &str) -> Vec<Value> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(repository.join(file)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// What the roles of this name grant.
pub(crate) fn granted(objects: &[Value], role: &str) -> BTreeSet<Right> {
    let is_role = |object: &&Value| {
        object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"))
            && object["metadata"]["name"] == role
    };
    let mut rights = BTreeSet::new();
    for object in objects.iter().filter(is_role) {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in object["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        rights.insert(Right::new(verb, group, resource, namespace));
                    }
                }
            }
        }
    }
    rights
}

/// What is missing in `granted` and what of it nobody uses.
pub(crate) fn compare(granted: &BTreeSet<Right>, used: &BTreeSet<Right>) -> Difference {
    let missing = used.iter().filter(|used| !granted.iter().any(|grant| grant.covers(used)));
    let unused = granted.iter().filter(|grant| !used.iter().any(|used| grant.covers(used)));
    let list = |rights: &mut dyn Iterator<Item = &Right>| {
        let texts: BTreeSet<_> = rights.map(Right::to_string).collect();
        texts.into_iter().collect()
    };
    Difference { missing: list(&mut { missing }), unused: list(&mut { unused }) }
}

impl Right {
    pub(crate) fn new(verb: &str, group: &str, resource: &str, namespace: &str) -> Self {
        Self {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            namespace: namespace.into(),
        }
    }

    fn covers(&self, used: &Self) -> bool {
        self.verb == used.verb
            && self.group == used.group
            && self.resource == used.resource
            && (self.namespace.is_empty() || self.namespace == used.namespace)
    }
}

/// `patch pods/status`, `get leases.coordination.k8s.io in kube-node-lease`.
impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
