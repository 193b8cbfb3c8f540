//! The objects, from the test's side: without requests, faults or the journal.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::ApiServer;
use crate::core::Core;
use crate::kinds;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::selector::Selector;
use crate::store::Key;
use crate::target::{Query, Target};
use crate::write::{DeleteOptions, Deleted, text};

/// The `Status` object of a refusal.
#[derive(Clone, PartialEq)]
pub struct Refused(
    /// The object, with `code`, `reason` and `message`.
    pub Value,
);

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0["code"], text(&self.0, "/message"))
    }
}

impl std::error::Error for Refused {}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.status())
    }
}

/// Merges a strategic merge patch into an object of this kind (`nodes`), as a write does, but without its rules.
///
/// # Errors
/// The kind is unknown, or the patch is wrong.
pub fn strategic_merge(kind: &str, object: &mut Value, patch: &Value) -> Result<(), Refused> {
    let kind = kinds::called(kind).ok_or_else(Refusal::no_such_path)?;
    Ok(crate::strategic::apply(kind, object, patch)?)
}

/// The objects at one moment, for [`ApiServer::until`].
pub struct Objects<'a>(pub(super) &'a Core);

impl Objects<'_> {
    /// The object at a path: `pods/default/web`, `nodes/n1`, or a whole API path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Arc<Value>> {
        let target = Target::of_text(path)?;
        let key = Key::new(target.kind, target.namespace.as_deref(), target.name.as_deref()?);
        self.0.store.get(&key).cloned()
    }

    /// All objects of a kind (`pods`, `events.events.k8s.io`), or those of one namespace
    /// (`pods/default`), sorted by namespace and name.
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<Arc<Value>> {
        let Some(target) = Target::of_text(path) else { return Vec::new() };
        let Ok(selector) = Selector::of(&target, &Query::default()) else { return Vec::new() };
        self.0.store.list(target.kind, &selector).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The number of requests with this verb and resource (`pods/status`; `*` matches any).
    #[must_use]
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        self.0.journal().iter().filter(|request| request.is(verb, resource)).count()
    }

    /// The requests since the start, or since they were forgotten, oldest first.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.0.journal().iter()
    }

    /// The number of open watches of a resource (`pods`; `*` matches any).
    #[must_use]
    pub fn open_watches(&self, resource: &str) -> usize {
        self.0.watches.count(resource)
    }

    /// The newest resource version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.store.version()
    }
}

impl ApiServer {
    /// The object at a path: `pods/default/web`, `nodes/n1`, or a whole API path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Arc<Value>> {
        self.shared.with(|core| Objects(core).get(path))
    }

    /// All objects of a kind, as in [`Objects::list`].
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<Arc<Value>> {
        self.shared.with(|core| Objects(core).list(path))
    }

    /// The newest resource version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.with(|core| core.store.version())
    }

    /// Creates the object, or merges it (as a JSON merge patch) into an existing one: spec, status and metadata at
    /// once, and without the rules for clients. A given UID is kept. The object must have `apiVersion` and `kind`;
    /// without a namespace it goes to `default`. The namespace is created if necessary.
    ///
    /// # Errors
    /// The kind is unknown, or the object has no name.
    pub fn apply(&self, object: Value) -> Result<Arc<Value>, Refused> {
        let kind = kinds::of_object(&object).ok_or_else(Refusal::no_such_path)?;
        let namespace = kind.namespaced.then(|| match text(&object, "/metadata/namespace") {
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        });
        let target = Target { kind, namespace, name: None, subresource: None };
        self.shared.with(|core| {
            if let (Some(name), Some(kind)) = (&target.namespace, kinds::called("namespaces"))
                && core.store.get(&Key::new(kind, None, name)).is_none()
            {
                let space = json!({"metadata": {"name": name}, "status": {"phase": "Active"}});
                let target = Target { kind, namespace: None, name: None, subresource: None };
                core.writer().place(&target, space)?;
            }
            Ok(core.writer().place(&target, object)?)
        })
    }

    /// Merges a JSON merge patch into an object, without any rules, as if another client had changed it.
    ///
    /// # Errors
    /// The object does not exist.
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Arc<Value>, Refused> {
        let target = Target::of_text(path).ok_or_else(Refusal::no_such_path)?;
        let name = target.name.clone().unwrap_or_default();
        self.shared.with(|core| {
            let key = Key::new(target.kind, target.namespace.as_deref(), &name);
            if core.store.get(&key).is_none() {
                return Err(Refusal::not_found(target.kind, &name).into());
            }
            let mut object = patch.clone();
            crate::write::metadata_of(&mut object).insert("name".to_owned(), json!(name));
            Ok(core.writer().place(&target, object)?)
        })
    }

    /// Deletes an object like `kubectl delete --grace-period=N` (`None`: the pod's own grace period). Returns `None` if
    /// it is gone, else the object that is being deleted.
    ///
    /// # Errors
    /// The object does not exist.
    pub fn delete(&self, path: &str, grace: Option<i64>) -> Result<Option<Arc<Value>>, Refused> {
        let target = Target::of_text(path).ok_or_else(Refusal::no_such_path)?;
        let name = target.name.clone().unwrap_or_default();
        let options = DeleteOptions { grace_period_seconds: grace, ..DeleteOptions::default() };
        let deleted = self.shared.with(|core| core.writer().delete(&target, &name, &options))?;
        Ok(match deleted {
            Deleted::Gone(_) => None,
            Deleted::Pending(object) => Some(object),
        })
    }

    /// Removes the object at once, without grace period and finalizers. Returns false if it did not exist.
    pub fn remove(&self, path: &str) -> bool {
        let Some(target) = Target::of_text(path) else { return false };
        let name = target.name.as_deref().unwrap_or_default();
        let key = Key::new(target.kind, target.namespace.as_deref(), name);
        self.shared.with(|core| core.store.remove(&key).is_some())
    }
}
