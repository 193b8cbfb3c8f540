//! The pods of a report, group by group.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::Pod;
use winddown_shared::display::clean;

use super::units::{OptionalMillis, OptionalSeconds, Seconds};
use crate::{Group, Role};

/// How a group's end went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GroupReport {
    /// The group's priority.
    pub priority: i32,
    /// What the group is, for people, where the order has names for its groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the policy gives.
    #[serde(rename = "configuredSeconds", with = "Seconds")]
    pub configured: Duration,
    /// What it was guaranteed.
    #[serde(rename = "allowedSeconds", with = "Seconds")]
    pub allowed: Duration,
    /// When its time was over at the latest.
    #[serde(rename = "latestEndSeconds", with = "Seconds")]
    pub latest_end: Duration,
    /// When it was asked to end; absent when it had no pods or was spared.
    #[serde(rename = "startedMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Duration>,
    /// When its pods were gone or its time over.
    #[serde(rename = "endedMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Duration>,
    /// Its pods.
    pub pods: Vec<PodReport>,
}

/// How a pod's end went.
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
    /// The grace it was given; for a spared pod the one it would have got.
    #[serde(rename = "graceSeconds", with = "Seconds")]
    pub grace: Duration,
    /// Its own grace, when that is longer than what it was given.
    #[serde(rename = "wantedGraceSeconds", with = "OptionalSeconds")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_grace: Option<Duration>,
    /// When it was asked to end.
    #[serde(rename = "askedMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Duration>,
    /// Who had asked it to end before the run did: `preemption`, `eviction`, `operator`, `removed`, or the
    /// name of a plug-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending_by: Option<String>,
    /// When its first container got SIGTERM.
    #[serde(rename = "sigtermMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigterm: Option<Duration>,
    /// When its last container was gone.
    #[serde(rename = "exitMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Duration>,
    /// How it ended.
    pub end: PodEnd,
    /// It stays on the node and starts again when that is back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
    /// Containers that needed SIGKILL, or that still ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// What was not released in time: mount points, devices, the network, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// What people should know of how it was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PodEnd {
    /// Its group was not started.
    Spared,
    /// By itself, within its grace.
    Exited,
    /// SIGKILL was needed.
    Killed,
    /// It was asked, and was still ending when the run was called off.
    Ending,
    /// It was not asked: it runs on through the soft-reboot.
    Survives,
    /// It was not seen to end.
    Left,
}

// === impl GroupReport ===

impl GroupReport {
    /// How many of `groups` have pods, of which none was asked.
    pub(crate) fn spared(groups: &[Self]) -> usize {
        groups.iter().filter(|group| group.is_spared()).count()
    }

    /// Whether it has pods that were to be asked, and none of them was.
    fn is_spared(&self) -> bool {
        self.started.is_none() && self.pods.iter().any(|pod| pod.end != PodEnd::Survives)
    }

    /// Whether its pods are together because they are ordinary ones of a priority.
    pub(crate) fn is_of_ordinary_pods(&self) -> bool {
        self.name.as_deref().is_some_and(|name| name.starts_with(Role::Ordinary.name()))
    }

    /// A group that has not started, without its pods.
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

// === impl PodEnd ===

impl PodEnd {
    /// Whether the pod was seen to end.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Exited | Self::Killed)
    }
}

// === impl PodReport ===

impl PodReport {
    /// `namespace/name`, safe to print.
    pub fn full_name(&self) -> String {
        clean(&format!("{}/{}", self.namespace, self.name)).into_owned()
    }

    /// A pod that was not asked to end.
    pub(crate) fn spared(pod: &Pod, grace: Duration) -> Self {
        Self {
            namespace: pod.namespace().to_string(),
            name: pod.name().to_string(),
            uid: pod.uid().to_string(),
            priority: pod.spec.as_ref().and_then(|spec| spec.priority),
            grace,
            wanted_grace: pod.own_grace().filter(|own| *own > grace),
            asked: None,
            ending_by: None,
            sigterm: None,
            exit: None,
            end: PodEnd::Spared,
            stays: false,
            containers: Vec::new(),
            mounts: Vec::new(),
            remark: None,
            error: None,
        }
    }
}
