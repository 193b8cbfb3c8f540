//! Error responses: a `Status` object with `status: Failure`.

use serde_json::{Value, json};

use crate::kinds::Kind;

/// A request that is refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    reason: String,
    message: String,
    details: Value,
    /// The value of the `Retry-After` header, in seconds.
    pub(crate) retry_after: Option<u32>,
}

impl Refusal {
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: Value::Null,
            retry_after: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified()))
            .about(kind, name)
    }

    /// The NodeRestriction admission's error for a pod that a node wants to evict but that does not exist.
    pub(crate) fn no_pod_to_evict(name: &str) -> Self {
        Self::new(404, "NotFound", format!("pod \"{name}\" not found"))
            .with_details("", "pod", name)
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified()))
            .about(kind, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// A failed precondition of a deletion. The details name the kind instead of its plural.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.kind);
        Self::new(409, "Conflict", message).with_details(kind.group, kind.kind, name)
    }

    /// The resource version in the write is not the stored one.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(kind, name, why)
    }

    /// The UID in the written object is not the stored one.
    pub(crate) fn other_uid(kind: &Kind, name: &str, wanted: &str, stored: &str) -> Self {
        let why = format!(
            "StorageError: invalid object, Code: 4, AdditionalErrorMsg: Precondition failed: UID \
             in precondition: {wanted}, UID in object meta: {stored}"
        );
        Self::conflict(kind, name, &why)
    }

    /// A field of the object is invalid. `reason` is a `CauseType`, such as `FieldValueForbidden`.
    pub(crate) fn invalid(kind: &Kind, name: &str, field: &str, reason: &str, why: &str) -> Self {
        let word = match reason {
            "FieldValueForbidden" => "Forbidden",
            "FieldValueRequired" => "Required value",
            "FieldValueDuplicate" => "Duplicate value",
            "FieldValueNotSupported" => "Unsupported value",
            _ => "Invalid value",
        };
        let wrong = if why.is_empty() { word.to_owned() } else { format!("{word}: {why}") };
        // The real server's internal events have no group, and this is where it shows.
        let group = if kind.plural == "events" { "" } else { kind.group };
        let qualified =
            if group.is_empty() { kind.kind.to_owned() } else { format!("{}.{group}", kind.kind) };
        let message = format!("{qualified} \"{name}\" is invalid: {field}: {wrong}");
        let mut refusal = Self::new(422, "Invalid", message).with_details(group, kind.kind, name);
        let cause = json!({"reason": reason, "message": wrong, "field": field});
        refusal.details["causes"] = json!([cause]);
        refusal
    }

    /// An internal error, which the real server reports in the same case.
    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() {
            kind.qualified()
        } else {
            format!("{} \"{name}\"", kind.qualified())
        };
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}")).about(kind, name)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// The resource version is no longer kept.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// The resource version was never issued.
    pub(crate) fn from_the_future(asked: u64, newest: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {newest}");
        let mut refusal = Self::new(504, "Timeout", message);
        refusal.details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        });
        refusal.after(1)
    }

    /// The disruption budget has nothing left. Zero seconds: without `Retry-After`.
    pub(crate) fn budget(message: &str, cause: &str, seconds: u32) -> Self {
        let mut refusal = Self::new(429, "TooManyRequests", message);
        refusal.details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
        if seconds > 0 { refusal.after(seconds) } else { refusal }
    }

    /// Adds the object that the refusal is about.
    pub(crate) fn about(self, kind: &Kind, name: &str) -> Self {
        self.with_details(kind.group, kind.plural, name)
    }

    /// Sets the details, without empty fields.
    fn with_details(mut self, group: &str, kind: &str, name: &str) -> Self {
        let fields = [("name", name), ("group", group), ("kind", kind)];
        self.details = fields
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(field, value)| (field.to_owned(), json!(value)))
            .collect();
        self
    }

    /// Asks the client to retry after this many seconds.
    pub(crate) fn after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        if let Some(details) = self.details.as_object_mut() {
            details.insert("retryAfterSeconds".to_owned(), json!(seconds));
        } else {
            self.details = json!({"retryAfterSeconds": seconds});
        }
        self
    }

    /// The `Status` object that is sent.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
