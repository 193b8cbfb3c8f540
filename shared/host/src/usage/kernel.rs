//! Reads memory, tasks and pressure from the kernel.

use std::path::PathBuf;

use crate::meminfo::MemInfo;
use crate::{CgroupMemory, CgroupMemoryEvents, MemoryStat, cgroup_number};
use tokio::time::Instant;
use winddown_shared::{LimitStats, MemoryStats, PressureStats, SwapStats};

use super::cgroups::CgroupTree;
use super::kernel_file::KernelFile;
use super::{Reading, UsagePaths, tasks};
use crate::file::ReadError;
use crate::psi::parse_pressure;

/// A limit at or above this counts as none.
const UNLIMITED: u64 = 1 << 62;

/// The kernel's files, kept open.
#[derive(Debug)]
pub(super) struct KernelUsage {
    meminfo: KernelFile,
    node: CgroupFiles,
    pods: Option<CgroupFiles>,
    /// The swap usage and limit of the node's cgroup.
    node_swap: Option<[KernelFile; 2]>,
    loadavg: KernelFile,
    task_limits: [KernelFile; 2],
    /// The number of tasks of the node's cgroup, and its limit.
    node_tasks: [KernelFile; 2],
    pressure: KernelFile,
    /// None if the whole machine is the node.
    node_pressure: Option<KernelFile>,
    pods_pressure: Option<KernelFile>,
    /// The memory events of the node's own cgroup, or else of the pods'.
    events: Option<KernelFile>,
    /// A buffer for reading, which is reused.
    text: Vec<u8>,
}

/// The files about a cgroup's memory.
#[derive(Debug)]
struct CgroupFiles {
    usage: KernelFile,
    stat: KernelFile,
    limit: KernelFile,
}

impl KernelUsage {
    pub(super) fn new(places: &UsagePaths) -> Self {
        let tree = CgroupTree::find(&places.cgroup);
        let file = |path: PathBuf| KernelFile::new(path);
        let in_proc = |path: &str| KernelFile::new(places.proc.join(path));
        let pods = places.pods_cgroup.as_deref();
        let bounds = Some(&*places.node_cgroup).filter(|node| *node != "/");
        let (running, most) = tree.tasks(&places.node_cgroup);
        Self {
            meminfo: in_proc("meminfo"),
            node: CgroupFiles::new(&tree, &places.node_cgroup),
            pods: pods.map(|cgroup| CgroupFiles::new(&tree, cgroup)),
            node_swap: tree.swap(&places.node_cgroup).map(|files| files.map(file)),
            loadavg: in_proc("loadavg"),
            task_limits: [in_proc("sys/kernel/pid_max"), in_proc("sys/kernel/threads-max")],
            node_tasks: [file(running), file(most)],
            pressure: in_proc("pressure/memory"),
            node_pressure: bounds.and_then(|node| tree.memory_pressure(node)).map(file),
            pods_pressure: pods.and_then(|cgroup| tree.memory_pressure(cgroup)).map(file),
            // The root cgroup has no such file.
            events: bounds.or(pods).and_then(|cgroup| tree.memory_events(cgroup)).map(file),
            text: Vec::new(),
        }
    }

    pub(super) fn read(&mut self, reading: &mut Reading) {
        let problems = &mut reading.problems;
        let mut keep = |error| problems.push(error);
        let meminfo = self.meminfo().map_err(&mut keep).ok();
        if let Some(info) = meminfo {
            reading.stats.memory = self.node_memory(info).map_err(&mut keep).ok();
            reading.stats.swap = self.swap(info);
            reading.stats.pods_memory = match self.pods_memory(info).transpose() {
                Ok(memory) => memory,
                // The cgroup is created with the first pod.
                Err(error) if error.is_missing() => None,
                Err(error) => {
                    keep(error);
                    None
                }
            };
        }
        reading.stats.tasks = self.tasks().map_err(&mut keep).ok();
        // A kernel may be built or started without it.
        // The machine's stand in while the cgroup reports nothing, as for what wakes the eviction loop.
        let node = self.node_pressure.as_mut();
        reading.stats.memory_pressure = node
            .and_then(|file| read_pressure(file, &mut self.text))
            .or_else(|| read_pressure(&mut self.pressure, &mut self.text));
        let pods = self.pods_pressure.as_mut();
        reading.stats.pods_memory_pressure =
            pods.and_then(|file| read_pressure(file, &mut self.text));
        // The cgroup is created with the first pod.
        let events = self.events.as_mut().and_then(|file| file.read(&mut self.text).ok());
        reading.stats.oom_kills = events.map(|text| CgroupMemoryEvents::parse(text).oom_kill);
    }

    fn meminfo(&mut self) -> Result<MemInfo, ReadError> {
        let parsed = MemInfo::parse(self.meminfo.read(&mut self.text)?);
        parsed.ok_or_else(|| self.meminfo.odd("has no lines MemTotal and MemFree in kB"))
    }

    /// The node's memory: its root cgroup within the machine's memory. The v2 root has no usage file; its anonymous
    /// memory and page cache stand in, as in the kubelet: huge pages and the kernel's own memory do not count.
    /// Without cgroups, everything that is not free counts.
    fn node_memory(&mut self, info: MemInfo) -> Result<MemoryStats, ReadError> {
        let memory = match self.node.read(&mut self.text) {
            Err(error) if error.is_missing() => {
                let root = self.node.root(&mut self.text);
                let all = info.inactive_file.map(|idle| (info.total - info.free, idle));
                let (usage, inactive_file) = root
                    .or(all)
                    .ok_or_else(|| self.meminfo.odd("has no line Inactive(file) in kB"))?;
                CgroupMemory { usage, inactive_file, ..CgroupMemory::default() }
            }
            other => other?,
        };
        Ok(measured(memory, info))
    }

    fn pods_memory(&mut self, info: MemInfo) -> Option<Result<MemoryStats, ReadError>> {
        let pods = self.pods.as_mut()?;
        Some(pods.read(&mut self.text).map(|memory| measured(memory, info)))
    }

    /// The part of the machine's swap that the node's cgroup may use. The root has no limit.
    fn swap(&mut self, info: MemInfo) -> Option<SwapStats> {
        let MemInfo { zswap, zswapped, .. } = info;
        let (mut total, mut free) = (info.swap_total?, info.swap_free?);
        let [used, limit] = match &mut self.node_swap {
            Some(files) => files.each_mut().map(|file| number(file, &mut self.text)),
            None => [None, None],
        };
        if let Some((used, limit)) = used.zip(limit) {
            total = total.min(limit);
            free = free.min(limit.saturating_sub(used));
        }
        Some(SwapStats { total, free, zswap, zswapped })
    }

    fn tasks(&mut self) -> Result<LimitStats, ReadError> {
        let text = self.loadavg.read(&mut self.text)?;
        let running = tasks::running(text).ok_or_else(|| {
            self.loadavg.odd("does not have the number of tasks in its 4th field")
        })?;
        let text = &mut self.text;
        let mut limits = self.task_limits.iter_mut().filter_map(|limit| number(limit, text));
        let max = match (limits.next(), limits.next()) {
            (Some(one), Some(other)) => one.min(other),
            (Some(one), None) => one,
            _ => return Err(self.task_limits[0].odd("contains no number, nor does threads-max")),
        };
        let [current, most] = &mut self.node_tasks;
        let at = Some(Instant::now());
        match (number(most, text), number(current, text)) {
            // A cgroup around the node may be nearer to its own limit.
            (Some(most), Some(current))
                if most.saturating_sub(current) < max.saturating_sub(running) =>
            {
                Ok(LimitStats { at, max: most, used: current })
            }
            _ => Ok(LimitStats { at, max, used: running }),
        }
    }
}

impl CgroupFiles {
    fn new(tree: &CgroupTree, cgroup: &str) -> Self {
        let files = tree.memory(cgroup);
        Self {
            usage: KernelFile::new(files.usage),
            stat: KernelFile::new(files.stat),
            limit: KernelFile::new(files.limit),
        }
    }

    fn read(&mut self, text: &mut Vec<u8>) -> Result<CgroupMemory, ReadError> {
        let usage = cgroup_number(self.usage.read(text)?);
        let usage = usage.ok_or_else(|| self.usage.odd("contains no number"))?;
        let stat = MemoryStat::parse(self.stat.read(text)?);
        let limit = number(&mut self.limit, text).filter(|&limit| limit < UNLIMITED);
        Ok(CgroupMemory {
            usage,
            inactive_file: stat
                .inactive_file
                .ok_or_else(|| self.stat.odd("has no line inactive_file"))?,
            active_file: stat.active_file.unwrap_or(0),
            anonymous: stat.anonymous.unwrap_or(0),
            slab_reclaimable: stat.slab_reclaimable.unwrap_or(0),
            limit,
        })
    }

    /// Reads the usage of the v2 root, and the page cache in it that was not used recently.
    fn root(&mut self, text: &mut Vec<u8>) -> Option<(u64, u64)> {
        let stat = MemoryStat::parse(self.stat.read(text).ok()?);
        stat.anon_and_file.zip(stat.inactive_file)
    }
}

/// A cgroup's memory within the machine's. `available` is what its working set leaves of its limit, or of the total;
/// `mem_available` also counts what the kernel can reclaim.
fn measured(memory: CgroupMemory, info: MemInfo) -> MemoryStats {
    let working_set = memory.working_set();
    let limit = memory.limit.filter(|&limit| limit < info.total);
    let mem_available = info.available.map(|available| match limit {
        None => available,
        Some(limit) => {
            let used = memory.usage.saturating_sub(memory.reclaimable());
            available.min(limit.saturating_sub(used))
        }
    });
    MemoryStats {
        at: Some(Instant::now()),
        working_set,
        available: limit.unwrap_or(info.total).saturating_sub(working_set),
        mem_available,
    }
}

/// Reads a number from a file that may not exist.
fn number(file: &mut KernelFile, text: &mut Vec<u8>) -> Option<u64> {
    cgroup_number(file.read(text).ok()?)
}

fn read_pressure(file: &mut KernelFile, text: &mut Vec<u8>) -> Option<PressureStats> {
    let stats = parse_pressure(file.read(text).ok()?)?;
    Some(PressureStats { at: Some(Instant::now()), ..stats })
}

#[cfg(test)]
mod tests;
