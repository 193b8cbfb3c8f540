#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! What is true of this machine, read in one place each: its files, mounts, processes and cgroups, what it has, and
//! how much of it pods may use.
//!
//! Files that others write or read at the same time (how they are opened, replaced and watched, and who may write
//! them):
//!
//! * [`regular`]: what another user put in a file's place is neither followed nor waited for.
//! * [`kernel`]: files that nobody can replace.
//! * [`others_may_write`]: who besides root decides what a path leads to; [`others_may_read`]: who may read a secret.
//! * [`replace()`]: readers and crashes see the old content or the new one, never a part; [`replace_private`]: nobody
//!   else reads it. [`removal`]: a directory that others write to is removed, and nothing outside it, nor what is mounted
//!   in it ([`FilePlace`]). [`FileStamp`] tells whether a file has changed.
//! * [`Watch`]: inotify, as a hint that a check is worthwhile. [`SharedWatch`]: the same, for any number of readers of
//!   files that others write.
//! * [`OneThread`]: blocking work, of which a hung disk delays one thread. [`HostNames`]: the same of name servers.
//! * [`PodStreams`]: streams into pods.
//! * [`pod_logs`]: the names of pods' logs, and their rotation.
//!
//! The kernel:
//!
//! * [`Users`]: whose a process is; [`outsider()`]: whether to believe it; [`UnitPlaces`]: of which unit.
//!   [`Ready`](ready::Ready): waits for a process or a pipe.
//! * [`mounts`]: what the kernel says is mounted; [`mount_table`]: what is mounted below a directory, and its end.
//! * [`CgroupMemory`] and what follows it: the files of a cgroup. [`meminfo`]: those of the whole machine.
//! * [`ConnectionLimiter`]: a fair limit on the connections of clients that are not authorized yet. [`Throttle`]: how often
//!   they can make the agent compute.
//! * [`machine`]: the machine's name, clocks and boot; [`host_addresses`]; [`beat`]: when to look at all that again.
//!
//! The node:
//!
//! * [`Capacity`]: CPUs, memory, huge pages, disk and process ids, as the kernel reports them.
//! * [`AllocatableConfig`]: what is reserved; [`AllocatableConfig::allocatable`] is the rest, for pods.
//! * [`LocalNode`]: the node as admission sees it when there is no Node object.
//! * [`NodeUsage`]: what is in use now.
//! * [`PsiWatch`]: reports immediately when tasks stall because memory is short.
//!
//! Every path of the node is relative to [`Roots`] or [`UsagePaths`], so that tests can use trees of their own.

mod addresses;
mod allocatable;
pub mod beat;
mod capacity;
mod cgroup;
mod connection_limiter;
mod file;
mod file_place;
mod file_stamp;
mod free_space;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod host_names;
mod if_exists;
mod inotify;
pub mod kernel;
mod local_node;
#[cfg(feature = "machine")]
pub mod machine;
pub mod meminfo;
pub mod mount_table;
mod mounts;
mod one_thread;
mod outsider;
mod pod_files;
pub mod pod_logs;
mod proc_stat;
mod process;
mod psi;
pub mod ready;
pub mod regular;
pub mod removal;
mod replace;
pub mod service_units;
mod shared_watch;
mod shell_word;
mod streams;
mod threshold_value;
mod throttle;
mod tmpfs;
mod unit_places;
mod usage;
mod watch;
mod writers;

pub use addresses::{host_addresses, is_host_address};
pub use allocatable::AllocatableConfig;
pub use capacity::{Capacity, huge_page_sizes};
pub use cgroup::{
    CgroupMemory, CgroupMemoryEvents, MemoryStat, cgroup_cpu_time, cgroup_named, cgroup_number,
    cgroup_of_process,
};
pub use connection_limiter::{ConnectionLimiter, ConnectionSlot};
pub use file::{ReadError, Roots};
pub use file_place::FilePlace;
pub use file_stamp::FileStamp;
pub use free_space::FreeSpace;
pub use host_names::{HostNames, addresses_of_host};
pub use if_exists::if_exists;
pub use local_node::LocalNode;
pub use mounts::{Mount, mounts};
pub use one_thread::{OneThread, WorkLost};
pub use outsider::{Outsider, holds_containers, is_in_other_namespace, outsider};
pub use pod_files::PodFiles;
pub use proc_stat::ProcStat;
pub use process::{Users, cgroups_of, ignored_signals, is_setuid};
pub use psi::{Armed, PsiPlace, PsiTrigger, PsiWatch, Unarmed};
pub use replace::{Durability, remove_drafts, replace, replace_private, sync_directory};
pub use shared_watch::{SharedWatch, SharedWatchTask, Subscription};
pub use shell_word::{has_plain_characters, path_word, shell_word};
pub use streams::{CommandStream, PodStream, PodStreams, Stdio, StreamRequest, StreamServer};
pub use threshold_value::ThresholdValue;
pub use throttle::Throttle;
pub use tmpfs::is_on_tmpfs;
pub use unit_places::{UnitPlace, UnitPlaces};
pub use usage::{NodeUsage, Reading, UsagePaths};
pub use watch::{Change, Hint, Watch, Watched, Watcher};
pub use writers::{
    OthersMayRead, OthersMayWrite, Trusted, Writers, in_root, link_in_root, others_may_read,
    others_may_write, others_may_write_besides, others_may_write_file, refuse_if_others_may_write,
};

/// Reports that a test was skipped. Fails if `WINDDOWN_NO_SKIP` is set.
#[cfg(test)]
fn skip(test: &str, why: &str) {
    println!("SKIPPED: {test}: {why}");
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} was skipped: {why}");
}
