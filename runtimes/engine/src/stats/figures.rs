//! What the kernel counts for a container or a pod: one row for each figure, for all runtimes.

use std::sync::Arc;
use std::time::Duration;

use winddown_host::CgroupMemory;
use winddown_shared::{ContainerStats, PodStats};

use super::CgroupDirs;

/// A cgroup whose memory has been read, which takes the kernel the longest.
struct Measured<'a> {
    dirs: &'a CgroupDirs,
    memory: Option<CgroupMemory>,
    /// The same, if the kernel can be asked to reclaim it.
    reclaimable: Option<CgroupMemory>,
}

/// Defines the figures from their rows: the field of [`PodStats`], its type, and how it is read from a cgroup.
macro_rules! figures {
    ($($(#[doc = $doc:literal])+ $figure:ident: $type:ty = $read:expr;)+) => {
        /// What the kernel counts for a container or a pod. A figure that could not be read is absent.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Figures {
            $($(#[doc = $doc])+ pub $figure: Option<$type>,)+
        }

        impl Figures {
            /// Reads the cgroup. Blocks for as long as the kernel takes to add up.
            pub fn of(dirs: &CgroupDirs) -> Self {
                let memory = dirs.memory();
                let reclaimable = memory.filter(|_| dirs.can_reclaim());
                let measured = Measured { dirs, memory, reclaimable };
                $(let $figure: fn(&Measured<'_>) -> Option<$type> = $read;)+
                Self { $($figure: $figure(&measured)),+ }
            }

            /// Takes from `other` what is absent.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self { $($figure: self.$figure.or(other.$figure)),+ }
            }

            /// The sum of all; without a figure that one of them lacks, and of none without any.
            #[must_use]
            pub fn sum(all: impl IntoIterator<Item = Self>) -> Self {
                let sum = all.into_iter().reduce(|sum, one| Self {
                    $($figure: sum.$figure.zip(one.$figure).map(|(a, b)| a.saturating_add(b))),+
                });
                sum.unwrap_or_default()
            }

            /// Enters these figures as those of a pod.
            pub fn enter(self, stats: &mut PodStats) {
                $(stats.$figure = self.$figure;)+
            }
        }
    };
}

figures! {
    /// The working set, in bytes.
    memory_working_set: u64 = |of| Some(of.memory?.working_set());
    /// File cache in the working set, in bytes, which was used recently; only where it can be reclaimed.
    active_file: u64 = |of| Some(of.reclaimable?.active_file);
    /// Memory that can be swapped out within the cgroup's own limit, in bytes; only where it can be reclaimed.
    swappable: u64 = |of| Some(of.dirs.swappable(&of.reclaimable?));
    /// Usage of swap, in bytes.
    swap: u64 = |of| of.dirs.of_memory("memory.swap.current");
    /// Memory used by compressed pages, in bytes.
    zswap: u64 = |of| of.dirs.of_memory("memory.zswap.current");
    /// The number of tasks (threads).
    tasks: u64 = |of| of.dirs.tasks();
    /// CPU time used so far.
    cpu_time: Duration = |of| of.dirs.cpu_time();
}

impl Figures {
    /// These figures as those of a container.
    pub fn of_container(self, name: Arc<str>) -> ContainerStats {
        let Self { memory_working_set, cpu_time, .. } = self;
        ContainerStats { name, memory_working_set, cpu_time, ..ContainerStats::default() }
    }
}
