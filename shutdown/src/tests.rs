//! Pods for this crate's tests.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{Event, KillReason, Pod};

use crate::GroupPeriod;

/// A pod in `default` whose UID is its name.
pub(crate) fn pod(name: &str, priority: Option<i32>, grace: Option<i64>) -> Pod {
    let object = api::Pod {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            uid: Some(name.into()),
            ..Default::default()
        },
        spec: Some(api::PodSpec {
            priority,
            termination_grace_period_seconds: grace,
            ..Default::default()
        }),
        ..Default::default()
    };
    Pod::new(object).unwrap()
}

/// Adds a role label and a mounted volume to `pod`.
pub(crate) fn with_role(pod: &Pod, role: &str) -> Pod {
    let mut object = pod.object().clone();
    object.metadata.labels = Some([(crate::ROLE_LABEL.to_owned(), role.to_owned())].into());
    let claim = api::PersistentVolumeClaimVolumeSource::default();
    let volume = api::Volume { persistent_volume_claim: Some(claim), ..Default::default() };
    object.spec.get_or_insert_default().volumes = Some(vec![volume]);
    Pod::new(object).unwrap()
}

/// A duration of this many seconds.
pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// An entry of the list form.
pub(crate) fn period(priority: i32, seconds: i64) -> GroupPeriod {
    GroupPeriod { priority, shutdown_grace_period_seconds: seconds }
}

/// The event of a group of a shutdown that begins.
pub(crate) fn group_started(priority: i32, pods: usize, allowed: Duration) -> Event {
    Event::GroupStarted { reason: KillReason::Shutdown, priority, name: None, pods, allowed }
}

/// The event of a group of a shutdown whose time is over or whose pods have terminated.
pub(crate) fn group_finished(priority: i32, took: Duration, left: usize) -> Event {
    Event::GroupFinished { reason: KillReason::Shutdown, priority, name: None, took, left }
}
