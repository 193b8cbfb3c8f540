//! What is shown of a plan. The JSON forms are a stable interface.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::{Grace, Pod};

use crate::{Group, Plan, PlannedPod, PlannedWork};

/// What a shutdown would do now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ShutdownPlan {
    /// The time that the configuration requests, in seconds.
    pub requested_seconds: f64,
    /// How long pods are unready before the first SIGTERM, in seconds; absent if they are not made unready first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_drain_seconds: Option<f64>,
    /// The time from the signal until the node is gone, as the request gave it, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<f64>,
    /// Present if logind or the request allows less time than the configuration requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortened: Option<PlanShrink>,
    /// Whether the container runtime has not reported the running pods yet, so that more may run than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// The groups, in the order in which they would be stopped.
    pub groups: Vec<PlannedGroup>,
    /// The pods that would be killed at once, because graceful shutdown is off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_protected: Vec<PlannedPodStatus>,
    /// The work of plug-ins before, between and after the groups, in that order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<PlannedWorkStatus>,
    /// Problems that an operator may want to fix, human-readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// How far a plan had to be shortened, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanShrink {
    /// The time that is available for pods, in seconds.
    pub available_seconds: f64,
    /// The file that set logind's limit, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
}

/// A group of pods that are stopped together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlannedGroup {
    /// The lowest priority in the group. If the group has a name, this number only sorts it.
    pub priority: i32,
    /// The group's name, if pods are grouped by role: `ordinary pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The group's grace period, in seconds.
    pub shutdown_grace_period_seconds: f64,
    /// The latest time at which its pods are gone, in seconds after the signal; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<f64>,
    /// The pods of the group.
    pub pods: Vec<PlannedPodStatus>,
}

/// The work of a plug-in at one point of a shutdown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "PlannedWork"))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PlannedWorkStatus {
    /// The plug-in's name.
    pub plugin: String,
    /// What the plug-in does.
    pub what: String,
    /// When it does it: `before the pods`, `after pods of priority 0`.
    pub point: String,
    /// The time reserved for it, in seconds; absent if it gets the time that the pods leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// A pod in a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "PlannedPod"))]
#[serde(rename_all = "camelCase")]
pub struct PlannedPodStatus {
    /// `metadata.namespace`.
    #[serde(default)]
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    #[serde(default)]
    pub uid: String,
    /// `spec.priority`, 0 when unset.
    #[serde(default)]
    pub priority: i32,
    /// Whether `spec.priority` is unset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_no_priority: bool,
    /// What is left of the pod's grace period, in seconds, if it is already terminating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_left_seconds: Option<f64>,
    /// The guaranteed time between its SIGTERM and SIGKILL, in seconds.
    pub grace_seconds: f64,
    /// The grace period in its spec, in seconds; absent if it sets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_grace_seconds: Option<f64>,
    /// Whether the pod stays when the node reboots, and starts again afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays_on_reboot: bool,
    /// Whether the pod keeps running through a soft-reboot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub survives_soft_reboot: bool,
    /// Whether the shutdown deletes the pod, which has no controller that would create another (companion mode only).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_lost: bool,
    /// The disruption budgets that count the pod and are consulted before it is stopped (companion mode only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disruption_budgets: Vec<PlannedBudget>,
    /// The eviction responders that are asked before the pod is stopped (companion mode only, if the API server serves
    /// eviction requests).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eviction_responders: Vec<String>,
}

/// A `PodDisruptionBudget`, in the pod's namespace, that counts the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlannedBudget {
    /// `metadata.name`.
    pub name: String,
    /// How many of its pods may be disrupted now; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptions_allowed: Option<u32>,
}

// === impl ShutdownPlan ===

impl ShutdownPlan {
    /// Shows `plan`; `set_by` is the file that set logind's limit, if known.
    #[must_use]
    pub fn of(plan: &Plan, set_by: Option<&str>) -> Self {
        let groups = plan.groups.iter().zip(plan.guaranteed()).zip(plan.gone_within());
        let not_protected = plan.not_protected.iter();
        Self {
            requested_seconds: plan.requested.as_secs_f64(),
            endpoint_drain_seconds: Some(plan.endpoint_drain)
                .filter(|drain| !drain.is_zero())
                .map(|drain| drain.as_secs_f64()),
            shortened: plan.shortened.map(|shrink| PlanShrink {
                available_seconds: shrink.available.as_secs_f64(),
                set_by: set_by.map(str::to_owned),
            }),
            groups: groups
                .map(|((group, guaranteed), gone)| PlannedGroup::of(plan, group, guaranteed, gone))
                .collect(),
            not_protected: not_protected
                .map(|pod| PlannedPodStatus::of(plan, pod, Duration::ZERO))
                .collect(),
            work: plan.work.iter().map(PlannedWorkStatus::of).collect(),
            warnings: plan.warnings().iter().map(ToString::to_string).collect(),
            ..Self::default()
        }
    }

    /// Marks the pods of `plan`, which this shows, that do not come back once they are deleted from the API server.
    pub fn mark_lost(&mut self, plan: &Plan) {
        let planned = plan.groups.iter().flat_map(|group| &group.pods);
        let shown = self.groups.iter_mut().flat_map(|group| &mut group.pods);
        for (shown, planned) in shown.zip(planned) {
            let pod = &planned.pod;
            // Of a pod that only the container runtime has described, neither is known.
            let is_known = pod.metadata.creation_timestamp.is_some();
            let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
            let has_controller = owners.iter().any(|owner| owner.controller == Some(true));
            shown.is_lost = is_known && !has_controller && !pod.is_static() && !pod.is_mirror();
        }
    }

    /// The number of pods in all groups.
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.groups.iter().map(|group| group.pods.len()).sum()
    }
}

// === impl PlannedGroup ===

impl PlannedGroup {
    fn of(plan: &Plan, group: &Group, guaranteed: Duration, gone: Duration) -> Self {
        let pod = |planned: &PlannedPod| {
            let own = planned.pod.termination_grace_period();
            let grace = own.map_or(planned.grace, |own| own.min(guaranteed)).max(Grace::SHORTEST);
            PlannedPodStatus::of(plan, &planned.pod, grace)
        };
        Self {
            priority: group.priority,
            name: group.name().map(Cow::into_owned),
            shutdown_grace_period_seconds: group.allowed.as_secs_f64(),
            deadline_seconds: Some(gone.as_secs_f64()),
            pods: group.pods.iter().map(pod).collect(),
        }
    }
}

// === impl PlannedWorkStatus ===

impl PlannedWorkStatus {
    fn of(planned: &PlannedWork) -> Self {
        Self {
            plugin: planned.work.by.to_string(),
            what: planned.work.what.to_owned(),
            point: planned.work.point.to_string(),
            seconds: planned.work.bound.map(|_| planned.allowed.as_secs_f64()),
        }
    }
}

// === impl PlannedPodStatus ===

impl PlannedPodStatus {
    /// A pod that gets `grace`.
    fn of(plan: &Plan, pod: &Pod, grace: Duration) -> Self {
        Self {
            namespace: pod.namespace().to_string(),
            name: pod.name().to_string(),
            uid: pod.uid().to_string(),
            priority: pod.priority_or_zero(),
            has_no_priority: pod.priority().is_none(),
            grace_seconds: grace.as_secs_f64(),
            own_grace_seconds: pod.termination_grace_period().map(|own| own.as_secs_f64()),
            stays_on_reboot: plan.may_stay(pod),
            survives_soft_reboot: plan.may_survive(pod),
            ..Self::default()
        }
    }
}
