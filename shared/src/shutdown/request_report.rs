//! The requester of the termination of a node's pods.

use serde::{Deserialize, Serialize};

use crate::{ShutdownRequest, WallTime};

/// The requester of a shutdown or drain. Fields that are not known are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestReport {
    /// The user ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The ID of the process that made the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The time for which the login manager had scheduled it; absent if it was requested to begin at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<WallTime>,
    /// The message for users, from `systemctl reboot --message` or `shutdown`; the reason for a drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl RequestReport {
    /// The report of what a login manager knows at `now`; `None` if it knows nothing.
    pub fn of(request: &ShutdownRequest, now: WallTime) -> Option<Self> {
        let scheduled_for = request.scheduled_for.filter(|at| *at <= now);
        let uid = scheduled_for.and(request.scheduled_by);
        let message = request.message.as_deref().map(str::to_owned);
        let report = Self { uid, pid: None, scheduled_for, message };
        (report != Self::default()).then_some(report)
    }
}
