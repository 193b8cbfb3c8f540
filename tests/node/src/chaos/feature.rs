//! Optional features that a schedule enables, each with a pod or program that abuses it.

use std::fmt;

use super::stage::SECONDS;
use super::{Fault, Phase, Runtime, Schedule};
use crate::Suite;

/// A notice whose deadline is long after the end of the schedule.
pub(super) const FAR_OFF: &str = "10800s the lease ends\n";

/// A feature that is off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// `startGroupTimeout`, and a pod of the first group that is never ready.
    StartInOrder,
    /// `shutdownGuard`, and a pod that blocks shutdowns forever. The schedule's own shutdown ignores it.
    Guard,
    /// `rebootInPlace`, and a pod that may stay. The node is rebooted instead of powered off.
    RebootInPlace,
    /// `shutdownAfterNodes`, and a node that never goes down.
    AfterNodes,
    /// `shutdownNotices.file`, with a notice that is hours away.
    FarNotice,
}

// === impl Feature ===

impl Feature {
    /// All features.
    pub const ALL: [Self; 5] =
        [Self::StartInOrder, Self::Guard, Self::RebootInPlace, Self::AfterNodes, Self::FarNotice];

    /// One out of this many schedules that fit the feature enables it.
    pub(super) const fn rarity(self) -> u32 {
        match self {
            Self::StartInOrder | Self::FarNotice => 4,
            Self::Guard => 3,
            Self::RebootInPlace | Self::AfterNodes => 2,
        }
    }

    /// Whether the feature can be enabled in this schedule.
    pub(super) fn fits(self, schedule: &Schedule) -> bool {
        let has = |faults: &[Fault]| faults.iter().any(|fault| schedule.has(*fault));
        // In this phase, memory is only for the pods, and only the hog may be evicted.
        schedule.phase != Phase::Eviction
            // Beside a kubelet the agent starts nothing, and the pods of the others would be the kubelet's.
            && (schedule.runtime != Runtime::Companion || self == Self::FarNotice)
            && match self {
                Self::StartInOrder => true,
                // A later systemd would refuse the shutdown.
                Self::Guard => schedule.suite == Suite::Bookworm,
                // An older systemd does not report that it is a reboot, and these faults change the kind of shutdown.
                Self::RebootInPlace => {
                    let ways = [Fault::Cancel, Fault::SecondShutdown, Fault::ShutdownPastLogind];
                    schedule.suite == Suite::Trixie && !has(&ways)
                }
                Self::AfterNodes => schedule.runtime == Runtime::Cluster,
                Self::FarNotice => !has(&[Fault::NoticeWithdrawn]),
            }
    }

    /// Whether shutdowns reserve time for the feature, which the pods do not get.
    const fn takes_time(self) -> bool {
        matches!(self, Self::AfterNodes)
    }

    /// The time of each group with these features, which leaves the pods at least [`SECONDS`].
    pub(super) fn seconds(on: &[Self]) -> [u32; 3] {
        match on.iter().any(|feature| feature.takes_time()) {
            true => [8, 5, 5],
            false => SECONDS,
        }
    }

    /// The lines that the feature adds to the configuration.
    pub(super) fn config(self) -> String {
        match self {
            Self::StartInOrder => "startGroupTimeout: 1s\n".to_owned(),
            Self::Guard => "shutdownGuard: [{namespace: default, timeout: 1h}]\n".to_owned(),
            Self::RebootInPlace => "rebootInPlace: [{namespace: default}]\n".to_owned(),
            Self::AfterNodes => "shutdownAfterNodes: role=worker\nshutdownAfterNodesTimeout: 1s\n\
                                 shutdownAfterNodesPriority: 2000000000\n"
                .to_owned(),
            // Every configuration has the file for notices.
            Self::FarNotice => String::new(),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartInOrder => "start in order, one pod never ready",
            Self::Guard => "a pod blocks shutdowns",
            Self::RebootInPlace => "a pod stays over the reboot",
            Self::AfterNodes => "after a node that never goes down",
            Self::FarNotice => "a notice hours away",
        })
    }
}
