//! A table of clocks and grace periods.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use winddown_shared::WallTime;

use super::DeletionGrace;

fn pod(deleted_until: Option<i64>, granted: Option<i64>, own: Option<i64>) -> api::Pod {
    let time = |second| Time(WallTime::from_second(second).unwrap());
    api::Pod {
        metadata: ObjectMeta {
            deletion_timestamp: deleted_until.map(time),
            deletion_grace_period_seconds: granted,
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            termination_grace_period_seconds: own,
            ..api::PodSpec::default()
        }),
        status: None,
    }
}

#[test]
fn the_grace_of_a_pod_whose_object_is_gone() {
    let rows = [
        ("by force", pod(Some(1000), Some(0), Some(60)), 0),
        ("while it was being deleted", pod(Some(1012), Some(30), Some(60)), 30),
        ("out of nothing", pod(None, None, Some(60)), 60),
        ("with no grace of its own", pod(None, None, None), 30),
    ];
    for (what, pod, grace) in rows {
        let got = DeletionGrace::after_removal(&pod);
        assert_eq!(got, Duration::from_secs(grace), "{what}");
    }
}
