//! The node's current state as the agent sees it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::display::age;
use winddown_shared::{GateReason, WallTime};

use super::{
    ClusterStatus, Decision, ErrorCode, GuardStatus, Manifests, PodStatus, Protection, RejectedPod,
    ReportEntry, StartStatus,
};
use crate::ApiError;

/// Everything that `winddown status` shows: one consistent snapshot of the node.
// Over the limit because it is one JSON document, and each field is a member of that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// When the snapshot was taken, on the agent's clock. Ages are relative to this.
    pub time: WallTime,
    /// Increases with every change; within one agent process, equal revisions mean equal snapshots.
    #[serde(default)]
    pub revision: u64,
    /// The node and the agent on it.
    pub node: NodeStatus,
    /// Whether the node's shutdown waits for the agent.
    pub lock: LockStatus,
    /// Whether the node's pods terminate in order and in time at a shutdown, and who terminates them; absent if the agent has no
    /// part in shutdowns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<Protection>,
    /// The progress of a shutdown.
    #[serde(default)]
    pub shutdown: ShutdownProgress,
    /// A drain in progress, or one that is over (`done`) although pods still terminate; absent if there is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainStatus>,
    /// The pods that block shutdowns; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardStatus>,
    /// The state of an ordered start; absent if no pod waits for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartStatus>,
    /// Notices that the node will go away, and notice sources that cannot be queried; empty if there are neither.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NoticeStatus>,
    /// How the node went down before this boot; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_boot: Option<LastBootStatus>,
    /// A summary of what a shutdown would do now. `winddown plan shutdown` shows the full plan.
    #[serde(default)]
    pub shutdown_plan: PlanSummary,
    /// The container runtime.
    #[serde(default)]
    pub runtime: RuntimeStatus,
    /// The effective configuration.
    #[serde(default)]
    pub config: ConfigStatus,
    /// The node's state in its cluster; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// The node's eviction thresholds; absent if they are not watched.
    #[cfg(feature = "eviction")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<winddown_eviction::PressureStatus>,
    /// The status of third-party plug-ins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<PluginStatus>,
    /// Whether new pods are not admitted, for example because of a shutdown or a drain.
    #[serde(default)]
    pub admission_closed: bool,
    /// Everything that keeps new pods out; they are admitted when the list is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission_closed_by: Vec<ClosedBy>,
    /// Whether the container runtime has not reported the running pods yet, so that more may run than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// The pods that hold a place on the node, terminating pods included. A pod without a `source` runs although no
    /// manifest for it can be read.
    #[serde(default)]
    pub pods: Vec<PodStatus>,
    /// The pods that were rejected.
    #[serde(default)]
    pub rejected: Vec<RejectedPod>,
    /// The manifests directory and its problems.
    #[serde(default)]
    pub manifests: Manifests,
    /// The directories that the agent and its pods write to, with what is left on their disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryStatus>,
    /// Why the report of the last drain could not be written; absent if it was, or if there was no drain since the
    /// agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_report: Option<String>,
    /// The latest decisions, oldest first; at most 20.
    #[serde(default)]
    pub decisions: Vec<Decision>,
}

/// A clock that is adjusted slowly differs from the time that has passed by less.
const CLOCK_SLACK_SECONDS: i64 = 120;

/// The node and the agent process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The node's name.
    pub name: String,
    /// The kernel's boot ID.
    #[serde(default)]
    pub boot_id: String,
    /// The agent's name; absent if it is winddown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// The agent's process ID.
    #[serde(default)]
    pub pid: u32,
    /// When the agent started.
    #[serde(default)]
    pub started_at: Option<WallTime>,
    /// How long the agent has been running, in seconds.
    #[serde(default)]
    pub uptime_seconds: u64,
}

/// A drain that has pods left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainStatus {
    /// The number of pods that still run and are to stop.
    pub pods_remaining: usize,
    /// Whether the container runtime has not reported the running pods yet, so that there may be more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// Its progress, as of a shutdown.
    #[serde(default)]
    pub progress: ShutdownProgress,
}

/// Whether the node's shutdown waits for the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    /// The state of the lock.
    pub state: LockState,
    /// Why the lock is waiting or absent, human-readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the current lock was acquired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<WallTime>,
    /// The longest time that logind waits (`InhibitDelayMaxSec`), in seconds; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
    /// The time that the plan requires, in seconds.
    #[serde(default)]
    pub required_seconds: f64,
    /// The file that set the delay, if the delay is shorter than required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
}

/// The state of the inhibitor lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LockState {
    /// The lock is held, and logind lists it.
    Held,
    /// The lock is not held; the agent retries.
    Waiting,
    /// The lock was released after the pods were stopped; the node may go down.
    Released,
    /// There is no login manager, or the lock is disabled.
    Absent,
    /// A value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A reason why new pods are not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClosedBy {
    /// The agent is starting.
    Startup,
    /// The login manager is shutting the node down.
    Shutdown,
    /// The agent's unit is being stopped because the node goes down.
    UnitStop,
    /// A notice is in effect.
    Notice,
    /// An operator is draining the node, or has drained it.
    Drain,
    /// A value that this version does not know.
    #[serde(other)]
    Unknown,
}

impl From<GateReason> for ClosedBy {
    fn from(reason: GateReason) -> Self {
        match reason {
            GateReason::Startup => Self::Startup,
            GateReason::Shutdown => Self::Shutdown,
            GateReason::UnitStop => Self::UnitStop,
            GateReason::Notice => Self::Notice,
            GateReason::Drain => Self::Drain,
        }
    }
}

/// What a notice source announces about the end of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NoticeStatus {
    /// `file`, `operator`, `aws`, `azure` or `gcp`.
    pub source: String,
    /// When the node will be gone; absent if the source announces nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<WallTime>,
    /// The text of the notice, human-readable.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Whether the notice is in effect; false while its deadline is still far away.
    #[serde(default)]
    pub in_effect: bool,
    /// Why the source cannot be queried, human-readable. Its earlier notice stays in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The progress of a shutdown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownProgress {
    /// The current phase.
    pub phase: Phase,
    /// When the shutdown was signalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// When the node goes down, whatever still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<WallTime>,
    /// Whether the container runtime has not reported the running pods yet, so that more may run than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// The groups, in the order in which they are stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupProgress>,
    /// The shutdown that is scheduled (`shutdown +60`); absent if none is, and while a shutdown is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<ScheduledStatus>,
}

/// A shutdown that begins at a certain time, unless it is cancelled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledStatus {
    /// When it begins.
    pub at: WallTime,
    /// How the node goes down: `powerOff`, `halt`, `reboot`, `kexec` or `softReboot`.
    pub kind: String,
    /// The message that was given with it; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What is left on the disk of a directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryStatus {
    /// What the directory holds.
    pub holds: DirectoryUse,
    /// Its path.
    pub path: String,
    /// Free bytes; absent if the disk does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Free inodes; absent if the file system has no fixed number, or does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_inodes: Option<u64>,
    /// Whether it is mounted read-only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Whether nothing can be written because nothing is left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_full: bool,
    /// Whether it is almost full, cannot be written or does not answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_low: bool,
}

/// What a directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DirectoryUse {
    /// What has to outlive the agent and the boot, and the reports.
    State,
    /// The logs of containers.
    Logs,
    /// The control socket, and what the next agent of this boot continues from.
    Run,
    /// A value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl DirectoryUse {
    /// The name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Logs => "logs",
            Self::Run => "run",
            Self::Unknown => "unknown",
        }
    }
}

/// The status of a plug-in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginStatus {
    /// The plug-in's name.
    pub name: String,
    /// The status in one line, human-readable.
    pub text: String,
}

/// How the node went down before this boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastBootStatus {
    /// How the shutdown went, how long it took and which pods were cut short, in one human-readable line.
    pub text: String,
    /// Whether every pod could stop by itself; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful: Option<bool>,
    /// The ID of the boot that ended this way.
    #[serde(default)]
    pub boot_id: String,
    /// The ID of the shutdown's report, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// How long the shutdown took, in seconds, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_seconds: Option<f64>,
}

/// The phase of a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// No shutdown is in progress.
    #[default]
    Idle,
    /// Pods are being stopped.
    Running,
    /// The last shutdown was cancelled; pods of groups that had already started still stop.
    Cancelled,
    /// All pods have stopped, or the time is over; the node goes down.
    Done,
    /// A value that this version does not know.
    #[serde(other)]
    Unknown,
}

impl DrainStatus {
    /// Whether its time is over, although it has pods left.
    pub fn is_over(&self) -> bool {
        self.progress.phase == Phase::Done
    }
}

impl Phase {
    /// Whether a shutdown is in progress. One that was cancelled is in the past: this phase stays until the next one.
    pub const fn is_under_way(self) -> bool {
        match self {
            Self::Running | Self::Done | Self::Unknown => true,
            Self::Idle | Self::Cancelled => false,
        }
    }
}

/// The progress of one group of a shutdown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupProgress {
    /// The lowest priority in the group.
    pub priority: i32,
    /// The group's name, if pods are grouped by role: `ordinary pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of its pods.
    pub pods: usize,
    /// How many of them have stopped.
    pub terminated: usize,
    /// Whether its pods have been asked to stop.
    pub started: bool,
    /// Whether all its pods have stopped, or its time is over.
    pub finished: bool,
}

/// A summary of what a shutdown would do now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// Whether graceful node shutdown is enabled.
    pub enabled: bool,
    /// The time that the configuration requests, in seconds.
    pub requested_seconds: f64,
    /// The available time, in seconds; less than requested if logind allows less.
    pub available_seconds: f64,
    /// The groups that have pods to stop, in order.
    #[serde(default)]
    pub groups: Vec<GroupSummary>,
    /// Which pods get less time than their manifests ask for, human-readable. Pods that ask for the default are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Which pods get less time than the default grace, which they ask for, human-readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_grace_cut: Vec<String>,
    /// What to raise in the configuration so that all of them get their time, human-readable; empty if they do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub raise: String,
}

/// A group of a [`PlanSummary`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSummary {
    /// The lowest priority in the group.
    pub priority: i32,
    /// The group's name, if pods are grouped by role: `ordinary pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The latest time at which its pods are gone, in seconds after the signal.
    pub deadline_seconds: f64,
    /// The number of pods that it has now.
    pub pods: usize,
}

/// The container runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStatus {
    /// `process`, `systemd`, or the container runtime's own name.
    pub name: String,
    /// Whether the runtime answered the last call.
    pub healthy: bool,
    /// What is wrong with the runtime, human-readable; empty if it is healthy.
    #[serde(default)]
    pub message: String,
}

/// The effective configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// The file that it was read from; empty if the defaults are in effect.
    pub file: String,
    /// When it was last read, if perhaps in vain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_at: Option<WallTime>,
    /// When the file was changed, if that was after it was last read: the change is not in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<WallTime>,
    /// Fields that were read with another value, which takes effect when the agent is restarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_restart: Vec<String>,
    /// Warnings about it, human-readable.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl Status {
    /// Whether a kubelet runs the pods, and the agent terminates them.
    pub fn is_beside_kubelet(&self) -> bool {
        self.cluster.as_ref().is_some_and(ClusterStatus::is_beside_kubelet)
    }

    /// What happened to the node's pods after `last`, the newest run with a report, and has none itself: the boot before
    /// this one ended, or a drain could not store it. None if nothing did.
    pub fn unreported(&self, last: Option<&ReportEntry>) -> Option<String> {
        if let Some(why) = &self.lost_report {
            return Some(format!("the report of the last drain is lost: {why}"));
        }
        let boot = self.last_boot.as_ref().filter(|boot| boot.report.is_none())?;
        let is_later = last.is_none_or(|last| last.boot_id != self.node.boot_id);
        is_later.then(|| boot.text.clone())
    }

    /// The pod of this name. That of a static pod may lack the node's at its end, as in its manifest.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&PodStatus> {
        let of_node = format!("{name}-{}", self.node.name);
        let here = || self.pods.iter().filter(|pod| pod.namespace == namespace);
        let is_static = |pod: &&PodStatus| pod.source != "api" && pod.name == of_node;
        here().find(|pod| pod.name == name).or_else(|| here().find(is_static))
    }

    /// The rejected pod of this name, or of this name and the node's at its end.
    pub fn rejected_pod(&self, namespace: &str, name: &str) -> Option<&RejectedPod> {
        let of_node = format!("{name}-{}", self.node.name);
        let here = || self.rejected.iter().filter(|pod| pod.namespace == namespace);
        here().find(|pod| pod.name == name).or_else(|| here().find(|pod| pod.name == of_node))
    }

    /// The answer if no pod of this name is listed. There may be one until the runtime has listed its pods.
    pub fn no_pod(&self, namespace: &str, name: &str) -> ApiError {
        if let Some(RejectedPod { namespace, name, reason, message, .. }) =
            self.rejected_pod(namespace, name)
        {
            let text = format!("{namespace}/{name} was rejected, {reason}: {message}");
            return ApiError::new(ErrorCode::NotFound, text)
                .with_hint("`winddown status` says what to do about it");
        }
        let alike = self.similar_pods(namespace, name);
        let (code, text) = match self.pods_unknown {
            true => (
                ErrorCode::Unavailable,
                format!(
                    "it is not known yet whether the pod {namespace}/{name} is on this node: \
                     the container runtime has not listed its pods"
                ),
            ),
            false => {
                (ErrorCode::NotFound, format!("there is no pod {namespace}/{name} on this node"))
            }
        };
        let hint = alike.unwrap_or_else(|| "`winddown status` lists the pods".to_owned());
        ApiError::new(code, text).with_hint(hint)
    }

    /// Suggests pods whose names differ only in the suffix that static pods get (the node's name) or in the namespace.
    pub fn similar_pods(&self, namespace: &str, name: &str) -> Option<String> {
        let alike: Vec<String> = self
            .pods
            .iter()
            .filter(|pod| pod.name == name || pod.name == format!("{name}-{}", self.node.name))
            .filter(|pod| pod.namespace != namespace || pod.name != name)
            .take(3)
            .map(|pod| format!("{}/{}", pod.namespace, pod.name))
            .collect();
        // As kubectl writes it.
        let is_kind = alike.is_empty() && matches!(namespace, "pod" | "pods" | "po");
        match is_kind {
            true => {
                Some(format!("write NAME or NAMESPACE/NAME: `{namespace}/` is read as a namespace"))
            }
            false => (!alike.is_empty()).then(|| format!("did you mean {}?", alike.join(" or "))),
        }
    }

    /// Says by how much the clock was set forward or back since the agent started, human-readable; `None` if it was not.
    pub fn clock_was_set(&self) -> Option<String> {
        let by = self.clock_shift()?;
        let how = if by > 0 { "forward" } else { "back" };
        Some(format!("the clock was set {how} by {}", age(by.abs())))
    }

    /// By how many seconds the clock was set forward, or back if negative, since the agent started; `None` if it was not.
    fn clock_shift(&self) -> Option<i64> {
        // Other agents may not say how long they have run.
        let started = self.node.started_at.filter(|_| self.node.uptime_seconds > 0)?;
        let by = self.time.as_second() - started.as_second().saturating_add(self.uptime());
        (by.abs() > CLOCK_SLACK_SECONDS).then_some(by)
    }

    /// How many seconds before `now` it was `then`, both by the clock. Where the clock was set after that for certain, as if
    /// it had not been: what would have lasted for longer than the agent has run, and what began before the agent did.
    pub fn elapsed(&self, then: WallTime, now: WallTime) -> i64 {
        let by_clock = now.duration_since(then).as_secs();
        let Some(by) = self.clock_shift() else { return by_clock };
        // After it was set back, what begins now is before the agent's start by the clock.
        let is_before = by > 0 && self.node.started_at.is_some_and(|started| then < started);
        let may_be_after = (0..=self.uptime().saturating_add(1)).contains(&by_clock);
        if may_be_after && !is_before { by_clock } else { by_clock - by }
    }

    fn uptime(&self) -> i64 {
        i64::try_from(self.node.uptime_seconds).unwrap_or(i64::MAX)
    }
}
