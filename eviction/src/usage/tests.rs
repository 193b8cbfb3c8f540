use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, SecretVolumeSource, Volume,
};
use serde_json::json;
use winddown_shared::VolumeStats;

use super::*;
use crate::tests::{changed, disk};

/// A pod with 1000 in its rootfs, 200 in logs, and 30 in volumes that count; each with one inode per byte.
fn pod_on_disk() -> (Pod, PodStats) {
    let volume = |name: &str| Volume { name: name.to_owned(), ..Volume::default() };
    let memory = Some("Memory".to_owned());
    let volumes = vec![
        Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..volume("dir") },
        Volume {
            empty_dir: Some(EmptyDirVolumeSource {
                medium: memory,
                ..EmptyDirVolumeSource::default()
            }),
            ..volume("tmpfs")
        },
        Volume { host_path: Some(HostPathVolumeSource::default()), ..volume("host") },
        Volume { config_map: Some(ConfigMapVolumeSource::default()), ..volume("config") },
        Volume { secret: Some(SecretVolumeSource::default()), ..volume("secret") },
    ];
    let pod = changed("p", 0, &[], |object| object.spec.as_mut().unwrap().volumes = Some(volumes));
    let mut stats = disk("1000", "200");
    let both = |amount| DiskUse { bytes: amount, inodes: amount, is_partial: false };
    stats.containers[0].rootfs = Some(both(1000));
    stats.containers[0].logs = Some(both(200));
    stats.volumes = [("tmpfs", 99), ("dir", 10), ("host", 10), ("config", 10), ("secret", 10)]
        .map(|(name, used)| VolumeStats { name: name.into(), used: both(used) })
        .into();
    (pod, stats)
}

#[test]
fn a_pod_of_which_no_part_is_known_that_counts_was_not_measured() {
    let (pod, all) = pod_on_disk();
    let mut no_layers = all.clone();
    no_layers.containers[0].rootfs = None;
    let mut only_logs = no_layers.clone();
    only_logs.volumes.clear();
    let mut failed = no_layers.clone();
    failed.has_unknown_layers = true;
    let nothing = {
        let mut stats = PodStats::default();
        stats.containers = vec![Default::default()];
        stats
    };
    let of = |signal, stats: &PodStats, layout| {
        measured(signal, &pod, stats, &Policy::new(Vec::new(), false).for_layout(layout).0)
    };
    let (node, image) = (Signal::NodeFsAvailable, Signal::ImageFsAvailable);
    assert_eq!(of(image, &all, FsLayout::ImageFs), Some(1000));
    assert_eq!(of(image, &no_layers, FsLayout::ImageFs), None);
    assert_eq!(of(node, &no_layers, FsLayout::ImageFs), Some(230));
    assert_eq!(of(node, &only_logs, FsLayout::One), Some(200));
    assert_eq!(of(node, &failed, FsLayout::One), None, "its layers may be what fills the disk");
    assert_eq!(of(node, &failed, FsLayout::ImageFs), Some(230), "they are elsewhere");
    assert_eq!(of(node, &nothing, FsLayout::One), None);
    assert_eq!(of(image, &nothing, FsLayout::Split), Some(0), "nobody knows, nor ever will");
    assert_eq!(of(Signal::MemoryAvailable, &all, FsLayout::One), None);
    assert_eq!(of(Signal::PidAvailable, &all, FsLayout::One), None);
}

#[test]
fn what_counts_is_what_is_on_the_file_system_that_is_short() {
    use Signal::{
        ContainerFsAvailable, ContainerFsInodesFree, ImageFsAvailable, ImageFsInodesFree,
        NodeFsAvailable, NodeFsInodesFree,
    };
    let (pod, stats) = pod_on_disk();
    let cases = [
        (FsLayout::One, [1230, 1230, 1230]),
        (FsLayout::ImageFs, [230, 1000, 1000]),
        (FsLayout::Split, [1230, 0, 1230]),
    ];
    for (layout, expected) in cases {
        let of = |signals: [Signal; 3]| signals.map(|signal| usage(signal, &pod, &stats, layout));
        assert_eq!(of([NodeFsAvailable, ImageFsAvailable, ContainerFsAvailable]), expected);
        assert_eq!(of([NodeFsInodesFree, ImageFsInodesFree, ContainerFsInodesFree]), expected);
    }
}

#[test]
fn a_pod_leaves_behind_what_goes_with_it_and_files_are_counted_apart_from_bytes() {
    let (pod, mut stats) = pod_on_disk();
    stats.containers[0].rootfs = Some(DiskUse { bytes: 1000, inodes: 7, is_partial: false });
    let left = |layout, signal: Signal| left_behind(&pod, &stats, layout)[signal.index()];
    for (layout, node, image) in
        [(FsLayout::One, (1210, 217), (1210, 217)), (FsLayout::ImageFs, (210, 210), (1000, 7))]
    {
        let of = |bytes, inodes| (left(layout, bytes), left(layout, inodes));
        assert_eq!(of(Signal::NodeFsAvailable, Signal::NodeFsInodesFree), node, "{layout:?}");
        assert_eq!(of(Signal::ImageFsAvailable, Signal::ImageFsInodesFree), image, "{layout:?}");
        assert_eq!(left(layout, Signal::MemoryAvailable), 0, "its memory is not on a disk");
    }
}

#[test]
fn the_files_of_a_stopped_pod_are_waited_for_on_a_disk_and_in_memory() {
    let with = |volume: serde_json::Value| {
        changed("p", 0, &[], |object| {
            object.spec.as_mut().unwrap().volumes = serde_json::from_value(volume).unwrap();
        })
    };
    let (disk, memory) = (PressureCondition::Disk, PressureCondition::Memory);
    for (volumes, expected) in [
        (json!([]), &[disk][..]),
        (json!([{"name": "v", "emptyDir": {}}]), &[disk]),
        (json!([{"name": "v", "emptyDir": {"medium": "Memory"}}]), &[memory, disk]),
    ] {
        let pod = with(volumes);
        for condition in PressureCondition::ALL {
            let waits = is_freed_by_file_removal(condition, &pod);
            assert_eq!(waits, expected.contains(&condition), "{condition:?}");
        }
    }
}

#[test]
fn what_a_pod_has_in_swap_counts_as_used_only_where_pods_are_swapped_out() {
    let pod = crate::tests::pod("swapped", 0, &[]);
    let stats = {
        let mut stats = PodStats::default();
        stats.memory_working_set = Some(100);
        stats.swap = Some(50);
        stats
    };
    let with = |counts_swap| {
        let mut policy = Policy::new(Vec::new(), false);
        policy.counts_swap = counts_swap;
        [Signal::MemoryAvailable, Signal::AllocatableMemoryAvailable, Signal::PidAvailable]
            .map(|signal| measured(signal, &pod, &stats, &policy))
    };
    assert_eq!(with(false), [Some(100), Some(100), None]);
    assert_eq!(with(true), [Some(150), Some(150), None]);
}
