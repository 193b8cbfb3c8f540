//! The capacity of the machine.

use std::collections::BTreeMap;
use std::path::Path;

use crate::file::{self, ReadError, Roots};
use crate::meminfo::MemInfo;

mod cpu;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod huge_pages;
#[cfg(test)]
mod tests;

pub use huge_pages::huge_page_sizes;

/// The machine's capacity, used or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Thousandths of a CPU: 1000 for each that is online. Limits of a cgroup around the agent are ignored, because its
    /// pods are not in it.
    pub cpu_milli: i64,
    /// Bytes of memory that the kernel manages.
    pub memory: i64,
    /// Bytes reserved for huge pages, by the size of one page in bytes. Sizes that the kernel supports but has no pages
    /// of are included with 0.
    pub huge_pages: BTreeMap<i64, i64>,
    /// The size in bytes of the file system that pods write to, used or not.
    pub ephemeral_storage: i64,
    /// The maximum number of threads; none if the kernel does not report it.
    pub pids: Option<i64>,
}

impl Capacity {
    /// Reads the machine's capacity from a handful of small files, in well under a millisecond; blocks for as long as
    /// the file system of [`Roots::storage`] takes to report its size.
    ///
    /// # Errors
    /// The CPUs, the memory or the storage cannot be read. A kernel without huge pages has an empty map, and one that
    /// does not report its limit of threads has `None`.
    pub fn read(roots: &Roots) -> Result<Self, ReadError> {
        Ok(Self {
            cpu_milli: cpu::online(roots)?.saturating_mul(1000),
            memory: memory(roots)?,
            huge_pages: huge_pages::set_aside(roots)?,
            ephemeral_storage: size_of(&roots.storage)?,
            pids: pids(roots),
        })
    }
}

/// Reads the bytes of memory that the kernel manages.
fn memory(roots: &Roots) -> Result<i64, ReadError> {
    let path = roots.proc.join("meminfo");
    let total = MemInfo::parse(file::text(&path)?.as_bytes()).map(|info| info.total);
    let odd = || ReadError::odd(&path, "has no lines MemTotal and MemFree in kB");
    total.and_then(|total| i64::try_from(total).ok()).ok_or_else(odd)
}

/// The size in bytes of the file system that `path` is on.
fn size_of(path: &Path) -> Result<i64, ReadError> {
    let said = rustix::fs::statvfs(path).map_err(|error| ReadError::unreadable(path, error))?;
    let bytes = said.f_blocks.saturating_mul(said.f_frsize);
    Ok(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// The lower of the kernel's two limits; if one cannot be read, the other.
fn pids(roots: &Roots) -> Option<i64> {
    let limits = ["sys/kernel/pid_max", "sys/kernel/threads-max"];
    limits.iter().filter_map(|limit| file::number(&roots.proc.join(limit)).ok()).min()
}
