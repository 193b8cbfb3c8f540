//! Pods that block shutdowns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use super::LockState;

/// The pods that block shutdowns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardStatus {
    /// Whether shutdowns are blocked: `held` once the login manager has granted the lock.
    pub state: LockState,
    /// Why they are not blocked yet, human-readable; absent once they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The pods, at least one.
    pub pods: Vec<BlockingPod>,
}

/// A pod that blocks shutdowns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockingPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// When the pod was first seen to request this; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// When its time is over; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
}

/// The response for a pod that no longer blocks shutdowns, because an operator released it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseAnswer {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The pods that still block shutdowns, as `namespace/name`.
    #[serde(default)]
    pub still_blocked_by: Vec<String>,
}
