//! What a pod reads about its termination: the reason and the deadline.

use std::time::Duration;

use serde::Serialize;
use winddown_shared::{KillReason, NodeEnding, RequestReport, ShutdownKind, WallTime};

/// What a pod can read about its termination: the content of the file that `WINDDOWN_NOTICE` names.
/// While the file does not exist, no termination is known.
///
/// The file is replaced when the deadline moves closer, and removed when the termination is cancelled.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminationNotice {
    /// `winddown.dev/v1alpha1`.
    pub api_version: &'static str,
    /// `TerminationNotice`.
    pub kind: &'static str,
    /// Version of this format: 1.
    pub version: u32,
    /// The reason: `shutdown`, `drain`, `preemption`, `eviction`, `operator`, `removed`, or the name of a plug-in.
    pub reason: &'static str,
    /// How the node goes down: `powerOff`, `halt`, `reboot`, `kexec`, `softReboot`, or `unknown` if
    /// that was not announced. Absent if the node stays up, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_action: Option<&'static str>,
    /// Whether this pod is being stopped: its preStop hooks run or its containers have SIGTERM. If
    /// not, its turn is still to come.
    pub stopping: bool,
    /// Wall time by which whatever still runs of the pod is killed. With `stopping` it is the pod's
    /// own deadline, before that the deadline for all pods.
    pub deadline: WallTime,
    /// The same time on the clock `CLOCK_MONOTONIC`, in seconds with three decimals. This clock does not jump.
    pub deadline_monotonic_seconds: f64,
    /// The requester, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<RequestReport>,
    /// The notice that announced the termination, if any: its source (`aws`, `operator`, …), a colon, and its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

impl TerminationNotice {
    /// Creates the notice for a pod that is killed in `left`, at `now` on the wall clock and
    /// `monotonic` on `CLOCK_MONOTONIC`. `own` is the reason for which the pod itself is stopped,
    /// `all` the known termination of all pods. `None` if there is neither.
    pub fn new(
        own: Option<KillReason>,
        all: Option<&NodeEnding>,
        left: Duration,
        (now, monotonic): (WallTime, Duration),
    ) -> Option<Self> {
        let reason = own.or(all.map(|all| all.reason))?;
        let behind = all.filter(|all| all.reason == reason);
        let millis = (monotonic + left).as_millis();
        Some(Self {
            api_version: "winddown.dev/v1alpha1",
            kind: "TerminationNotice",
            version: 1,
            reason: reason.as_str(),
            node_action: all.and_then(|all| all.node_action).map(ShutdownKind::as_str),
            stopping: own.is_some(),
            deadline: now.checked_add(left).unwrap_or(WallTime::MAX),
            #[expect(clippy::cast_precision_loss, reason = "of an uptime, milliseconds are exact")]
            deadline_monotonic_seconds: millis as f64 / 1000.0,
            requested_by: behind.and_then(|all| all.requested_by.clone()),
            notice: behind.and_then(|all| all.notice.clone()),
        })
    }

    /// The notice as environment variables, for the command of a preStop hook.
    pub fn variables(&self) -> Vec<(String, String)> {
        let by = self.requested_by.as_ref().and_then(|by| serde_json::to_string(by).ok());
        let all = [
            ("WINDDOWN_REASON", Some(self.reason.to_owned())),
            ("WINDDOWN_NODE_ACTION", self.node_action.map(str::to_owned)),
            ("WINDDOWN_DEADLINE", Some(self.deadline.to_string())),
            (
                "WINDDOWN_DEADLINE_MONOTONIC",
                Some(format!("{:.3}", self.deadline_monotonic_seconds)),
            ),
            ("WINDDOWN_REQUESTED_BY", by),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use tokio::time::Instant;

    use super::*;

    fn ending() -> NodeEnding {
        NodeEnding {
            reason: KillReason::Shutdown,
            node_action: Some(ShutdownKind::Reboot),
            deadline: Instant::now(),
            requested_by: Some(RequestReport { uid: Some(0), ..RequestReport::default() }),
            notice: None,
        }
    }

    fn notice(own: Option<KillReason>, all: Option<&NodeEnding>) -> Option<serde_json::Value> {
        let now = "2026-11-22T06:00:00Z".parse().unwrap();
        let clocks = (now, Duration::from_millis(1_000_250));
        let notice = TerminationNotice::new(own, all, Duration::from_secs(60), clocks)?;
        Some(serde_json::to_value(notice).unwrap())
    }

    #[tokio::test]
    async fn a_pod_reads_why_and_until_when_on_both_clocks() {
        let all = ending();
        let expected = json!({
            "apiVersion": "winddown.dev/v1alpha1", "kind": "TerminationNotice", "version": 1,
            "reason": "shutdown", "nodeAction": "reboot", "stopping": false,
            "deadline": "2026-11-22T06:01:00Z", "deadlineMonotonicSeconds": 1060.25,
            "requestedBy": {"uid": 0}
        });
        assert_eq!(notice(None, Some(&all)), Some(expected));
        assert_eq!(notice(None, None), None);
        let own = notice(Some(KillReason::Shutdown), Some(&all)).unwrap();
        assert_eq!((&own["stopping"], &own["requestedBy"]["uid"]), (&json!(true), &json!(0)));
    }

    #[tokio::test]
    async fn a_pod_that_ends_for_a_reason_of_its_own_is_not_told_who_wanted_the_shutdown() {
        let own = notice(Some(KillReason::Eviction), Some(&ending())).unwrap();
        assert_eq!((&own["reason"], &own["nodeAction"]), (&json!("eviction"), &json!("reboot")));
        assert_eq!(own.get("requestedBy"), None);
        let alone = notice(Some(KillReason::Eviction), None).unwrap();
        assert_eq!(alone.get("nodeAction"), None, "the node stays up");
    }

    #[tokio::test]
    async fn a_hook_has_the_same_in_its_environment_in_one_line_each() {
        let mut all = ending();
        let message = Some("a\nb\0c".to_owned());
        all.requested_by = Some(RequestReport { message, ..RequestReport::default() });
        let clocks = (WallTime::UNIX_EPOCH, Duration::ZERO);
        let notice =
            TerminationNotice::new(None, Some(&all), Duration::from_millis(1500), clocks).unwrap();
        let told = notice.variables();
        let told: Vec<_> = told.iter().map(|(name, value)| (&**name, &**value)).collect();
        let expected = [
            ("WINDDOWN_REASON", "shutdown"),
            ("WINDDOWN_NODE_ACTION", "reboot"),
            ("WINDDOWN_DEADLINE", "1970-01-01T00:00:01.5Z"),
            ("WINDDOWN_DEADLINE_MONOTONIC", "1.500"),
            ("WINDDOWN_REQUESTED_BY", r#"{"message":"a\nb\u0000c"}"#),
        ];
        assert_eq!(told, expected);
    }
}
