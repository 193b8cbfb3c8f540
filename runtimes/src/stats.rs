//! What pods use, measured the same way whatever runs them.

mod cgroup;
mod disk;
mod disk_cache;
mod rotated_logs;

pub(crate) use cgroup::CgroupDirs;
pub(crate) use disk_cache::{DiskCache, PodPlaces};
pub(crate) use rotated_logs::remove_rotated_logs;
