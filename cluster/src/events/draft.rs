//! An event before it has a name and a time.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use winddown_shared::PodLabel;

/// One thing to say of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDraft {
    /// What it is about.
    pub about: Subject,
    /// Whether it is a warning.
    pub kind: EventKind,
    /// One word for programs, at most 128 bytes: `Killing`.
    pub reason: Cow<'static, str>,
    /// For people. What is longer than the API takes (1024 bytes) is cut.
    pub message: Arc<str>,
    /// Annotations of the event object.
    pub annotations: Vec<(&'static str, String)>,
    /// What goes first when there is too much.
    pub weight: Weight,
}

/// `type` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It is as it should be.
    Normal,
    /// It deserves attention.
    Warning,
}

/// How much an event is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// May be counted instead of written when one object has many, and is dropped first.
    Routine,
    /// Why a pod ended or was refused, what became of the node: written before anything else.
    Decision,
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    kind: &'static str,
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Arc<str>,
    field_path: Option<Arc<str>>,
}

/// The node that speaks, as events name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeRef {
    /// `metadata.name` of the Node.
    pub name: Arc<str>,
}

// === impl EventDraft ===

impl EventDraft {
    /// A routine event that all is well.
    pub fn normal(
        about: Subject,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            about,
            kind: EventKind::Normal,
            reason: reason.into(),
            message: message.into(),
            annotations: Vec::new(),
            weight: Weight::Routine,
        }
    }

    /// A routine event of type Warning.
    pub fn warning(
        about: Subject,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<Arc<str>>,
    ) -> Self {
        Self { kind: EventKind::Warning, ..Self::normal(about, reason, message) }
    }

    /// The same, as a decision.
    #[must_use]
    pub fn decided(self) -> Self {
        Self { weight: Weight::Decision, ..self }
    }
}

// === impl EventKind ===

impl EventKind {
    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

// === impl Subject ===

impl Subject {
    /// A pod. A static pod has the UID that its mirror names, which is what `kubectl describe` asks for.
    pub fn pod(pod: &PodLabel) -> Self {
        Self {
            kind: "Pod",
            namespace: Arc::clone(&pod.namespace),
            name: Arc::clone(&pod.name),
            uid: pod.uid.clone().into(),
            field_path: None,
        }
    }

    /// A node. Its UID is its name, as in the kubelet: `kubectl describe node` asks for that.
    pub fn node(node: &NodeRef) -> Self {
        Self {
            kind: "Node",
            namespace: Arc::from(""),
            name: Arc::clone(&node.name),
            uid: Arc::clone(&node.name),
            field_path: None,
        }
    }

    /// The same object, this part of it: `spec.containers{main}`.
    #[must_use]
    pub fn at(self, field_path: impl Into<Arc<str>>) -> Self {
        Self { field_path: Some(field_path.into()), ..self }
    }

    /// The whole object.
    pub(super) fn whole(&self) -> Self {
        Self { field_path: None, ..self.clone() }
    }

    /// `metadata.name` of the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its events live: those of cluster-wide objects are in `default`.
    pub fn events_namespace(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }

    /// As the API names it.
    pub fn reference(&self) -> ObjectReference {
        let text = |s: &Arc<str>| (!s.is_empty()).then(|| s.to_string());
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(self.kind.to_owned()),
            namespace: text(&self.namespace),
            name: text(&self.name),
            uid: text(&self.uid),
            field_path: self.field_path.as_ref().and_then(text),
            resource_version: None,
        }
    }
}

// === impl NodeRef ===

impl NodeRef {
    /// The node of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into() }
    }
}
