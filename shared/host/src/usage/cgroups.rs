//! The paths of a cgroup's files, on a machine with version 1, version 2 or both.

use std::path::{Path, PathBuf};

/// The hierarchies below one mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupTree {
    mount: PathBuf,
    /// The directory of the unified hierarchy.
    unified: Option<PathBuf>,
}

/// The files about a cgroup's memory.
pub(super) struct MemoryFiles {
    pub(super) usage: PathBuf,
    pub(super) stat: PathBuf,
    pub(super) limit: PathBuf,
}

impl CgroupTree {
    /// Detects the mounted hierarchies. If only version 2 is mounted, its list of controllers is at the mount point
    /// itself; next to version 1, version 2 may be in `unified`.
    pub(crate) fn find(mount: &Path) -> Self {
        let places = [mount.to_owned(), mount.join("unified")];
        let unified = places.into_iter().find(|dir| dir.join("cgroup.controllers").exists());
        Self { mount: mount.to_owned(), unified }
    }

    /// The files about a cgroup's memory. Without cgroups, these files do not exist.
    pub(super) fn memory(&self, cgroup: &str) -> MemoryFiles {
        let (dir, is_v1) = self.of("memory", cgroup);
        let [usage, limit] = match is_v1 {
            true => ["memory.usage_in_bytes", "memory.limit_in_bytes"],
            false => ["memory.current", "memory.max"],
        };
        MemoryFiles {
            usage: dir.join(usage),
            stat: dir.join("memory.stat"),
            limit: dir.join(limit),
        }
    }

    /// The file that counts how often a cgroup and its descendants hit their limits; version 1 does not count
    /// descendants.
    pub(super) fn memory_events(&self, cgroup: &str) -> Option<PathBuf> {
        let (dir, is_v1) = self.of("memory", cgroup);
        (!is_v1).then(|| dir.join("memory.events"))
    }

    /// The files with a cgroup's swap usage and limit; version 1 counts swap together with memory.
    pub(super) fn swap(&self, cgroup: &str) -> Option<[PathBuf; 2]> {
        let (dir, is_v1) = self.of("memory", cgroup);
        (!is_v1).then(|| ["memory.swap.current", "memory.swap.max"].map(|file| dir.join(file)))
    }

    /// The files with a cgroup's number of tasks and their limit.
    pub(super) fn tasks(&self, cgroup: &str) -> (PathBuf, PathBuf) {
        let (dir, _) = self.of("pids", cgroup);
        (dir.join("pids.current"), dir.join("pids.max"))
    }

    /// The file with a cgroup's CPU time.
    pub(super) fn cpu_time(&self, cgroup: &str) -> PathBuf {
        let (dir, is_v1) = self.of("cpuacct", cgroup);
        dir.join(if is_v1 { "cpuacct.usage" } else { "cpu.stat" })
    }

    /// The file with a cgroup's memory pressure; only the unified hierarchy has it.
    pub(crate) fn memory_pressure(&self, cgroup: &str) -> Option<PathBuf> {
        Some(below(self.unified.as_ref()?, cgroup).join("memory.pressure"))
    }

    /// A cgroup's directory in the controller's hierarchy, and whether that is version 1.
    fn of(&self, controller: &str, cgroup: &str) -> (PathBuf, bool) {
        let own = self.mount.join(controller);
        match &self.unified {
            Some(unified) if unified == &self.mount || !own.is_dir() => {
                (below(unified, cgroup), false)
            }
            _ => (below(&own, cgroup), true),
        }
    }
}

fn below(root: &Path, cgroup: &str) -> PathBuf {
    root.join(cgroup.trim_start_matches('/'))
}
