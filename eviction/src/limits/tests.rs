use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use winddown_shared::VolumeStats;

use super::*;
use crate::tests::{bytes as number, changed, container, disk};

fn with_volume(medium: Option<&str>, limit: &str) -> Pod {
    changed("p", 0, &[], |object| {
        object.spec.as_mut().unwrap().volumes = Some(vec![Volume {
            name: "scratch".to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                medium: medium.map(str::to_owned),
                size_limit: Some(ApiQuantity(limit.to_owned())),
                ..EmptyDirVolumeSource::default()
            }),
            ..Volume::default()
        }]);
    })
}

fn with_limits(limits: &[Option<&str>]) -> Pod {
    changed("p", 0, &[], |object| {
        let containers = limits.iter().enumerate().map(|(place, limit)| {
            let limit: Vec<_> = limit.iter().map(|limit| ("ephemeral-storage", *limit)).collect();
            container(if place == 0 { "main" } else { "other" }, &[], &limit)
        });
        object.spec.as_mut().unwrap().containers = containers.collect();
    })
}

fn volume(size: &str) -> PodStats {
    let used = DiskUse { bytes: number(size), inodes: 1, is_partial: false };
    let volumes = vec![VolumeStats { name: "scratch".into(), used }];
    {
        let mut stats = PodStats::default();
        stats.volumes = volumes;
        stats
    }
}

fn cause(pod: &Pod, stats: &PodStats) -> Option<Cause> {
    over_limit(pod, stats, FsLayout::One).map(|over| over.cause)
}

#[test]
fn storage_limit_evictions_of_a_writable_layer_of_logs_and_of_an_empty_dir() {
    let limited = with_limits(&[Some("1Gi")]);
    assert_eq!(cause(&limited, &disk("2Gi", "0")), Some(Cause::PodLimit));
    assert_eq!(cause(&limited, &disk("0", "2Gi")), Some(Cause::PodLimit));
    assert_eq!(cause(&limited, &disk("512Mi", "512Mi")), None);
    for medium in [None, Some("Memory")] {
        let pod = with_volume(medium, "1Gi");
        let over = over_limit(&pod, &volume("2Gi"), FsLayout::One).unwrap();
        assert_eq!(over.cause, Cause::EmptyDirLimit);
        assert_eq!(
            over.message,
            "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Gi\". "
        );
        assert_eq!(cause(&pod, &volume("1Gi")), None);
    }
}

#[test]
fn without_a_sum_of_the_pod_its_own_volumes_count_and_no_others() {
    let mut object = k8s_openapi::api::core::v1::Pod::clone(&with_limits(&[Some("1Gi")]));
    let volumes = with_volume(None, "9Gi").spec.as_ref().unwrap().volumes.clone();
    object.spec.as_mut().unwrap().volumes = volumes;
    let pod = Pod::new(object).unwrap();
    for (name, wanted) in [("scratch", Some(Cause::PodLimit)), ("claim", None)] {
        let mut stats = disk("0", "0");
        stats.ephemeral = None;
        let used = DiskUse { bytes: number("2Gi"), inodes: 1, is_partial: false };
        stats.volumes = vec![VolumeStats { name: name.into(), used }];
        assert_eq!(cause(&pod, &stats), wanted, "{name}");
    }
}

#[test]
fn a_container_counts_alone_where_the_pod_is_within_its_limit() {
    let pod = with_limits(&[Some("1Gi"), Some("9Gi")]);
    let over = over_limit(&pod, &disk("2Gi", "0"), FsLayout::One).unwrap();
    assert_eq!(over.cause, Cause::ContainerLimit);
    assert_eq!(over.message, "Container main exceeded its local ephemeral storage limit \"1Gi\". ");
    // With this layout, its writable layer is on another file system.
    assert_eq!(over_limit(&pod, &disk("2Gi", "0"), FsLayout::ImageFs), None);
}

#[test]
fn one_containers_limit_is_the_pods_and_the_sum_is_written_as_its_first_part() {
    let pod = with_limits(&[Some("1G"), None]);
    let mut stats = disk("0", "0");
    stats.ephemeral = Some(DiskUse { bytes: number("2Gi"), ..DiskUse::default() });
    assert_eq!(
        over_limit(&pod, &stats, FsLayout::One).unwrap().message,
        "Pod ephemeral local storage usage exceeds the total limit of containers 1G. "
    );
}

#[test]
fn a_pod_without_limits_is_not_measured() {
    assert!(!has_local_limits(&changed("p", 0, &[("ephemeral-storage", "1Gi")], |_| {})));
    assert!(!has_local_limits(&with_volume(None, "0")));
    assert!(has_local_limits(&with_volume(None, "1Gi")));
    assert!(has_local_limits(&with_limits(&[None, Some("1")])));
    assert!(has_local_limits(&with_limits(&[Some("0")])));
}

#[test]
fn a_pod_that_is_allowed_nothing_is_over_its_limit_with_the_first_byte() {
    let pod = with_limits(&[Some("0")]);
    let mut stats = disk("0", "0");
    assert_eq!(over_limit(&pod, &stats, FsLayout::One), None);
    stats.ephemeral = Some(DiskUse { bytes: 1, ..DiskUse::default() });
    let over = over_limit(&pod, &stats, FsLayout::One).unwrap();
    assert_eq!(over.cause, Cause::PodLimit);
}
