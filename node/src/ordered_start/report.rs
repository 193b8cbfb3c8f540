//! The report of an ordered start: which pods waited for which others, how long, and why.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_host::Durability;
use winddown_shared::{Pod, WallTime};
use winddown_shutdown::units::{OptionalSeconds, Seconds};
use winddown_shutdown::{FileError, JsonFile};

use super::plan::{StartGroup, StartRank};

/// The version of the report's schema. It increases when a reader of the old one would be misled.
const VERSION: u32 = 1;

/// The report's file in the state directory.
const NAME: &str = "start-report.json";

const FILE: JsonFile =
    JsonFile { what: "the report of a start", largest: 64 << 20, is_public: false };

/// The report of how a node's pods started after a boot, group by group. Pods that arrived after the turn of their
/// group started at once and are not listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StartReport {
    /// Always `winddown.dev/v1alpha1`.
    pub api_version: String,
    /// Always `StartReport`.
    pub kind: String,
    /// The version of this schema.
    pub version: u32,
    /// The kernel's boot id.
    pub boot_id: String,
    /// The wall time at which the node's pods became known.
    pub started_at: WallTime,
    /// The same moment, in seconds since the kernel's boot.
    #[serde(rename = "bootSeconds", with = "Seconds")]
    pub boot: Duration,
    /// How long each group was given to become ready (`startGroupTimeout`).
    #[serde(rename = "groupTimeoutSeconds", with = "Seconds")]
    pub group_timeout: Duration,
    /// The time from then until no pod was waiting any more; absent while the start is in progress.
    #[serde(rename = "tookSeconds", with = "OptionalSeconds")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<Duration>,
    /// The outcome of the start.
    pub outcome: StartOutcome,
    /// The groups that have started, in the order in which they did.
    pub groups: Vec<StartedGroup>,
    /// The pods, as `namespace/name`, whose turn has not come yet; if the start was cancelled, those whose turn never
    /// came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<String>,
}

/// The outcome of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum StartOutcome {
    /// Pods are waiting for their turn, or the pods of a source are not known yet.
    InProgress,
    /// Every group was ready before the next one started.
    Ready,
    /// The time of at least one group was over before it was ready.
    NotReady,
    /// The node was shut down or drained before the start was complete.
    Cancelled,
}

/// Pods that started together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StartedGroup {
    /// The group's name for people, e.g. `system pods`.
    pub name: String,
    /// The lowest priority in the group, or a number that only serves to sort it.
    pub priority: i32,
    /// Whether these are the drivers among those pods, which the others need.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drivers: bool,
    /// When the group started, counted from the beginning of the start.
    #[serde(rename = "startedSeconds", with = "Seconds")]
    pub started: Duration,
    /// How long later groups waited for it; absent while they do.
    #[serde(rename = "tookSeconds", with = "OptionalSeconds")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<Duration>,
    /// The group's pods.
    pub pods: Vec<StartedPod>,
}

/// A pod in a group that has started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StartedPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// How long it waited for its turn since it was seen by the agent that let it start.
    #[serde(rename = "waitedSeconds", with = "Seconds")]
    pub waited: Duration,
    /// The time from its group's start until it was ready or terminated; absent if it was neither within its
    /// group's time.
    #[serde(rename = "readySeconds", with = "OptionalSeconds")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Duration>,
    /// The state that it reached within its group's time.
    pub state: PodStart,
}

/// The state of a pod whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PodStart {
    /// It is not ready yet, and its group's time is not over.
    Starting,
    /// It became ready.
    Ready,
    /// It succeeded.
    Succeeded,
    /// It failed or was rejected.
    Failed,
    /// It is no longer wanted by any source.
    Removed,
    /// Its group's time was over before it was ready.
    NotReady,
}

// === impl StartReport ===

impl StartReport {
    /// Reads the report of the last ordered start from the state directory, if there was one. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or the content is something else.
    pub fn load(state_directory: &Path) -> Result<Option<Self>, FileError> {
        FILE.read(&state_directory.join(NAME))
    }

    /// Replaces the report in the state directory. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The old content is kept.
    pub fn store(&self, state_directory: &Path) -> Result<(), FileError> {
        FILE.write(&state_directory.join(NAME), Durability::Process, self)
    }

    pub(super) fn new(
        boot_id: String,
        started_at: WallTime,
        boot: Duration,
        group_timeout: Duration,
    ) -> Self {
        Self {
            api_version: "winddown.dev/v1alpha1".into(),
            kind: "StartReport".into(),
            version: VERSION,
            boot_id,
            started_at,
            boot,
            group_timeout,
            took: None,
            outcome: StartOutcome::InProgress,
            groups: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// The group that other groups are waiting for.
    pub fn current(&self) -> Option<&StartedGroup> {
        self.groups.last().filter(|group| group.took.is_none())
    }

    pub(super) fn current_mut(&mut self) -> Option<&mut StartedGroup> {
        self.groups.last_mut().filter(|group| group.took.is_none())
    }

    /// All pods whose turn has come.
    pub fn pods(&self) -> impl Iterator<Item = &StartedPod> {
        self.groups.iter().flat_map(|group| &group.pods)
    }

    /// A counter that increases when a group or a pod starts, when no group is being waited for any more, and when the
    /// start is over, but not with each pod that becomes ready.
    pub fn revision(&self) -> usize {
        let over = usize::from(self.current().is_none()) + usize::from(self.is_over());
        self.groups.iter().map(|group| 1 + group.pods.len()).sum::<usize>() * 3 + over
    }

    /// Whether the start is over.
    pub fn is_over(&self) -> bool {
        self.took.is_some()
    }

    pub(super) fn end(&mut self, at: Duration, called_off: bool) {
        self.took = Some(at);
        let late = self.pods().any(|pod| pod.state == PodStart::NotReady);
        self.outcome = match (called_off, late) {
            (true, _) => StartOutcome::Cancelled,
            (false, true) => StartOutcome::NotReady,
            (false, false) => StartOutcome::Ready,
        };
    }
}

// === impl StartedGroup ===

impl StartedGroup {
    pub(super) fn new(of: &StartGroup, started: Duration) -> Self {
        let StartRank { priority, drivers } = of.rank;
        let name = of.name.clone();
        Self { name, priority, drivers, started, took: None, pods: Vec::new() }
    }

    pub(super) fn rank(&self) -> StartRank {
        StartRank { priority: self.priority, drivers: self.drivers }
    }

    /// The pods that are not ready, as `namespace/name`.
    pub fn not_ready(&self) -> impl Iterator<Item = String> {
        let late = |pod: &&StartedPod| matches!(pod.state, PodStart::Starting | PodStart::NotReady);
        self.pods.iter().filter(late).map(|pod| format!("{}/{}", pod.namespace, pod.name))
    }

    /// Ends the wait for the group at the time `at`, because it is ready or its time is over.
    pub(super) fn close(&mut self, at: Duration) {
        self.took = Some(at.saturating_sub(self.started));
        for pod in self.pods.iter_mut().filter(|pod| pod.state == PodStart::Starting) {
            pod.state = PodStart::NotReady;
        }
    }
}

// === impl StartedPod ===

impl StartedPod {
    pub(super) fn new(pod: &Pod, waited: Duration) -> Self {
        Self {
            namespace: pod.namespace().to_string(),
            name: pod.name().to_string(),
            uid: pod.uid().to_string(),
            waited,
            ready: None,
            state: PodStart::Starting,
        }
    }
}
