//! The envelope that names the type of a response.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    API_VERSION, DrainEvent, KillAnswer, PreemptionPlan, ReleaseAnswer, ReportList, StartPlan,
    Status, VersionAnswer, WithdrawAnswer,
};

/// A response whose type has no fields for its version and kind.
pub trait ApiAnswer {
    /// The value of `kind`.
    const KIND: &'static str;
}

/// A response with its API version and kind.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope<T> {
    /// Always [`API_VERSION`].
    pub api_version: &'static str,
    /// The kind of the response.
    pub kind: &'static str,
    /// The fields of the response.
    #[serde(flatten)]
    pub answer: T,
}

impl<T: ApiAnswer> Envelope<T> {
    /// Wraps `answer` in an envelope.
    pub fn new(answer: T) -> Self {
        Self { api_version: API_VERSION, kind: T::KIND, answer }
    }
}

/// The schema of the answer, with the two fields of the envelope.
impl<T: ApiAnswer + JsonSchema> JsonSchema for Envelope<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        let object = schema.ensure_object();
        object.entry("type").or_insert(json!("object"));
        let field = |text: String| json!({ "description": text, "type": "string" });
        if let Value::Object(properties) = object.entry("properties").or_insert(json!({})) {
            let version = field(format!("Always `{API_VERSION}`."));
            properties.insert("apiVersion".to_owned(), version);
            properties.insert("kind".to_owned(), field(format!("Always `{}`.", T::KIND)));
        }
        if let Value::Array(required) = object.entry("required").or_insert(json!([])) {
            required.splice(0..0, ["apiVersion", "kind"].map(Value::from));
        }
        schema
    }
}

impl<T: ApiAnswer> ApiAnswer for &T {
    const KIND: &'static str = T::KIND;
}

/// Names the kind of each answer.
macro_rules! kinds {
    ($($(#[$attribute:meta])* $answer:ty = $kind:literal;)+) => {$(
        $(#[$attribute])*
        impl ApiAnswer for $answer {
            const KIND: &'static str = $kind;
        }
    )+};
}

kinds! {
    DrainEvent = "DrainEvent";
    #[cfg(feature = "eviction")]
    super::EvictionPlan = "EvictionPlan";
    KillAnswer = "KillAnswer";
    PreemptionPlan = "PreemptionPlan";
    ReleaseAnswer = "ReleaseAnswer";
    ReportList = "ReportList";
    #[cfg(feature = "shutdown")]
    super::ShutdownPlan = "ShutdownPlan";
    StartPlan = "StartPlan";
    Status = "Status";
    VersionAnswer = "Version";
    WithdrawAnswer = "WithdrawAnswer";
}
