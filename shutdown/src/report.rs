//! How a shutdown or a drain went, pod by pod. Written before the node goes, read after it is back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::{KillReason, RequestReport, ShutdownKind, WallTime};

use crate::{Budget, FileError, RunReport};

mod boot_mark;
mod headline;
mod last_boot;
mod pods;
mod store;
#[cfg(test)]
mod tests;
pub(crate) mod units;
mod work;

pub use boot_mark::{BootMark, PreviousBoot};
pub use last_boot::{Evidence, LastBoot, last_boot};
pub use pods::{GroupReport, PodEnd, PodReport};
pub use store::{Listing, ReportStore};
use units::{ListOfMillis, OptionalSeconds, Seconds};
pub(crate) use work::WorkEnd;
pub use work::{WorkOutcome, WorkReport};

/// The version of the report's shape; goes up when a reader of the old one would be misled.
const VERSION: u32 = 1;

/// Stores a report. Called on a thread that may block; the run does not wait if it takes too long.
pub trait ReportSink: Send + Sync + 'static {
    /// Stores `report`; when this returns it survives a power cut.
    ///
    /// # Errors
    /// It could not be stored. The run goes on.
    fn keep(&self, report: &ShutdownReport) -> Result<(), FileError>;
}

/// Keeps no report.
impl ReportSink for () {
    fn keep(&self, _: &ShutdownReport) -> Result<(), FileError> {
        Ok(())
    }
}

/// How a shutdown or a drain went.
///
/// Offsets count from the signal. Numbers ending in `Seconds` are seconds with three decimals,
/// those ending in `Ms` are whole milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ShutdownReport {
    /// `winddown.dev/v1alpha1`.
    pub api_version: String,
    /// `ShutdownReport`.
    pub kind: String,
    /// Version of this shape.
    pub version: u32,
    /// What began the run.
    pub trigger: Trigger,
    /// How the node goes down: `powerOff`, `halt`, `reboot`, `kexec`, `softReboot`; absent if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_action: Option<String>,
    /// The kernel's boot id during the run.
    pub boot_id: String,
    /// The node's name; absent where the one that kept the report did not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Wall time of the signal.
    pub started_at: WallTime,
    /// Wall time of the end: everything but this report was done.
    pub ended_at: WallTime,
    /// From the signal to the end, by a clock that does not jump.
    #[serde(rename = "tookSeconds", with = "Seconds")]
    pub took: Duration,
    /// The time there was.
    pub budget: BudgetReport,
    /// Who asked for it, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<RequestReport>,
    /// The notice that began the run or shortened it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<NoticeReport>,
    /// How long pods were not ready before the first SIGTERM (`shutdownEndpointDrainPeriod`).
    #[serde(rename = "endpointDrainSeconds", with = "OptionalSeconds")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_drain: Option<Duration>,
    /// When an agent that was started in the middle of the run took it up again, each time.
    #[serde(rename = "resumedMs", with = "ListOfMillis")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Duration>,
    /// In one word.
    pub outcome: Outcome,
    /// When the run ended, the container runtime had not said since the agent's start what runs: there
    /// may have been pods that are not listed here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// In ascending priority, which is the order of their end.
    pub groups: Vec<GroupReport>,
    /// What plug-ins did before, between and after the groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<WorkReport>,
    /// Pods, as `namespace/name`, whose last status the API server did not have when the node was let
    /// go. The next agent sends it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statuses_not_told: Vec<String>,
    /// What went wrong with the run itself, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What began a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Trigger {
    /// The login manager announced the node's shutdown.
    #[default]
    LoginManager,
    /// A rehearsal with a stand-in for the login manager.
    Drill,
    /// An operator empties the node, which stays up.
    Drain,
    /// The unit was stopped while the machine went down without the login manager.
    UnitStop,
    /// An outside party gave notice (spot instance, maintenance, battery).
    Notice,
}

/// An outside notice of the node's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NoticeReport {
    /// Who: `file`, `operator`, `aws`, `azure`, `gcp`.
    pub source: String,
    /// What was said, for people.
    pub text: String,
    /// The node's end.
    #[serde(rename = "deadlineSeconds", with = "Seconds")]
    pub deadline: Duration,
}

/// How a run went, in one word. The worst that is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Every pod ended by itself in its grace.
    Clean,
    /// Every pod ended; at least one needed SIGKILL.
    Forced,
    /// At least one pod was not seen to end, or it is not known which ran.
    Left,
    /// Called off; groups not started were spared.
    Cancelled,
    /// The agent itself was stopped in the middle.
    Interrupted,
    /// The machine went down in the middle; the report was put together at the next start.
    CutOff,
}

/// The time a run had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetReport {
    /// What the configured groups ask for.
    #[serde(rename = "requestedSeconds", with = "Seconds")]
    pub requested: Duration,
    /// What the pods got.
    #[serde(rename = "podsSeconds", with = "Seconds")]
    pub pods: Duration,
    /// What was kept back for the end.
    #[serde(rename = "reserveSeconds", with = "Seconds")]
    pub reserve: Duration,
    /// The login manager's limit, where known.
    #[serde(rename = "delaySeconds", with = "OptionalSeconds")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// The file that set that limit, when it is less than what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_set_by: Option<String>,
}

/// What is known about a run before it begins.
#[derive(Clone)]
pub(crate) struct ReportHeader {
    pub(crate) trigger: Trigger,
    pub(crate) node_action: ShutdownKind,
    pub(crate) boot_id: String,
    pub(crate) started_at: WallTime,
    pub(crate) budget: BudgetReport,
    pub(crate) requested_by: Option<RequestReport>,
    pub(crate) notice: Option<NoticeReport>,
    pub(crate) endpoint_drain: Option<Duration>,
    pub(crate) resumed: Vec<Duration>,
    pub(crate) warnings: Vec<String>,
}

/// When a run ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) at: WallTime,
    pub(crate) took: Duration,
}

// === impl ShutdownReport ===

impl ShutdownReport {
    /// Every pod with its group.
    pub fn pods(&self) -> impl Iterator<Item = (&GroupReport, &PodReport)> {
        self.groups.iter().flat_map(|group| group.pods.iter().map(move |pod| (group, pod)))
    }

    /// How many pods ended as `end`.
    pub fn count(&self, end: PodEnd) -> usize {
        self.pods().filter(|(_, pod)| pod.end == end).count()
    }

    /// The wall time of the signal, to the millisecond, as it stands in the file's name.
    pub fn id(&self) -> String {
        self.started_at.strftime("%Y%m%dT%H%M%S.%3fZ").to_string()
    }

    /// Combines what a run did with what was known about it.
    pub(crate) fn new(header: ReportHeader, run: RunReport, ended: Ended) -> Self {
        Self {
            api_version: "winddown.dev/v1alpha1".into(),
            kind: "ShutdownReport".into(),
            version: VERSION,
            trigger: header.trigger,
            node_action: node_action(header.node_action),
            boot_id: header.boot_id,
            node: None,
            started_at: header.started_at,
            ended_at: ended.at,
            took: ended.took,
            budget: header.budget,
            requested_by: header.requested_by,
            notice: header.notice,
            endpoint_drain: header.endpoint_drain,
            resumed: header.resumed,
            outcome: run.outcome(),
            pods_unknown: run.pods_unknown,
            groups: run.groups,
            work: run.work,
            statuses_not_told: Vec::new(),
            warnings: header.warnings,
        }
    }
}

// === impl BudgetReport ===

impl BudgetReport {
    /// The report of `budget`.
    pub fn new(budget: Budget, delay_set_by: Option<&str>) -> Self {
        let Budget { requested, pods, reserve, delay } = budget;
        Self { requested, pods, reserve, delay, delay_set_by: delay_set_by.map(Into::into) }
    }

    /// Whether the pods got less than the policy asks for.
    pub fn is_short(&self) -> bool {
        self.pods < self.requested
    }
}

// === impl Trigger ===

impl Trigger {
    /// The reason given to the pod workers.
    pub fn kill_reason(self) -> KillReason {
        match self {
            Self::Drain => KillReason::Drain,
            _ => KillReason::Shutdown,
        }
    }
}

/// The report's word for a way down.
fn node_action(kind: ShutdownKind) -> Option<String> {
    (kind != ShutdownKind::Unknown).then(|| kind.as_str().to_owned())
}
