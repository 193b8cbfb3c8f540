//! What pods use, measured the same way whatever runs them.

mod cgroup;
mod disk;
mod disk_cache;
mod memory;
mod rotated_logs;

pub use cgroup::CgroupDirs;
pub use disk_cache::{DiskCache, PodPlaces};
pub use memory::reclaim_memory;
pub use rotated_logs::remove_rotated_logs;
