//! When pods end because the node runs short of something.

use super::{Field, Kind, Names, Section};

const SIGNALS: Names = Names::Words(&[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
    "allocatableMemory.available",
]);
const THRESHOLDS: Kind = Kind::Map { names: SIGNALS, value: &Kind::Threshold };
const GRACES: Kind =
    Kind::Map { names: SIGNALS, value: &Kind::Duration { least: "", most: "", zero: false } };

const PRESSURE: &[Field] = &[
    Field::new(
        "scope",
        Kind::Choice(&["node", "pods"]),
        "Whose tasks wait: those of the whole `node`, or of the `pods` alone.",
    )
    .example("node"),
    Field::new(
        "some",
        Kind::Percent,
        "The share of the last 10 s in which at least one task waited.",
    )
    .example("40%"),
    Field::new("full", Kind::Percent, "The share of the last 10 s in which all tasks waited.")
        .example("10%"),
    Field::new("below", Kind::Threshold, "Less memory than this is available.").example("10%"),
    Field::new(
        "coolDown",
        Kind::Duration { least: "0s", most: "", zero: true },
        "For how long nobody else is ended after it.",
    )
    .example("10s"),
];

pub(super) const SECTION: Section = Section {
    title: "Eviction",
    fields: &[
        Field::new(
            "evictionHard",
            THRESHOLDS,
            "When less than this is left, pods are ended at once to get it back. A quantity (100Mi) or a \
             part of the capacity (10%); 0% switches a signal off. Naming any signal replaces the whole \
             map, unless `mergeDefaultEvictionSettings` is true.",
        )
        .live(),
        Field::new(
            "mergeDefaultEvictionSettings",
            Kind::Flag,
            "Signals that `evictionHard` does not name keep their default.",
        )
        .written("false")
        .live(),
        Field::new(
            "evictionSoft",
            THRESHOLDS,
            "The same, but only when it lasts longer than its grace period. Has to be more than the hard \
             one.",
        )
        .example("memory.available: 300Mi")
        .live(),
        Field::new(
            "evictionSoftGracePeriod",
            GRACES,
            "How long each soft threshold has to be met before a pod ends for it.",
        )
        .example("memory.available: 1m30s")
        .live(),
        Field::new(
            "evictionMinimumReclaim",
            THRESHOLDS,
            "How much to get back beyond the threshold, so that the next one is not due at once.",
        )
        .example("nodefs.available: 500Mi")
        .live(),
        Field::new(
            "evictionPressureTransitionPeriod",
            Kind::Duration { least: "1s", most: "", zero: true },
            "How long the node says that it is under pressure after it no longer is.",
        )
        .live(),
        Field::new(
            "evictionMaxPodGracePeriod",
            Kind::Integer { least: 0, most: i32::MAX as i64, unit: "seconds" },
            "The most grace a pod gets when a soft threshold ends it; 0 takes the pod's own.",
        )
        .live(),
        Field::new(
            "memoryAvailable",
            Kind::Choice(&["memAvailable", "workingSet"]),
            "Which memory is available: `memAvailable` counts what the kernel can give back without \
             swapping, file cache included; `workingSet` counts file cache that was used lately as used, \
             as the kubelet does.",
        )
        .live(),
        Field::new(
            "memoryPressure",
            Kind::Object(PRESSURE),
            "End a pod as soon as tasks lose time waiting for memory, before any threshold is met. All of \
             it has to hold: the share of the last 10 s in which some or all tasks waited, that it does \
             not fall, and that less memory than `below` is available. Then nobody else is ended for \
             `coolDown`. Off unless it is here.",
        )
        .live(),
        Field::new(
            "evictStaticPods",
            Kind::Choice(&["byPriority", "spared"]),
            "Static pods are critical to the kubelet, and never ended (`spared`). Here those whose \
             manifest has a priority, below 2000000000, are like other pods (`byPriority`), and come back \
             when the pressure is over.",
        )
        .live(),
        Field::new(
            "evictionShadow",
            Kind::Flag,
            "Decide and record only: nobody is ended, nothing is given back, no condition is reported.",
        )
        .live(),
        Field::new(
            "imageMinimumGCAge",
            Kind::Duration { least: "", most: "", zero: true },
            "How long an image that nothing uses is kept when the disk runs short: the pod that it was \
             pulled for may not have started yet.",
        )
        .live(),
        Field::new(
            "localStorageCapacityIsolation",
            Kind::Flag,
            "End pods that have more on the disks than their own limits allow.",
        )
        .live(),
        Field::new(
            "enforceNodeAllocatable",
            Kind::Words(&["pods", "system-reserved", "kube-reserved", "none"]),
            "With `pods` in it, hard thresholds on memory.available hold for the pods' cgroup as well. \
             The kubelet's other words have no effect.",
        )
        .live(),
    ],
};
