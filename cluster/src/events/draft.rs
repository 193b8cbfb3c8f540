//! An event before it gets a name and a time.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use winddown_shared::PodRef;

/// A statement about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDraft {
    /// The object that the event is about.
    pub about: Subject,
    /// The type of the event.
    pub kind: EventKind,
    /// The reason, one word for programs, at most 128 bytes: `Killing`.
    pub reason: Cow<'static, str>,
    /// The message for people. It is cut at the API's limit of 1024 bytes.
    pub message: Arc<str>,
    /// Annotations of the event object.
    pub annotations: Vec<(&'static str, String)>,
    /// How important the event is.
    pub weight: Weight,
}

/// The `type` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Everything is as expected.
    Normal,
    /// Something deserves attention.
    Warning,
}

/// How important an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// May be counted instead of written if its object has many, and is dropped first.
    Routine,
    /// Why a pod was stopped or refused, or what happens to the node. Never held back, and flushed first.
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

/// This agent's node, as events name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeRef {
    /// `metadata.name` of the Node.
    pub name: Arc<str>,
}

// === impl EventDraft ===

impl EventDraft {
    /// A routine event of type Normal.
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

    /// Turns the event into a decision.
    #[must_use]
    pub fn decided(self) -> Self {
        Self { weight: Weight::Decision, ..self }
    }
}

// === impl EventKind ===

impl EventKind {
    /// The API's spelling.
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
    pub fn pod(pod: &PodRef) -> Self {
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

    /// A part of the same object, such as `spec.containers{main}`.
    #[must_use]
    pub fn at(self, field_path: impl Into<Arc<str>>) -> Self {
        Self { field_path: Some(field_path.into()), ..self }
    }

    /// The whole object, without a field path.
    pub(super) fn whole(&self) -> Self {
        Self { field_path: None, ..self.clone() }
    }

    /// `metadata.name` of the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace of its events: those of cluster-wide objects are in `default`.
    pub fn events_namespace(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }

    /// The reference to it, as the API expects it.
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
