//! The pods of a scene: one culprit, and innocent pods.

/// A pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod {
    pub(super) name: &'static str,
    pub(super) priority: i32,
    /// The memory request, in MiB.
    pub(super) asks: u64,
    /// The mode of `pressure-pod` and its number; innocent pods have `hold`.
    pub(super) does: (&'static str, u64),
}

/// A culprit next to innocent pods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    /// The title in the table.
    pub(super) title: &'static str,
    pub(super) culprit: Pod,
    pub(super) others: &'static [Pod],
}

pub(super) const SCENES: [Scene; 3] = [
    Scene {
        title: "hog, 150 MiB/s",
        culprit: Pod { name: "hog", priority: 0, asks: 0, does: ("memory", 150) },
        others: &[hold("db", 0, 100, 60), hold("vip", 1000, 0, 90), hold("web", 0, 0, 5)],
    },
    Scene {
        title: "leak, 20 MiB/s, beside a larger pod",
        culprit: Pod { name: "leak", priority: 0, asks: 10, does: ("memory", 20) },
        others: &[hold("large", 0, 400, 380), hold("small", 0, 0, 5)],
    },
    Scene {
        title: "fork bomb, 50 a second",
        culprit: Pod { name: "bomb", priority: 0, asks: 0, does: ("fork", 50) },
        others: &[hold("queue", 0, 100, 60), hold("cache", 1000, 0, 90)],
    },
];

const fn hold(name: &'static str, priority: i32, asks: u64, mib: u64) -> Pod {
    Pod { name, priority, asks, does: ("hold", mib) }
}
