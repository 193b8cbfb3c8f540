//! What says of an answer which it is.

use serde::Serialize;

use super::{
    API_VERSION, DrainEvent, KillAnswer, ReleaseAnswer, ReportList, VersionAnswer, WithdrawAnswer,
};

/// An answer whose type has no fields for that.
pub trait Answer {
    /// What it is called.
    const KIND: &'static str;
}

/// An answer with its version and its name.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Envelope<T> {
    /// Always [`API_VERSION`].
    pub api_version: &'static str,
    /// What the answer is called.
    pub kind: &'static str,
    /// Its fields.
    #[serde(flatten)]
    pub answer: T,
}

impl<T: Answer> Envelope<T> {
    /// The envelope of `answer`.
    pub fn new(answer: T) -> Self {
        Self { api_version: API_VERSION, kind: T::KIND, answer }
    }
}

impl<T: Answer> Answer for &T {
    const KIND: &'static str = T::KIND;
}

impl Answer for DrainEvent {
    const KIND: &'static str = "DrainEvent";
}

impl Answer for KillAnswer {
    const KIND: &'static str = "KillAnswer";
}

impl Answer for ReleaseAnswer {
    const KIND: &'static str = "ReleaseAnswer";
}

impl Answer for ReportList {
    const KIND: &'static str = "ReportList";
}

impl Answer for VersionAnswer {
    const KIND: &'static str = "Version";
}

impl Answer for WithdrawAnswer {
    const KIND: &'static str = "WithdrawAnswer";
}
