//! Resources that the node is already short of.

use std::path::Path;

use winddown_eviction::{Observations, Policy};
use winddown_host::{NodeUsage, UsagePaths};
use winddown_shared::NodeStats;

use super::{ObservedNode, blocking, silent};
use crate::facts::Fact;
use winddown_config::Config;
use winddown_control::api::ThresholdStatus;

/// Measures the node and compares it with the configured thresholds. It does not query a container runtime, so the
/// file system of images is not measured.
pub(super) async fn look(
    place: &ObservedNode,
    config: &Config,
    state: &Path,
) -> Fact<Vec<ThresholdStatus>> {
    if !place.live {
        return Fact::not_live();
    }
    // Before the agent has run, its directory does not exist; it will be on the file system of the nearest ancestor.
    let (below, root) = (state.to_owned(), place.root.clone());
    let nearest = blocking(place.patience, "the state directory", move || {
        Fact::Known(below.ancestors().find(|path| path.exists()).map_or(root, Path::to_owned))
    });
    let nodefs = match nearest.await {
        Fact::Known(nodefs) => nodefs,
        // The disk hangs, which costs the measurement of it alone.
        Fact::Unknown(..) => state.to_owned(),
    };
    let places = UsagePaths {
        proc: place.root.join("proc"),
        cgroup: place.root.join("sys/fs/cgroup"),
        ..UsagePaths::of_host(nodefs)
    };
    let mut usage = NodeUsage::new(&places);
    match tokio::time::timeout(place.patience, usage.read()).await {
        Ok(reading) => Fact::Known(of(&reading.stats, &config.eviction.policy())),
        Err(_) => silent("what is left of memory and disk", place.patience),
    }
}

/// The thresholds that are met. What was not measured does not count.
fn of(stats: &NodeStats, policy: &Policy) -> Vec<ThresholdStatus> {
    let (policy, _) = policy.for_layout(stats.layout.unwrap_or_default());
    let observed = Observations::of(stats, policy.memory_available);
    let met = policy.thresholds().iter().filter_map(|threshold| {
        let found = observed.get(threshold.signal)?;
        let least = threshold.quantity(found.capacity, false);
        (found.available < least.value()).then(|| ThresholdStatus {
            signal: threshold.signal.as_str().to_owned(),
            hard: threshold.is_hard(),
            available: Some(found.available.to_string()),
            threshold: Some(least.to_string()),
            capacity: Some(found.capacity),
            ..ThresholdStatus::default()
        })
    });
    met.collect()
}

#[cfg(test)]
mod tests {
    use winddown_shared::{FsLayout, FsStats};

    use super::*;

    #[test]
    fn a_disk_with_less_than_its_threshold_is_short_and_what_was_not_measured_is_not() {
        let disk = FsStats {
            capacity_bytes: Some(1000),
            available_bytes: Some(90),
            inodes: Some(100),
            inodes_free: Some(100),
            ..FsStats::default()
        };
        let layout = Some(FsLayout::One);
        let stats = {
            let mut stats = NodeStats::default();
            stats.nodefs = Some(disk);
            stats.layout = layout;
            stats
        };
        let policy = Config::default().eviction.policy();
        let short = ThresholdStatus {
            signal: "nodefs.available".to_owned(),
            hard: true,
            available: Some("90".to_owned()),
            threshold: Some("100".to_owned()),
            capacity: Some(1000),
            ..ThresholdStatus::default()
        };
        assert_eq!(of(&stats, &policy), [short]);
        assert_eq!(of(&NodeStats::default(), &policy), []);
    }
}
