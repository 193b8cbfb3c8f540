//! The machine as files: those that others write or read at the same time (how they are opened, replaced and watched,
//! and who may write them), and those of the kernel.
//!
//! * [`regular`]: what another user put in a file's place is neither followed nor waited for.
//! * [`kernel`]: files that nobody can replace.
//! * [`others_may_write`]: who besides root decides what a path leads to; [`others_may_read`]: who may read a secret.
//! * [`Users`]: whose a process is.
//! * [`replace`]: readers and crashes see the old content or the new one, never a part; [`replace_private`]: nobody else
//!   reads it.
//! * [`Watch`]: inotify, as a hint that a check is worthwhile.
//! * [`SharedWatch`]: the same, for any number of readers of files that others write.
//! * [`OneThread`]: blocking work, of which a hung disk delays one thread.
//! * [`mounts`]: what the kernel says is mounted; [`CgroupMemory`] and what follows it: the files of a cgroup.
//! * [`ConnectionLimiter`]: a fair limit on the connections of clients that are not authorized yet.

mod cgroup;
mod connection_limiter;
pub mod kernel;
mod mounts;
mod one_thread;
mod proc_stat;
mod process;
pub mod regular;
mod replace;
mod shared_watch;
mod shell_word;
mod watch;
mod writers;

pub use cgroup::{
    CgroupMemory, CgroupMemoryEvents, MemoryStat, cgroup_cpu_time, cgroup_number, cgroup_of_process,
};
pub use connection_limiter::{ConnectionLimiter, ConnectionSlot};
pub use mounts::{Mount, mounts};
pub use one_thread::OneThread;
pub use proc_stat::ProcStat;
pub use process::Users;
pub use replace::{Durability, replace, replace_private, sync_directory};
pub use shared_watch::{SharedWatch, SharedWatchTask, Subscription};
pub use shell_word::{has_plain_characters, shell_word};
pub use watch::{Change, Hint, Watch, Watched, Watcher};
pub use writers::{
    OthersMayRead, OthersMayWrite, Trusted, Writers, others_may_read, others_may_write,
    others_may_write_besides, refuse_if_others_may_write,
};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
