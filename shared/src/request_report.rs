//! Who asked for the end of a node's pods.

use serde::{Deserialize, Serialize};

use crate::{ShutdownRequest, WallTime};

/// Who asked for a run. What is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestReport {
    /// The user's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The id of the process that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The time that the login manager had been asked for; absent if it was asked to begin at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<WallTime>,
    /// What users were to be told, by `systemctl reboot --message` or `shutdown`; why a node is drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl RequestReport {
    /// What a login manager says at `now`; none if it says nothing.
    pub fn of(request: &ShutdownRequest, now: WallTime) -> Option<Self> {
        let scheduled_for = request.scheduled_for.filter(|at| *at <= now);
        let uid = scheduled_for.and(request.scheduled_by);
        let message = request.message.as_deref().map(str::to_owned);
        let report = Self { uid, pid: None, scheduled_for, message };
        (report != Self::default()).then_some(report)
    }
}
