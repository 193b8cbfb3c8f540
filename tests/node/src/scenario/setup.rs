//! The setup of a test's node.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::{Need, Suite, TestPod};

/// The priorities of the pods' three groups, in the order in which they are stopped.
pub const GROUPS: [i32; 3] = [0, 1000, 2_000_000_000];

/// The group of a pod: the last one whose priority it reaches, or else the first.
pub(crate) fn group_of(pod: &TestPod) -> usize {
    GROUPS.iter().rposition(|priority| pod.priority >= *priority).unwrap_or(0)
}

/// A test's node, and the configuration of its agent.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The oldest suitable release of Debian.
    pub suite: Suite,
    /// What the node must have.
    pub needs: &'static [Need],
    /// The time of each of [`GROUPS`], in seconds.
    pub seconds: [u32; 3],
    /// The size in bytes of a disk of its own for the agent's state; none for a folder on the node's disk.
    pub disk: Option<u64>,
    /// A folder of the host that the node shares with others; see [`Node::share`](crate::Node::share).
    pub shared: Option<PathBuf>,
    /// Further lines of the configuration file, each with a line break.
    pub more: String,
    /// The .deb that is installed; none for what `winddown install` of the programs under test writes.
    pub package: Option<PathBuf>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            suite: Suite::default(),
            needs: &[],
            seconds: [6, 4, 4],
            disk: None,
            shared: None,
            more: String::new(),
            package: None,
        }
    }
}

impl Setup {
    /// The text of the configuration file.
    pub(crate) fn config(&self, runtime: &str) -> String {
        // The disk is the host's, and may be full.
        let eviction = match self.more.contains("evictionHard") {
            true => "",
            false => "evictionHard: {memory.available: 100Mi}\n",
        };
        let mut text = format!(
            "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: {runtime}\n{}{eviction}\
             shutdownGracePeriodByPodPriority:\n",
            self.more
        );
        for (priority, seconds) in GROUPS.iter().zip(self.seconds) {
            // Writing to a text cannot fail.
            let _ =
                writeln!(text, "- priority: {priority}\n  shutdownGracePeriodSeconds: {seconds}");
        }
        text
    }
}

/// Ten ordinary pods, six with a higher priority, and four critical ones. The slowest pod of each group determines how
/// long the group takes: 1.2 s, 0.5 s, 0.4 s.
pub fn twenty_pods() -> Vec<TestPod> {
    let ordinary = (0..10).map(|n| TestPod::new(format!("web-{n}"), 0, 300 + 100 * n));
    let queues = (0..6).map(|n| TestPod::new(format!("queue-{n}"), 1000, 500));
    let critical = (0..4).map(|n| TestPod::new(format!("agent-{n}"), 2_000_000_000, 400));
    ordinary.chain(queues).chain(critical).collect()
}

/// A smaller set, for tests that need many nodes: four, two and one pods, 0.4 s, 0.3 s, 0.2 s.
pub fn seven_pods() -> Vec<TestPod> {
    let ordinary = (0..4).map(|n| TestPod::new(format!("web-{n}"), 0, 100 + 100 * n));
    let queues = (0..2).map(|n| TestPod::new(format!("queue-{n}"), 1000, 300));
    let critical = [TestPod::new("agent-0", 2_000_000_000, 200)];
    ordinary.chain(queues).chain(critical).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_below_all_groups_ends_with_the_first() {
        let group = |priority| group_of(&TestPod::new("pod", priority, 0));
        assert_eq!([-5, 0, 999, 1000, 2_000_001_000].map(group), [0, 0, 0, 1, 2]);
    }
}
