//! The JSON of every request and response on the control socket.
//!
//! These types are a stable interface (`winddown.dev/v1alpha1`). Fields are only ever added. A reader ignores unknown
//! fields, and reads an unknown enum value as `unknown`. Times are RFC 3339 in UTC. Durations are seconds: whole
//! numbers where Kubernetes uses whole numbers (grace periods), fractions where they were measured.

mod cluster;
mod decision;
mod envelope;
mod guard;
mod health;
mod pod_trouble;
mod pods;
mod preemption;
mod protection;
mod report;
mod request;
mod start;
mod status;
#[cfg(test)]
mod tests;
mod version;

pub use cluster::{AfterNode, AfterNodesStatus, ApiState, ApiStatus, ClusterStatus, NodeStage};
pub use decision::Decision;
pub use envelope::{ApiAnswer, Envelope};
pub use guard::{BlockingPod, GuardStatus, ReleaseAnswer};
pub use health::{Check, Health};
pub use pod_trouble::{PodTrouble, TroubleKind};
pub use pods::{
    ContainerStatus, ExitedRun, LastState, ManifestProblem, Manifests, PodState, PodStatus,
    RejectedPod,
};
pub use preemption::{
    ConsideredPod, InsufficientResource, NodeResource, PreemptionCase, PreemptionPlan, RoomVerdict,
    WaitingPod,
};
pub use protection::{Protection, ProtectionReason, ProtectionState, TerminatedBy};
pub use report::{ReportEntry, ReportList};
pub use request::{
    ConfigView, DrainEvent, DrainRequest, ErrorBody, ErrorCode, KillAnswer, KillBody, LogQuery,
    NoticeBody, WithdrawAnswer,
};
pub use start::{StartPlan, StartStatus, StartingGroup, StartingPod};
pub use status::{
    ClosedBy, ConfigStatus, DirectoryStatus, DirectoryUse, DrainStatus, GroupProgress,
    GroupSummary, LastBootStatus, LockState, LockStatus, NodeStatus, NoticeStatus, Phase,
    PlanSummary, PluginStatus, RuntimeStatus, ScheduledStatus, ShutdownProgress, Status,
};
pub use version::VersionAnswer;
#[cfg(feature = "eviction")]
pub use winddown_eviction::{
    EvictionHookRun, EvictionPlan, EvictionRecord, PendingReadmission, PressureStatus,
    RankedPodStatus, SwapStatus, ThresholdStatus,
};

#[cfg(feature = "shutdown")]
pub use winddown_shutdown::{
    PlanShrink, PlannedBudget, PlannedGroup, PlannedPodStatus, PlannedWorkStatus, ShutdownPlan,
};

/// The API version that every response carries in `apiVersion`.
pub const API_VERSION: &str = "winddown.dev/v1alpha1";
