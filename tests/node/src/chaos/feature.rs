//! What a schedule switches on beside the pods' order, each with one that abuses it.

use std::fmt;

use super::stage::SECONDS;
use super::{Fault, Phase, Runtime, Schedule};
use crate::Suite;

/// What other programs delay shutdowns on.
pub(super) const INHIBITORS: &str = "/run/winddown/inhibitors.sock";
/// A notice that takes effect long after the schedule is over.
pub(super) const FAR_OFF: &str = "10800s the lease ends\n";

/// Something that is off unless configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// `startGroupTimeout`, and a pod of the first group that is never ready.
    StartInOrder,
    /// `shutdownGuard`, and a pod that holds shutdowns for ever. That of the schedule does not ask.
    Guard,
    /// `rebootInPlace`, and a pod that may stay. The node is rebooted instead of being powered off.
    RebootInPlace,
    /// `shutdownAfterNodes`, and a node that never goes down.
    AfterNodes,
    /// `inhibitorSocket`, and a program that never lets its lock go.
    InhibitorSocket,
    /// `shutdownNotices.file`, with a notice that is hours away.
    FarNotice,
}

// === impl Feature ===

impl Feature {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::StartInOrder,
        Self::Guard,
        Self::RebootInPlace,
        Self::AfterNodes,
        Self::InhibitorSocket,
        Self::FarNotice,
    ];

    /// One schedule in so many that can have it has it.
    pub(super) const fn rarity(self) -> u32 {
        match self {
            Self::StartInOrder | Self::InhibitorSocket | Self::FarNotice => 4,
            Self::Guard => 3,
            Self::RebootInPlace | Self::AfterNodes => 2,
        }
    }

    /// Whether a node of this schedule can have it.
    pub(super) fn fits(self, schedule: &Schedule) -> bool {
        let has = |faults: &[Fault]| faults.iter().any(|fault| schedule.has(*fault));
        // The memory of that node is for what its pods take, and the end of the hog for nothing else.
        schedule.phase != Phase::Eviction
            && match self {
                Self::StartInOrder | Self::InhibitorSocket => true,
                // A later systemd would refuse the shutdown.
                Self::Guard => schedule.suite == Suite::Bookworm,
                // An older one does not say that it is a reboot, and the others make it something else.
                Self::RebootInPlace => {
                    let ways = [Fault::Cancel, Fault::SecondShutdown, Fault::ShutdownPastLogind];
                    schedule.suite == Suite::Trixie && !has(&ways)
                }
                Self::AfterNodes => schedule.runtime == Runtime::Cluster,
                Self::FarNotice => !has(&[Fault::NoticeWithdrawn]),
            }
    }

    /// Whether shutdowns keep time for it that the pods do not have.
    const fn takes_time(self) -> bool {
        matches!(self, Self::AfterNodes | Self::InhibitorSocket)
    }

    /// The time of each group, with these switched on. What is left of it to the pods is [`SECONDS`] at least.
    pub(super) fn seconds(on: &[Self]) -> [u32; 3] {
        match on.iter().any(|feature| feature.takes_time()) {
            true => [8, 5, 5],
            false => SECONDS,
        }
    }

    /// Its lines of the configuration.
    pub(super) fn config(self) -> String {
        match self {
            Self::StartInOrder => "startGroupTimeout: 1s\n".to_owned(),
            Self::Guard => "shutdownGuard: [{namespace: default, timeout: 1h}]\n".to_owned(),
            Self::RebootInPlace => "rebootInPlace: [{namespace: default}]\n".to_owned(),
            Self::AfterNodes => "shutdownAfterNodes: role=worker\nshutdownAfterNodesTimeout: 1s\n\
                                 shutdownAfterNodesPriority: 2000000000\n"
                .to_owned(),
            Self::InhibitorSocket => {
                format!("inhibitorSocket: {INHIBITORS}\ninhibitorPeriod: 1s\n")
            }
            // Where notices are is in every configuration.
            Self::FarNotice => String::new(),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartInOrder => "start in order, one pod never ready",
            Self::Guard => "a pod holds shutdowns",
            Self::RebootInPlace => "a pod stays over the reboot",
            Self::AfterNodes => "after a node that never goes down",
            Self::InhibitorSocket => "a program that keeps its lock",
            Self::FarNotice => "a notice hours away",
        })
    }
}
