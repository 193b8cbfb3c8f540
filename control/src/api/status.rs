//! The node as the agent sees it now.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::{GateReason, WallTime};

use super::{
    API_VERSION, ClusterStatus, Decision, GuardStatus, Manifests, PodStatus, PressureStatus,
    RejectedPod, StartStatus,
};

/// Everything `winddown status` shows: one consistent picture of the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always `Status`.
    pub kind: String,
    /// When the picture was taken, on the agent's clock. Ages are counted from here.
    pub time: WallTime,
    /// Goes up with every change; equal revisions of one agent process are equal pictures.
    #[serde(default)]
    pub revision: u64,
    /// The node and the agent on it.
    pub node: NodeStatus,
    /// Whether the node's shutdown waits for the agent.
    pub lock: LockStatus,
    /// The shutdown under way, or that there is none.
    #[serde(default)]
    pub shutdown: ShutdownProgress,
    /// Pods that hold shutdowns; absent while none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardStatus>,
    /// Pods that wait for others to start; absent while none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartStatus>,
    /// Who says that the node goes away at a certain time, and who cannot be asked; empty when there
    /// is neither.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NoticeStatus>,
    /// How the node went down before this boot; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_boot: Option<LastBootStatus>,
    /// What a shutdown would do now, in short. `winddown plan shutdown` has all of it.
    #[serde(default)]
    pub shutdown_plan: PlanSummary,
    /// What runs the containers.
    #[serde(default)]
    pub runtime: RuntimeStatus,
    /// The configuration in force.
    #[serde(default)]
    pub config: ConfigStatus,
    /// How the node stands with its cluster; absent where it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// How near the node is to its eviction thresholds; absent where they are not watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureStatus>,
    /// What controllers say of themselves that are none of the node's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<PluginStatus>,
    /// No new pod is let in: a shutdown is under way, or the node was drained.
    #[serde(default)]
    pub admission_closed: bool,
    /// Everything that keeps new pods out; they are let in when the last of it is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission_closed_by: Vec<ClosedBy>,
    /// The container runtime has not said yet what runs: there may be more than is listed here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// The pods that hold a place on the node, those that are ending included. One without a `source`
    /// runs although no manifest of it can be read.
    #[serde(default)]
    pub pods: Vec<PodStatus>,
    /// Pods that were refused.
    #[serde(default)]
    pub rejected: Vec<RejectedPod>,
    /// The manifests directory and what is wrong in it.
    #[serde(default)]
    pub manifests: Manifests,
    /// The last decisions, the newest last; at most 20.
    #[serde(default)]
    pub decisions: Vec<Decision>,
}

/// The node and the agent process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The node's name.
    pub name: String,
    /// The kernel's boot id.
    #[serde(default)]
    pub boot_id: String,
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// The agent's process id.
    #[serde(default)]
    pub pid: u32,
    /// When the agent started.
    #[serde(default)]
    pub started_at: Option<WallTime>,
    /// How long the agent has run, in seconds.
    #[serde(default)]
    pub uptime_seconds: u64,
}

/// Whether the node's shutdown waits for the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    /// Where the lock stands.
    pub state: LockState,
    /// What stands in the way when the lock is waiting or absent, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the lock that is held now was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<WallTime>,
    /// The longest time logind waits (`InhibitDelayMaxSec`), in seconds, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
    /// The time the plan wants, in seconds.
    #[serde(default)]
    pub wanted_seconds: f64,
    /// The file that set the delay, when it is less than what is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
}

/// Where the lock stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LockState {
    /// Held, and logind lists it.
    Held,
    /// Not held; being tried again.
    Waiting,
    /// Given back after the pods were ended; the node may go down.
    Released,
    /// There is no login manager, or none is wanted.
    Absent,
    /// A word this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What keeps new pods out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClosedBy {
    /// The agent is starting.
    Startup,
    /// The login manager shuts the node down.
    Shutdown,
    /// The agent's unit is being stopped because the node goes down.
    UnitStop,
    /// A notice is in force.
    Notice,
    /// An operator drains the node, or has drained it.
    Drain,
    /// A word this version does not know.
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

/// What one source says about the end of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NoticeStatus {
    /// `file`, `operator`, `aws`, `azure` or `gcp`.
    pub source: String,
    /// When the node is gone; none when the source announces nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<WallTime>,
    /// What was said, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The notice counts. One whose deadline is far away is held back, and this is `false`.
    #[serde(default)]
    pub in_force: bool,
    /// Why the source cannot be asked, for people. What it said before stays in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The shutdown under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownProgress {
    /// How far it is.
    pub phase: Phase,
    /// When the signal came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// When the node goes down whatever still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<WallTime>,
    /// The container runtime has not said yet what runs: there may be more than is listed here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// The groups, in the order they are ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupProgress>,
}

/// What a plug-in says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginStatus {
    /// Its name.
    pub name: String,
    /// How it stands, in one line for people.
    pub text: String,
}

/// How the node went down before this boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastBootStatus {
    /// How it went, how long it took and who was cut, in one line for people.
    pub text: String,
    /// Whether every pod could end by itself; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful: Option<bool>,
    /// The boot that ended so.
    #[serde(default)]
    pub boot_id: String,
    /// The id of the shutdown's report, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// How long the shutdown took, in seconds, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_seconds: Option<f64>,
}

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// No shutdown is under way.
    #[default]
    Idle,
    /// Pods are being ended.
    Running,
    /// It was called off; pods of the groups that had begun still end.
    Cancelled,
    /// All pods are ended, or the time is over; the node goes down.
    Done,
    /// A word this version does not know.
    #[serde(other)]
    Unknown,
}

/// How far one group of a shutdown is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupProgress {
    /// The lowest priority that falls into the group.
    pub priority: i32,
    /// What its pods are for, when that is what puts them together: `ordinary pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its pods.
    pub pods: usize,
    /// Those of them that are ended.
    pub ended: usize,
    /// Its pods have been asked to end.
    pub started: bool,
    /// Nothing of it runs any more, or its time is over.
    pub finished: bool,
}

/// What a shutdown would do now, in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// Graceful node shutdown is switched on.
    pub enabled: bool,
    /// The time the configuration asks for, in seconds.
    pub requested_seconds: f64,
    /// The time there is, in seconds; less than requested when logind allows less.
    pub available_seconds: f64,
    /// The groups that would have pods to end, in order.
    #[serde(default)]
    pub groups: Vec<GroupSummary>,
}

/// One group of a [`PlanSummary`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSummary {
    /// The lowest priority that falls into the group.
    pub priority: i32,
    /// What its pods are for, when that is what puts them together: `ordinary pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When its pods are gone at the latest, in seconds from the signal.
    pub latest_end_seconds: f64,
    /// Pods in it now.
    pub pods: usize,
}

/// What runs the containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStatus {
    /// `process`, `systemd`, or what the container runtime calls itself.
    pub name: String,
    /// It answered the last call.
    pub healthy: bool,
    /// What is wrong with it, for people; empty when healthy.
    #[serde(default)]
    pub message: String,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// The file it was read from; empty when the defaults are in force.
    pub file: String,
    /// When it was last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_at: Option<WallTime>,
    /// What was noticed in it, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl Status {
    /// An empty status of a node: no lock, no pods, nothing decided yet.
    pub fn new(time: WallTime, node: NodeStatus) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "Status".to_owned(),
            time,
            revision: 0,
            node,
            lock: LockStatus::default(),
            shutdown: ShutdownProgress::default(),
            notices: Vec::new(),
            last_boot: None,
            guard: None,
            start: None,
            shutdown_plan: PlanSummary::default(),
            runtime: RuntimeStatus::default(),
            config: ConfigStatus::default(),
            cluster: None,
            pressure: None,
            plugins: Vec::new(),
            admission_closed: false,
            admission_closed_by: Vec::new(),
            pods_unknown: false,
            pods: Vec::new(),
            rejected: Vec::new(),
            manifests: Manifests::default(),
            decisions: Vec::new(),
        }
    }
}
