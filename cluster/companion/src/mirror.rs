//! Which pods of the API server are mirror pods, the kubelet's copies of manifests' pods.
//!
//! Whoever may create pods may write any annotation, and the owner of his choice. So a pod that says it is a mirror pod
//! is believed only if the container runtime has a sandbox of the same namespace and name under the UID that the pod
//! names, and the kubelet recorded there that the pod is not the API server's: the kubelet writes that over whatever
//! the pod says. Pure.

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, FoundPod, Pod, PodUid};

use super::facts::CONFIG_HASH;

/// The source of the API server's pods.
const OF_API: &str = "api";

/// What a pod says of itself, and only the container runtime can confirm: that it mirrors a pod of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The UID by which the kubelet and the container runtime know the manifest's pod.
    pub(super) hash: PodUid,
    /// The UID of the Node object that owns it.
    pub(super) owner: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimVerdict {
    /// It mirrors that pod.
    Mirror,
    /// It is a pod like others.
    Pod,
    /// The runtime knows neither pod: nothing of it runs, or nothing yet.
    Open,
}

/// Takes from the API server's object what it may not say of itself. What is left of a pod that claims to mirror one of
/// `node` is the mark of a mirror pod, without the UID of the other: it is not stopped through the API server.
pub(super) fn take_claim(object: &mut api::Pod, node: &str) -> Option<Claim> {
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    let mut owners = owners.iter().filter(|owner| owner.controller == Some(true));
    let owner = owners.find(|owner| owner.kind == "Node" && owner.name == node);
    let owner = owner.map(|owner| owner.uid.clone());
    let annotations = object.metadata.annotations.as_mut()?;
    annotations.remove(CONFIG_SOURCE_ANNOTATION);
    let hash = annotations.remove(CONFIG_HASH).filter(|hash| !hash.is_empty());
    let claim = annotations
        .contains_key(CONFIG_MIRROR_ANNOTATION)
        .then(|| Some(Claim { hash: PodUid::new(hash?), owner: owner? }))
        .flatten();
    if claim.is_none() {
        annotations.remove(CONFIG_MIRROR_ANNOTATION);
    }
    claim
}

/// The object of a pod with a claim that was answered.
pub(super) fn answered(mut object: api::Pod, claim: &Claim, verdict: ClaimVerdict) -> api::Pod {
    let annotations = object.metadata.annotations.get_or_insert_default();
    match verdict {
        ClaimVerdict::Mirror => {
            annotations.insert(CONFIG_HASH.to_owned(), claim.hash.as_str().to_owned());
        }
        ClaimVerdict::Pod => drop(annotations.remove(CONFIG_MIRROR_ANNOTATION)),
        ClaimVerdict::Open => {}
    }
    object
}

impl Claim {
    /// Compares it with the pods that the container runtime has, and with the UID of this node's object if that is
    /// known.
    pub(super) fn judge(
        &self,
        pod: &Pod,
        found: &[FoundPod],
        node_uid: Option<&str>,
    ) -> ClaimVerdict {
        if node_uid.is_some_and(|uid| uid != self.owner) {
            return ClaimVerdict::Pod;
        }
        let of = |uid: &PodUid| found.iter().find(|one| one.uid == *uid);
        match of(&self.hash) {
            Some(found) if is_of_manifest(found) && is_same(found, pod) => ClaimVerdict::Mirror,
            Some(_) => ClaimVerdict::Pod,
            // A mirror pod has no sandbox of its own.
            None if of(pod.uid()).is_some() => ClaimVerdict::Pod,
            None => ClaimVerdict::Open,
        }
    }
}

fn is_same(found: &FoundPod, pod: &Pod) -> bool {
    *found.namespace == **pod.namespace() && *found.name == **pod.name()
}

/// Whether the kubelet recorded that it runs the pod from a manifest: it writes that over whatever the pod says.
pub(super) fn is_of_manifest(found: &FoundPod) -> bool {
    found.annotations.get(CONFIG_SOURCE_ANNOTATION).is_some_and(|source| source != OF_API)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::pods::{pod, uid};
    use super::*;

    fn found(uid: &str, name: &str, source: &str) -> FoundPod {
        FoundPod {
            uid: PodUid::new(uid),
            name: name.to_owned(),
            namespace: "default".to_owned(),
            labels: [].into(),
            annotations: [(CONFIG_SOURCE_ANNOTATION.to_owned(), source.to_owned())].into(),
            containers: Vec::new(),
        }
    }

    fn claims(annotations: Value, owner: &Value) -> (Option<Claim>, Pod) {
        let mut object = pod("etcd", json!({}));
        object.metadata.annotations = Some(serde_json::from_value(annotations).unwrap());
        object.metadata.owner_references = Some(serde_json::from_value(json!([owner])).unwrap());
        (take_claim(&mut object, "n1"), Pod::new(object).unwrap())
    }

    fn node(uid: &str, name: &str, kind: &str, controller: bool) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": controller})
    }

    #[test]
    fn only_a_pod_of_this_nodes_object_can_claim_to_be_a_mirror() {
        let marks = json!({CONFIG_MIRROR_ANNOTATION: "h", CONFIG_HASH: "h", CONFIG_SOURCE_ANNOTATION: "file"});
        let own = || node("u", "n1", "Node", true);
        let (claim, pod) = claims(marks.clone(), &own());
        assert_eq!(claim, Some(Claim { hash: PodUid::new("h"), owner: "u".to_owned() }));
        assert!(pod.is_mirror() && pod.source().is_none());
        for (what, marks, owner) in [
            ("another node", marks.clone(), node("u", "n2", "Node", true)),
            ("another kind", marks.clone(), node("u", "n1", "ReplicaSet", true)),
            ("an owner that does not control", marks, node("u", "n1", "Node", false)),
            ("no mark", json!({CONFIG_HASH: "h", CONFIG_SOURCE_ANNOTATION: "file"}), own()),
            ("no pod named", json!({CONFIG_MIRROR_ANNOTATION: "h"}), own()),
        ] {
            let (claim, pod) = claims(marks, &owner);
            assert_eq!(claim, None, "{what}");
            assert!(!pod.is_mirror() && !pod.is_static() && !pod.is_critical(), "{what}");
            assert_eq!(pod.metadata.annotations.iter().flatten().count(), 0, "{what}");
        }
    }

    #[test]
    fn the_container_runtime_decides_about_a_claim() {
        let claim = Claim { hash: PodUid::new("h"), owner: "u".to_owned() };
        let pod = Pod::new(pod("etcd", json!({}))).unwrap();
        let own = found(uid("etcd").as_str(), "etcd", "api");
        let table = [
            ("its sandbox", vec![found("h", "etcd", "file")], Some("u"), ClaimVerdict::Mirror),
            ("from a URL", vec![found("h", "etcd", "http")], None, ClaimVerdict::Mirror),
            (
                "another node's object",
                vec![found("h", "etcd", "file")],
                Some("v"),
                ClaimVerdict::Pod,
            ),
            (
                "another pod's sandbox",
                vec![found("h", "other", "file")],
                Some("u"),
                ClaimVerdict::Pod,
            ),
            ("an API pod's sandbox", vec![found("h", "etcd", "api")], Some("u"), ClaimVerdict::Pod),
            ("its own sandbox", vec![own], Some("u"), ClaimVerdict::Pod),
            ("none", vec![found("i", "etcd", "file")], Some("u"), ClaimVerdict::Open),
        ];
        for (what, found, node_uid, verdict) in table {
            assert_eq!(claim.judge(&pod, &found, node_uid), verdict, "{what}");
        }
    }
}
