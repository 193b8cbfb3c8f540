//! The resource usage of pods, measured the same way for all runtimes.

mod cgroup;
mod disk;
mod disk_cache;
mod figures;
mod memory;
mod rotated_logs;

pub use cgroup::CgroupDirs;
pub use disk_cache::{DiskCache, PodDirs};
pub use figures::Figures;
pub use memory::reclaim_memory;
pub use rotated_logs::remove_rotated_logs;
