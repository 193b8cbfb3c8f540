//! Objects that are read from the API for a pod. Their values never show in logs or errors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;

/// The kind of object that a reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ObjectKind {
    ConfigMap,
    Secret,
}

/// One object that a pod refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) kind: ObjectKind,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// The parts of a ConfigMap or Secret that pods can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// `data`, which variables and volumes show.
    pub(crate) data: BTreeMap<String, Hidden>,
    /// A ConfigMap's `binaryData`, which only volumes show.
    pub(crate) binary: BTreeMap<String, Hidden>,
    pub(crate) version: Option<Arc<str>>,
    /// The object never changes, so it need not be read again.
    pub(crate) immutable: bool,
}

/// Bytes that no log and no error shows. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hidden(Arc<[u8]>);

/// The result of reading an object.
#[derive(Clone, Debug)]
pub(crate) enum FoundObject {
    There(Arc<Object>),
    Missing,
    /// The read failed.
    Unreadable {
        error: Arc<str>,
        after: Option<std::time::Duration>,
    },
}

// === impl ObjectKind ===

impl ObjectKind {
    /// `kind` as the API spells it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// The kind as messages spell it.
    pub(crate) fn lower(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

// === impl ObjectKey ===

impl ObjectKey {
    pub(crate) fn new(kind: ObjectKind, namespace: &Arc<str>, name: &str) -> Self {
        Self { kind, namespace: Arc::clone(namespace), name: Arc::from(name) }
    }

    /// Whether an object can have this name. The API server does not check the names that pods refer to, and kube does
    /// not escape them: a name with `/../` would lead a proxy that resolves paths to an object of another namespace.
    pub(crate) fn can_exist(&self) -> bool {
        let is_part =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
        !matches!(&*self.name, "" | "." | "..") && self.name.bytes().all(is_part)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.lower(), self.namespace, self.name)
    }
}

// === impl Object ===

impl Object {
    /// The bytes of its keys and values.
    pub(crate) fn bytes(&self) -> usize {
        let all = self.data.iter().chain(&self.binary);
        all.map(|(key, value)| key.len() + value.bytes().len()).sum()
    }

    /// The value of `key`, as volumes show it.
    pub(crate) fn value(&self, key: &str) -> Option<&Hidden> {
        self.data.get(key).or_else(|| self.binary.get(key))
    }
}

impl From<api::ConfigMap> for Object {
    fn from(map: api::ConfigMap) -> Self {
        let data = map.data.unwrap_or_default();
        let binary = map.binary_data.unwrap_or_default();
        Self {
            data: data.into_iter().map(|(key, v)| (key, Hidden::from(v.into_bytes()))).collect(),
            binary: binary.into_iter().map(|(key, v)| (key, Hidden::from(v.0))).collect(),
            version: map.metadata.resource_version.map(Arc::from),
            immutable: map.immutable == Some(true),
        }
    }
}

impl From<api::Secret> for Object {
    fn from(secret: api::Secret) -> Self {
        let data = secret.data.unwrap_or_default();
        Self {
            data: data.into_iter().map(|(key, v)| (key, Hidden::from(v.0))).collect(),
            binary: BTreeMap::new(),
            version: secret.metadata.resource_version.map(Arc::from),
            immutable: secret.immutable == Some(true),
        }
    }
}

// === impl Hidden ===

impl Hidden {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value as text. Invalid UTF-8 becomes the replacement character, as in the kubelet.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl From<Vec<u8>> for Hidden {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}
