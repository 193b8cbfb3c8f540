//! The report of a shutdown or a drain, pod by pod. Written before the node goes down, read when it is back, perhaps by a
//! later version: an alias is the name that an agent before 0.1.0 wrote.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::{RequestReport, ShutdownKind, WallTime};

use crate::{Budget, FileError, RunReport};

mod boot_mark;
mod find_last_boot;
mod headline;
mod last_boot;
mod pod_end;
mod pods;
mod store;
#[cfg(test)]
mod tests;
mod trigger;
pub mod units;
mod unstored;
mod work;

pub use boot_mark::{BootMark, PreviousBoot};
pub use find_last_boot::find_last_boot;
pub use headline::{Outcome, OutcomeText, Tone};
pub use last_boot::{Evidence, LastBoot, last_boot};
pub use pod_end::{EndDetail, PodEnd, PodEndText};
pub use pods::{GroupReport, PodReport};
pub use store::{Listing, ReportStore};
pub use trigger::{Trigger, TriggerText};
use units::{ListOfMillis, OptionalSeconds, Seconds};
pub use unstored::UnstoredReports;
pub(crate) use work::WorkEnd;
pub use work::{WorkOutcome, WorkReport};

/// The version of the report's schema. It increases when a reader of the old one would be misled.
const VERSION: u32 = 1;

/// A place that stores reports. Called on a thread that may block; the run does not wait if it takes too long.
pub trait ReportSink: Send + Sync + 'static {
    /// Stores `report`. When this returns, it survives a power cut.
    ///
    /// # Errors
    /// Fails if the report could not be stored. The run continues.
    fn keep(&self, report: &ShutdownReport) -> Result<(), FileError>;
}

/// Discards all reports.
impl ReportSink for () {
    fn keep(&self, _: &ShutdownReport) -> Result<(), FileError> {
        Ok(())
    }
}

/// The report of a shutdown or a drain.
///
/// Offsets count from the signal. Fields whose names end in `Seconds` are seconds with three decimals;
/// those ending in `Ms` are whole milliseconds.
// Over the limit because it is one JSON document, and each field is a member of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ShutdownReport {
    /// Always `winddown.dev/v1alpha1`.
    pub api_version: String,
    /// Always `ShutdownReport`.
    pub kind: String,
    /// The version of this schema.
    pub version: u32,
    /// What triggered the run.
    pub trigger: Trigger,
    /// How the node goes down: `powerOff`, `halt`, `reboot`, `kexec`, `softReboot`; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_action: Option<String>,
    /// The kernel's boot id during the run.
    pub boot_id: String,
    /// The node's name; absent if it was not known when the report was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The wall time of the signal.
    pub started_at: WallTime,
    /// The wall time of the end, when everything except this report was done.
    #[serde(alias = "endedAt")]
    pub finished_at: WallTime,
    /// The time from the signal to the end, by a monotonic clock.
    #[serde(rename = "tookSeconds", with = "Seconds")]
    pub took: Duration,
    /// The time that was available.
    pub budget: BudgetReport,
    /// Who requested the shutdown or drain, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<RequestReport>,
    /// The notice that began the run or shortened it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<NoticeReport>,
    /// How long pods were not ready before the first SIGTERM (`shutdownEndpointDrainPeriod`).
    #[serde(rename = "endpointDrainSeconds", with = "OptionalSeconds")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_drain: Option<Duration>,
    /// The times at which an agent that was restarted in the middle of the run resumed it.
    #[serde(rename = "resumedMs", with = "ListOfMillis")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Duration>,
    /// The outcome of the run.
    pub outcome: Outcome,
    /// Whether the node stayed up: the shutdown was cancelled when the run was over. The outcome is that of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_stayed_up: bool,
    /// Whether the container runtime had not listed its pods since the agent's start when the run ended:
    /// there may have been pods that are not listed here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// The groups in ascending priority, which is the order in which they stop.
    pub groups: Vec<GroupReport>,
    /// The work of plug-ins before, between and after the groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<WorkReport>,
    /// The pods, as `namespace/name`, whose final status had not reached the API server when the node was
    /// released. The next agent sends it.
    #[serde(default, alias = "statusesNotTold", skip_serializing_if = "Vec::is_empty")]
    pub unsent_statuses: Vec<String>,
    /// Problems with the run itself, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A notice that the node goes down at a certain time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NoticeReport {
    /// The source of the notice: `file`, `operator`, `aws`, `azure`, `gcp`.
    pub source: String,
    /// The text of the notice, for people.
    pub text: String,
    /// When the node goes down.
    #[serde(rename = "deadlineSeconds", with = "Seconds")]
    pub deadline: Duration,
}

/// The time that a run had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetReport {
    /// The time asked for: by the policy for its endpoint drain and groups, or by a drain for its pods.
    #[serde(rename = "requestedSeconds", with = "Seconds")]
    pub requested: Duration,
    /// The time for the pods.
    #[serde(rename = "podsSeconds", with = "Seconds")]
    pub pods: Duration,
    /// The time kept back for the end.
    #[serde(rename = "reserveSeconds", with = "Seconds")]
    pub reserve: Duration,
    /// Until when the node waits for the agent, counted from the start, if known.
    #[serde(rename = "delaySeconds", with = "OptionalSeconds")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Who waits until then.
    #[serde(default, skip_serializing_if = "DelayedBy::is_login_manager")]
    pub delayed_by: DelayedBy,
    /// What set that limit, if it is less than what was requested: a file, or systemd's `JobTimeoutSec` of a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_set_by: Option<String>,
}

/// Who waits for the agent while the node goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum DelayedBy {
    /// The login manager, for the inhibitor lock.
    #[default]
    LoginManager,
    /// The service manager, for the stop of the agent's unit.
    ServiceManager,
}

/// The part of a report that is known before the pods are stopped.
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
    /// All pods, each with its group.
    pub fn pods(&self) -> impl Iterator<Item = (&GroupReport, &PodReport)> {
        self.groups.iter().flat_map(|group| group.pods.iter().map(move |pod| (group, pod)))
    }

    /// The number of pods that ended as `end`.
    pub fn count(&self, end: PodEnd) -> usize {
        self.pods().filter(|(_, pod)| pod.end == end).count()
    }

    /// The report's id: the wall time of the signal to the millisecond, as in the file's name.
    pub fn id(&self) -> String {
        self.started_at.strftime("%Y%m%dT%H%M%S.%3fZ").to_string()
    }

    /// Whether the node stayed up: the run was called off, in its course or after its end.
    pub(crate) fn left_the_node_up(&self) -> bool {
        self.outcome == Outcome::Cancelled || self.node_stayed_up
    }

    /// Combines the header with the results of the run.
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
            finished_at: ended.at,
            took: ended.took,
            budget: header.budget,
            requested_by: header.requested_by,
            notice: header.notice,
            endpoint_drain: header.endpoint_drain,
            resumed: header.resumed,
            outcome: run.outcome(),
            node_stayed_up: false,
            pods_unknown: run.pods_unknown,
            groups: run.groups,
            work: run.work,
            unsent_statuses: Vec::new(),
            warnings: header.warnings,
        }
    }
}

// === impl BudgetReport ===

impl BudgetReport {
    /// Creates the report of `budget`.
    pub fn new(budget: Budget, delay_set_by: Option<&str>) -> Self {
        let Budget { requested, pods, reserve, delay } = budget;
        let (delayed_by, delay_set_by) = (DelayedBy::default(), delay_set_by.map(Into::into));
        Self { requested, pods, reserve, delay, delayed_by, delay_set_by }
    }

    /// Whether the pods got less than the policy asks for.
    pub fn is_short(&self) -> bool {
        self.pods < self.requested
    }
}

// === impl DelayedBy ===

impl DelayedBy {
    /// Who that is, in texts for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::LoginManager => "the login manager",
            Self::ServiceManager => "systemd",
        }
    }

    /// The end of its patience, in pictures.
    pub fn limit(self) -> &'static str {
        match self {
            Self::LoginManager => "logind's limit",
            Self::ServiceManager => "systemd's limit",
        }
    }

    fn is_login_manager(&self) -> bool {
        *self == Self::LoginManager
    }
}

/// Returns the report's `nodeAction` for a kind of shutdown.
fn node_action(kind: ShutdownKind) -> Option<String> {
    (kind != ShutdownKind::Unknown).then(|| kind.as_str().to_owned())
}
