//! The kinds of objects that the server knows, and what is special about each.

use serde_json::Value;

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    /// Whether the status is a subresource: writes to one leave the other alone.
    pub(crate) status: bool,
    /// Whether a change of the spec increments `metadata.generation`.
    pub(crate) generation: bool,
    /// Whether a PUT to a name that does not exist creates the object.
    pub(crate) create_on_update: bool,
    /// Whether a PUT without a resource version is refused.
    pub(crate) needs_version: bool,
    /// The minor version of Kubernetes 1 that first serves the kind; 0: all relevant versions.
    pub(crate) since: u32,
}

impl Kind {
    const fn new(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group,
            version,
            plural,
            kind,
            namespaced,
            status: false,
            generation: false,
            create_on_update: false,
            needs_version: false,
            since: 0,
        }
    }

    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    const fn created_on_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    const fn with_version_only(mut self) -> Self {
        self.needs_version = true;
        self
    }

    const fn since(mut self, minor: u32) -> Self {
        self.since = minor;
        self
    }

    /// `leases.coordination.k8s.io`, or `pods` for the core group.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.group.is_empty() && self.plural == "pods"
    }
}

/// The kind with this group, version and plural name.
pub(crate) fn served(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|k| k.group == group && k.version == version && k.plural == plural)
}

/// The kind with this name, such as `pods` or `events.events.k8s.io`. A bare name means the first kind with that name.
pub(crate) fn called(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|k| k.qualified() == name).or_else(|| KINDS.iter().find(|k| k.plural == name))
}

/// The kind of an object that names its own `apiVersion` and `kind`.
pub(crate) fn of_object(object: &Value) -> Option<&'static Kind> {
    let kind = object.get("kind")?.as_str()?;
    let version = object.get("apiVersion")?.as_str()?;
    KINDS.iter().find(|k| k.kind == kind && k.api_version() == version)
}

/// The kinds in a group and version.
pub(crate) fn of_group(group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(move |k| k.group == group && k.version == version)
}

/// All kinds.
pub(crate) static KINDS: &[Kind] = &[
    Kind::new("", "v1", "pods", "Pod", true).with_status().with_generation(),
    Kind::new("", "v1", "nodes", "Node", false).with_status(),
    Kind::new("", "v1", "namespaces", "Namespace", false).with_status(),
    Kind::new("", "v1", "configmaps", "ConfigMap", true),
    Kind::new("", "v1", "secrets", "Secret", true),
    Kind::new("", "v1", "services", "Service", true).with_status().created_on_update(),
    Kind::new("", "v1", "serviceaccounts", "ServiceAccount", true),
    Kind::new("", "v1", "endpoints", "Endpoints", true).created_on_update(),
    Kind::new("", "v1", "events", "Event", true).created_on_update(),
    Kind::new("", "v1", "persistentvolumes", "PersistentVolume", false).with_status(),
    Kind::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true).with_status(),
    Kind::new("events.k8s.io", "v1", "events", "Event", true).created_on_update(),
    Kind::new("coordination.k8s.io", "v1", "leases", "Lease", true)
        .created_on_update()
        .with_version_only(),
    Kind::new("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true)
        .with_status()
        .with_generation(),
    Kind::new("lifecycle.k8s.io", "v1alpha1", "evictionrequests", "EvictionRequest", true)
        .with_status()
        .with_generation()
        .since(37),
    Kind::new("apps", "v1", "daemonsets", "DaemonSet", true).with_status().with_generation(),
    Kind::new("apps", "v1", "deployments", "Deployment", true).with_status().with_generation(),
    Kind::new("apps", "v1", "replicasets", "ReplicaSet", true).with_status().with_generation(),
    Kind::new("apps", "v1", "statefulsets", "StatefulSet", true).with_status().with_generation(),
    Kind::new("batch", "v1", "jobs", "Job", true).with_status().with_generation(),
    Kind::new("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false),
    Kind::new("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", false),
    Kind::new("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false).with_status(),
    Kind::new("storage.k8s.io", "v1", "csinodes", "CSINode", false),
    Kind::new("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
    Kind::new("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false),
    Kind::new(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterrolebindings",
        "ClusterRoleBinding",
        false,
    ),
    Kind::new(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        false,
    )
    .with_status(),
    // Reviews, which are answered but not stored.
    Kind::new(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
    ),
    Kind::new("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false),
    Kind::new("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", false),
    Kind::new("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", false),
];
