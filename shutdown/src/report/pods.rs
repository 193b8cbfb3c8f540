//! The part of a report about pods, group by group.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::display::clean;
use winddown_shared::{Grace, Pod};

use super::pod_end::PodEnd;
use super::units::{OptionalMillis, OptionalSeconds, Seconds};
use crate::{Group, Role};

/// The report of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GroupReport {
    /// The group's priority.
    pub priority: i32,
    /// The group's name for people, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The time that the policy gives it.
    #[serde(rename = "configuredSeconds", with = "Seconds")]
    pub configured: Duration,
    /// The time that it was guaranteed.
    #[serde(rename = "allowedSeconds", with = "Seconds")]
    pub allowed: Duration,
    /// When its time was over at the latest.
    #[serde(rename = "deadlineSeconds", alias = "latestEndSeconds", with = "Seconds")]
    pub latest_end: Duration,
    /// When it was requested to stop; absent if it had no pods or was spared.
    #[serde(rename = "startedMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Duration>,
    /// When its pods had stopped or its time was over.
    #[serde(rename = "finishedMs", alias = "endedMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Duration>,
    /// The group's pods.
    pub pods: Vec<PodReport>,
}

/// The report of a pod.
// Over the limit because it is one object of the JSON format, and each field is a member of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.priority`; absent counts as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The grace period that it was given; for a spared pod, the one that it would have got.
    #[serde(rename = "graceSeconds", with = "Seconds")]
    pub grace: Duration,
    /// Its own grace period, if that is longer than the one it was given.
    #[serde(rename = "ownGraceSeconds", alias = "wantedGraceSeconds", with = "OptionalSeconds")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_grace: Option<Duration>,
    /// When it was requested to stop.
    #[serde(rename = "requestedMs", alias = "askedMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Duration>,
    /// The requester that had requested it to stop before the run did: `preemption`, `eviction`, `operator`,
    /// `removed`, or the name of a plug-in.
    #[serde(default, alias = "endingBy", skip_serializing_if = "Option::is_none")]
    pub prior_reason: Option<String>,
    /// When its first container got SIGTERM.
    #[serde(rename = "sigtermMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigterm: Option<Duration>,
    /// When its last container had exited.
    #[serde(rename = "exitMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Duration>,
    /// How the pod terminated.
    #[serde(rename = "outcome", alias = "end")]
    pub end: PodEnd,
    /// Whether it stays on the node and starts again when the node is back.
    #[serde(default, alias = "stays", skip_serializing_if = "std::ops::Not::not")]
    pub stays_on_reboot: bool,
    /// The containers that needed SIGKILL or were still running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// Resources that were not released in time (mount points, devices, the network), for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// A remark on how it was stopped, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// The error, if stopping it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

// === impl GroupReport ===

impl GroupReport {
    /// Counts the spared groups.
    pub(crate) fn spared(groups: &[Self]) -> usize {
        groups.iter().filter(|group| group.is_spared()).count()
    }

    /// Whether it has pods that were to be stopped and are left, and none of them was requested to stop.
    pub fn is_spared(&self) -> bool {
        let is_left = |pod: &PodReport| !pod.end.has_terminated() && pod.end != PodEnd::Survives;
        self.started.is_none() && self.pods.iter().any(is_left)
    }

    /// The priorities of the groups of ordinary pods, in an order by roles.
    pub(crate) fn priorities_of_ordinary_pods(groups: &[Self]) -> Vec<i32> {
        let name = Role::Ordinary.name();
        let is_ordinary =
            |group: &&Self| group.name.as_deref().is_some_and(|group| group.starts_with(name));
        groups.iter().filter(is_ordinary).map(|group| group.priority).collect()
    }

    /// Creates the report of a group that has not started, without its pods.
    pub(crate) fn unstarted(group: &Group) -> Self {
        Self {
            priority: group.priority,
            name: group.name().map(Cow::into_owned),
            configured: group.configured,
            allowed: group.allowed,
            latest_end: group.latest_end,
            started: None,
            ended: None,
            pods: Vec::with_capacity(group.pods.len()),
        }
    }
}

// === impl PodReport ===

impl PodReport {
    /// When it is killed, if it was asked to terminate; `latest_end` is its group's. A grace of zero means one second.
    pub(crate) fn kill_at(&self, latest_end: Duration) -> Option<Duration> {
        let asked = self.asked?;
        Some((asked + self.grace).min(latest_end).max(asked + Grace::SHORTEST))
    }

    /// `namespace/name`, safe to print.
    pub fn full_name(&self) -> String {
        clean(&format!("{}/{}", self.namespace, self.name)).into_owned()
    }

    /// Creates the report of a pod that has not been requested to stop.
    pub(crate) fn spared(pod: &Pod, grace: Duration) -> Self {
        Self {
            namespace: pod.namespace().to_string(),
            name: pod.name().to_string(),
            uid: pod.uid().to_string(),
            priority: pod.spec.as_ref().and_then(|spec| spec.priority),
            grace,
            wanted_grace: pod.termination_grace_period().filter(|own| *own > grace),
            asked: None,
            prior_reason: None,
            sigterm: None,
            exit: None,
            end: PodEnd::Spared,
            stays_on_reboot: false,
            containers: Vec::new(),
            mounts: Vec::new(),
            remark: None,
            error: None,
        }
    }
}
