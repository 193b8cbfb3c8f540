//! Measures the node's usage.
//!
//! [`NodeUsage`] reads the kernel's own files on the caller's thread: that takes microseconds and waits for no device.
//! File systems are queried off the async threads, with a deadline: if one hangs, only the figures of file systems are
//! missing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cgroup_cpu_time;
use tokio::task::JoinHandle;
use winddown_shared::NodeStats;

use crate::file::ReadError;

mod cgroups;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod kernel;
mod kernel_file;
mod mounts;
mod storage;
mod tasks;

pub(crate) use cgroups::CgroupTree;
use kernel::KernelUsage;
use storage::{Disks, DisksUsage};

/// How long the file systems may take to answer. Eviction gives up a measurement after 2 s, and must get the rest of it
/// before that.
const DISK_DEADLINE: Duration = Duration::from_secs(1);

/// The places where the node's usage is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsagePaths {
    /// The kernel's process file system, `/proc`.
    pub proc: PathBuf,
    /// The mount point of cgroups, `/sys/fs/cgroup`; version 1, version 2 or both.
    pub cgroup: PathBuf,
    /// The cgroup that counts as the whole node: `/`. Any other cgroup limits the node to that cgroup's memory and
    /// tasks.
    pub node_cgroup: String,
    /// The parent cgroup of all pods, from the root of the hierarchy: `/winddown`. None if pods have none.
    pub pods_cgroup: Option<String>,
    /// A directory on the file system of logs and volumes: the agent's own.
    pub nodefs: PathBuf,
    /// A directory on the file system of the images; none without images.
    pub imagefs: Option<PathBuf>,
    /// A directory on the file system of the containers' writable layers; none if it is that of the images.
    pub containerfs: Option<PathBuf>,
}

/// One measurement.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Reading {
    /// The measured values, each with the time when it was read.
    pub stats: NodeStats,
    /// Why values are missing. The same problems are reported with each measurement.
    pub problems: Vec<ReadError>,
}

/// Measures the node's usage. Keeps the kernel's files open, so that a measurement does not allocate for them.
///
/// ```
/// use winddown_host::{NodeUsage, UsagePaths};
///
/// let mut usage = NodeUsage::new(&UsagePaths::of_host("/var"));
/// let reading = usage.read_kernel();
/// if let Some(memory) = reading.stats.memory {
///     println!("{} bytes of memory are available", memory.available);
/// }
/// // What cannot be measured is absent, with a reason.
/// reading.problems.iter().for_each(|problem| println!("{problem}"));
/// ```
#[derive(Debug)]
pub struct NodeUsage {
    kernel: KernelUsage,
    disks: Arc<Disks>,
    /// The query of the file systems; still set if they did not answer in time.
    asking: Option<JoinHandle<DisksUsage>>,
    /// Whether they did not answer in time, and are not waited for again.
    is_late: bool,
}

// === impl UsagePaths ===

impl UsagePaths {
    /// The running machine. Pods are in no cgroup of their own, and there are no images.
    pub fn of_host(nodefs: impl Into<PathBuf>) -> Self {
        Self {
            proc: "/proc".into(),
            cgroup: "/sys/fs/cgroup".into(),
            node_cgroup: "/".to_owned(),
            pods_cgroup: None,
            nodefs: nodefs.into(),
            imagefs: None,
            containerfs: None,
        }
    }
}

// === impl NodeUsage ===

impl NodeUsage {
    /// Prepares to measure; reads nothing yet.
    pub fn new(places: &UsagePaths) -> Self {
        Self {
            kernel: KernelUsage::new(places),
            disks: Arc::new(Disks::new(places)),
            asking: None,
            is_late: false,
        }
    }

    /// Measures everything. Takes as long as the slowest file system, at most 1 s: if file systems have not answered by
    /// then, their values are missing, and later calls do not wait for them until they do.
    ///
    /// Cancel-safe. Must be called in a tokio runtime with time.
    pub async fn read(&mut self) -> Reading {
        let mut reading = self.read_kernel();
        self.read_disks(&mut reading).await;
        reading
    }

    /// Measures what the kernel reports by itself: memory, tasks and pressure. Never waits for a device.
    pub fn read_kernel(&mut self) -> Reading {
        let mut reading = Reading::default();
        self.kernel.read(&mut reading);
        reading
    }

    /// The CPU time that the node's cgroup has used so far. None if it is not counted.
    pub fn cpu_time(places: &UsagePaths) -> Option<Duration> {
        let file = CgroupTree::find(&places.cgroup).cpu_time(&places.node_cgroup);
        cgroup_cpu_time(&crate::kernel::read(file).ok()?)
    }

    async fn read_disks(&mut self, reading: &mut Reading) {
        let asking = self.asking.get_or_insert_with(|| {
            let disks = Arc::clone(&self.disks);
            tokio::task::spawn_blocking(move || disks.read())
        });
        let deadline = if self.is_late { Duration::ZERO } else { DISK_DEADLINE };
        let answer = tokio::time::timeout(deadline, asking).await;
        self.is_late = answer.is_err();
        match answer {
            Ok(Ok(usage)) => {
                self.asking = None;
                usage.enter(reading);
            }
            Ok(Err(_)) => self.asking = None,
            Err(_) => reading.problems.push(self.disks.late(DISK_DEADLINE)),
        }
    }
}

#[cfg(test)]
mod tests;
