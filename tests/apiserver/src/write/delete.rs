//! Deletion: at once, after a grace period, or when the last finalizer is removed.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Writer, metadata_of, text};
use crate::clock;
use crate::kinds::Kind;
use crate::refusal::Refusal;
use crate::store::Key;
use crate::target::{Query, Target};

/// The options of a DELETE, from its body or query.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) preconditions: Preconditions,
}

/// The preconditions of a deletion.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl Preconditions {
    /// Checks whether they hold for this object.
    pub(crate) fn check(&self, kind: &Kind, name: &str, object: &Value) -> Result<(), Refusal> {
        let stored = text(object, "/metadata/uid");
        if let Some(wanted) = self.uid.as_deref().filter(|wanted| *wanted != stored) {
            let why = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({stored}). \
             The object might have been deleted and then recreated"
            );
            return Err(Refusal::precondition(kind, name, &why));
        }
        let stored = text(object, "/metadata/resourceVersion");
        let version = self.resource_version.as_deref();
        if let Some(wanted) = version.filter(|wanted| *wanted != stored) {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the \
             ResourceVersion in record ({stored}). The object might have been modified"
            );
            return Err(Refusal::precondition(kind, name, &why));
        }
        Ok(())
    }
}

impl DeleteOptions {
    /// Reads the options from the body, or from the query if the body does not have them.
    pub(crate) fn of(body: &Value, query: &Query) -> Result<Self, Refusal> {
        let mut options: Self = match body {
            Value::Null => Self::default(),
            body => serde_json::from_value(body.clone())
                .map_err(|e| Refusal::bad_request(format!("DeleteOptions: {e}")))?,
        };
        if options.grace_period_seconds.is_none() {
            options.grace_period_seconds =
                query.get("gracePeriodSeconds").and_then(|text| text.parse().ok());
        }
        Ok(options)
    }
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Arc<Value>),
    /// The object waits for its node or for its finalizers.
    Pending(Arc<Value>),
}

/// The next step for an object that is to be deleted.
enum Step {
    /// The object is already being deleted, at least as fast as requested.
    Nothing,
    /// The object gets a deadline.
    Grace { until: Timestamp, seconds: i64, first: bool },
    /// The object is deleted without waiting.
    AtOnce,
}

impl Writer<'_> {
    pub(crate) fn delete(
        &mut self,
        target: &Target,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refusal> {
        let kind = target.kind;
        let key = Key::new(kind, target.namespace.as_deref(), name);
        let old = Arc::clone(self.store.get(&key).ok_or_else(|| Refusal::not_found(kind, name))?);
        options.preconditions.check(kind, name, &old)?;
        let step = if kind.is_pod() { grace(&old, options, self.now) } else { Step::AtOnce };
        let held = has_finalizers(&old);
        let (until, seconds, first) = match step {
            Step::Nothing => return Ok(Deleted::Pending(old)),
            Step::Grace { until, seconds, first } => (until, seconds, first),
            Step::AtOnce if held => {
                let first = text(&old, "/metadata/deletionTimestamp").is_empty();
                (self.now, 0, first)
            }
            Step::AtOnce => return Ok(self.remove(&key, old)),
        };
        let mut new = Value::clone(&old);
        let metadata = metadata_of(&mut new);
        metadata.insert("deletionTimestamp".to_owned(), json!(clock::seconds(until)));
        metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(seconds));
        if first && let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".to_owned(), json!(generation + 1));
        }
        let marked = self.store.put(key.clone(), new);
        if held || seconds > 0 {
            return Ok(Deleted::Pending(marked));
        }
        Ok(self.remove(&key, marked))
    }

    fn remove(&mut self, key: &Key, old: Arc<Value>) -> Deleted {
        Deleted::Gone(self.store.remove(key).unwrap_or(old))
    }
}

/// Whether the object is deleted and nothing holds it any more.
pub(super) fn is_over(object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    !text(object, "/metadata/deletionTimestamp").is_empty()
        && grace.unwrap_or_default() == 0
        && !has_finalizers(object)
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|all| !all.is_empty())
}

/// The grace period of a pod: the requested one, else its own; zero for a pod that is on no node or has terminated.
/// Once the pod is being deleted, the grace period can only become shorter.
fn grace(pod: &Value, options: &DeleteOptions, now: Timestamp) -> Step {
    let asked = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let number = |pointer: &str| pod.pointer(pointer).and_then(Value::as_i64);
    let Ok(until) = text(pod, "/metadata/deletionTimestamp").parse::<Timestamp>() else {
        let own = number("/spec/terminationGracePeriodSeconds").unwrap_or_default();
        let ended = matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
        let unbound = text(pod, "/spec/nodeName").is_empty();
        let seconds = match asked.unwrap_or(own) {
            _ if ended || unbound => 0,
            seconds if seconds < 0 => 1,
            seconds => seconds,
        };
        return Step::Grace { until: clock::moved(now, seconds), seconds, first: true };
    };
    let running = number("/metadata/deletionGracePeriodSeconds").unwrap_or_default();
    if running == 0 {
        return Step::AtOnce;
    }
    match asked {
        Some(seconds) if seconds < running => {
            let earlier = clock::moved(until, seconds - running);
            if earlier < now {
                Step::Grace { until: now, seconds: seconds.min(1), first: false }
            } else {
                Step::Grace { until: earlier, seconds, first: false }
            }
        }
        Some(_) | None => Step::Nothing,
    }
}
