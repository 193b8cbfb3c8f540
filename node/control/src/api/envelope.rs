//! The envelope that names the type of a response.

use serde::Serialize;

use super::{
    API_VERSION, DrainEvent, KillAnswer, ReleaseAnswer, ReportList, VersionAnswer, WithdrawAnswer,
};

/// A response whose type has no fields for its version and kind.
pub trait ApiAnswer {
    /// The value of `kind`.
    const KIND: &'static str;
}

/// A response with its API version and kind.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
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

impl<T: ApiAnswer> ApiAnswer for &T {
    const KIND: &'static str = T::KIND;
}

impl ApiAnswer for DrainEvent {
    const KIND: &'static str = "DrainEvent";
}

impl ApiAnswer for KillAnswer {
    const KIND: &'static str = "KillAnswer";
}

impl ApiAnswer for ReleaseAnswer {
    const KIND: &'static str = "ReleaseAnswer";
}

impl ApiAnswer for ReportList {
    const KIND: &'static str = "ReportList";
}

impl ApiAnswer for VersionAnswer {
    const KIND: &'static str = "Version";
}

impl ApiAnswer for WithdrawAnswer {
    const KIND: &'static str = "WithdrawAnswer";
}
