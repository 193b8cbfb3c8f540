//! Pods that hold shutdowns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use super::LockState;

/// Pods because of which shutdowns are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardStatus {
    /// Whether they are: `held` once the login manager has granted the lock.
    pub state: LockState,
    /// Why they are not yet, for people; absent while they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The pods, at least one.
    pub pods: Vec<HoldingPod>,
}

/// A pod that holds shutdowns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HoldingPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// When it was first seen to ask; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// When its time is over; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
}

/// A pod that holds shutdowns no longer, because an operator released it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseAnswer {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Other pods that still do, as `namespace/name`.
    #[serde(default)]
    pub still_held_by: Vec<String>,
}
