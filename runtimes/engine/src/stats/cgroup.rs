//! Memory, tasks and CPU time of a cgroup, version 1 or 2.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use winddown_host::{
    CgroupMemory, cgroup_cpu_time, cgroup_named, cgroup_number, cgroup_of_process, kernel,
};
use winddown_shared::MemoryFigure;
use winddown_shim::members;

/// How many bytes the kernel is asked to reclaim at a time, which takes only a moment even with a slow disk.
const RECLAIM_STEP_BYTES: u64 = 4 << 20;

/// The directories of one cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupDirs {
    memory: PathBuf,
    is_v2: bool,
    /// None if tasks are not counted.
    tasks: Option<PathBuf>,
    /// None if CPU time is not counted.
    cpu: Option<PathBuf>,
}

impl CgroupDirs {
    /// Selects among the directories of one cgroup, one for each hierarchy. None if none of them counts memory.
    pub fn among(dirs: &[PathBuf]) -> Option<Self> {
        let with = |file: &str| dirs.iter().find(|dir| dir.join(file).exists()).cloned();
        let tasks = with("pids.current");
        match with("memory.current") {
            Some(memory) => Some(Self { cpu: Some(memory.clone()), memory, is_v2: true, tasks }),
            None => {
                let memory = with("memory.usage_in_bytes")?;
                Some(Self { memory, is_v2: false, tasks, cpu: with("cpuacct.usage") })
            }
        }
    }

    /// Finds the cgroup with `mark` in its name that a process is in or below: that of a container, wherever the container
    /// has moved its first process, and none for another process with a reused pid. `proc_root` is the path of `/proc`,
    /// `mount` the mount point of cgroups. Reads one small file.
    pub fn of_process((proc_root, mount): (&Path, &Path), pid: i32, mark: &str) -> Option<Self> {
        let text = kernel::read(proc_root.join(pid.to_string()).join("cgroup")).ok()?;
        let of = |controller| {
            let (path, is_v2) = cgroup_of_process(&text, controller)?;
            Some((directory(mount, controller, cgroup_named(path, mark)?, is_v2), is_v2))
        };
        let (memory, is_v2) = of("memory")?;
        let other = |controller| of(controller).map(|(dir, _)| dir);
        Some(Self { memory, is_v2, tasks: other("pids"), cpu: other("cpuacct") })
    }

    /// The parent cgroup, if its name contains `mark`: the pod's, around those of its containers.
    pub fn parent(&self, mark: &str) -> Option<Self> {
        let parent = |dir: &Path| {
            let parent = dir.parent()?;
            parent.file_name()?.to_str()?.contains(mark).then(|| parent.to_owned())
        };
        Some(Self {
            memory: parent(&self.memory)?,
            is_v2: self.is_v2,
            tasks: self.tasks.as_deref().and_then(parent),
            cpu: self.cpu.as_deref().and_then(parent),
        })
    }

    /// The directory in the hierarchy that counts memory.
    pub fn path(&self) -> &Path {
        &self.memory
    }

    /// Reads the memory usage. Blocks for as long as the kernel takes to add up.
    pub fn memory(&self) -> Option<CgroupMemory> {
        let usage = if self.is_v2 { "memory.current" } else { "memory.usage_in_bytes" };
        let usage = kernel::read(self.memory.join(usage)).ok()?;
        let stat = kernel::read(self.memory.join("memory.stat")).ok()?;
        CgroupMemory::parse(&usage, &stat, None)
    }

    /// Whether the kernel killed a process of the cgroup because it ran out of memory. Reads two small files at most.
    pub fn ran_out_of_memory(&self) -> bool {
        members::were_out_of_memory(std::slice::from_ref(&self.memory))
    }

    /// Whether memory can be reclaimed from the cgroup: version 2, since Linux 5.19, and with write permission.
    pub fn can_reclaim(&self) -> bool {
        self.is_v2 && access(&self.memory.join("memory.reclaim"), AccessFlags::W_OK).is_ok()
    }

    /// How much of `memory` may still go to swap within the cgroup's own limit, in bytes.
    pub(super) fn swappable(&self, memory: &CgroupMemory) -> u64 {
        let used = || self.of_memory("memory.swap.current").unwrap_or(0);
        let left = self.of_memory("memory.swap.max").map(|most| most.saturating_sub(used()));
        memory.anonymous.min(left.unwrap_or(u64::MAX))
    }

    /// Has the kernel reclaim memory until `figure` has fallen by `bytes`, no more can be reclaimed, or `goes_on`
    /// returns false. Returns by how much it has fallen, in bytes; 0 for a cgroup that is gone. Blocks.
    ///
    /// # Errors
    /// The kernel cannot reclaim memory, see [`can_reclaim`](Self::can_reclaim).
    pub fn reclaim(
        &self,
        figure: MemoryFigure,
        bytes: u64,
        goes_on: impl Fn() -> bool,
    ) -> io::Result<u64> {
        let Some(before) = self.memory() else { return Ok(0) };
        // Inactive file cache goes first, and does not count.
        let (mut asked, mut fallen) = (0, 0);
        let mut options = options(figure);
        while asked < before.usage && fallen < bytes && goes_on() {
            let all = self.reclaim_some(&mut options)?;
            let Some(now) = self.memory() else { return Ok(0) };
            let last = std::mem::replace(
                &mut fallen,
                value(&before, figure).saturating_sub(value(&now, figure)),
            );
            // On a slow disk the kernel gives up although it makes progress.
            if !all && fallen <= last {
                break;
            }
            asked += RECLAIM_STEP_BYTES;
        }
        Ok(fallen)
    }

    /// Reclaims [`RECLAIM_STEP_BYTES`] with the first of `options` that the kernel knows; removes those before it.
    /// Returns whether that much was reclaimed.
    fn reclaim_some(&self, options: &mut &[&str]) -> io::Result<bool> {
        loop {
            let text =
                format!("{RECLAIM_STEP_BYTES}{}", options.first().copied().unwrap_or_default());
            let file = OpenOptions::new().write(true).open(self.memory.join("memory.reclaim"));
            match file.and_then(|mut file| file.write_all(text.as_bytes())) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && options.len() > 1 => {
                    *options = &options[1..];
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a number that only version 2 has, from a file of the memory controller.
    pub(super) fn of_memory(&self, file: &str) -> Option<u64> {
        let text = kernel::read(self.memory.join(file)).ok().filter(|_| self.is_v2)?;
        cgroup_number(&text)
    }

    /// The number of tasks, i.e. threads, each of which takes one of the node's process ids.
    pub fn tasks(&self) -> Option<u64> {
        cgroup_number(&kernel::read(self.tasks.as_ref()?.join("pids.current")).ok()?)
    }

    /// The CPU time used so far.
    pub fn cpu_time(&self) -> Option<Duration> {
        let dir = self.cpu.as_ref()?;
        // Version 1 has a `cpu.stat` too, but without the usage.
        let of_v2 = |_| kernel::read(dir.join("cpu.stat"));
        cgroup_cpu_time(&kernel::read(dir.join("cpuacct.usage")).or_else(of_v2).ok()?)
    }
}

/// The value of `figure`, in bytes.
pub(super) fn value(memory: &CgroupMemory, figure: MemoryFigure) -> u64 {
    match figure {
        MemoryFigure::WorkingSet => memory.working_set(),
        MemoryFigure::Anonymous => memory.anonymous,
    }
}

/// Options that tell the kernel what to reclaim, the best first: older kernels do not know all of them.
fn options(figure: MemoryFigure) -> &'static [&'static str] {
    match figure {
        MemoryFigure::WorkingSet => &[""],
        MemoryFigure::Anonymous => &[" swappiness=max", " swappiness=200", ""],
    }
}

fn directory(mount: &Path, controller: &str, path: &str, is_v2: bool) -> PathBuf {
    let root = match is_v2 {
        false => mount.join(controller),
        true if mount.join("cgroup.controllers").exists() => mount.to_owned(),
        true => mount.join("unified"),
    };
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use std::fs;

    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn working_set(dirs: &CgroupDirs) -> Option<u64> {
        dirs.memory().map(|memory| memory.working_set())
    }

    #[test]
    fn a_process_is_measured_in_its_cgroup_on_version_1() {
        let root = tempfile::tempdir().unwrap();
        let (proc, mount) = (root.path().join("proc"), root.path().join("cg"));
        write(
            proc.join("42/cgroup"),
            "4:memory:/pod-u/c1\n5:cpu,cpuacct:/pod-u/c1\n8:pids:/pod-u/c1\n0::/\n",
        );
        let dir = mount.join("memory/pod-u/c1");
        write(dir.join("memory.usage_in_bytes"), "5000\n");
        write(dir.join("memory.stat"), "inactive_file 1\ntotal_inactive_file 2000\n");
        write(mount.join("pids/pod-u/c1/pids.current"), "7\n");
        write(mount.join("pids/pod-u/pids.current"), "9\n");
        write(mount.join("cpuacct/pod-u/c1/cpuacct.usage"), "1500000000\n");
        write(mount.join("cpuacct/pod-u/cpuacct.usage"), "2500000000\n");
        let found = CgroupDirs::of_process((&proc, &mount), 42, "c1").unwrap();
        assert_eq!((working_set(&found), found.tasks()), (Some(3000), Some(7)));
        assert_eq!(found.of_memory("memory.stat"), None, "version 1 does not tell");
        assert_eq!(found.cpu_time(), Some(Duration::from_millis(1500)));
        assert_eq!(found.parent("-u").unwrap().cpu_time(), Some(Duration::from_millis(2500)));
        let pod = found.parent("-u").unwrap();
        assert_eq!((pod.memory(), pod.tasks()), (None, Some(9)));
        assert_eq!(found.parent("other"), None);
        let dirs = [dir, mount.join("pids/pod-u/c1"), mount.join("cpuacct/pod-u/c1")];
        assert_eq!(CgroupDirs::among(&dirs), Some(found));
        assert_eq!(CgroupDirs::among(&[]), None);
        assert_eq!(CgroupDirs::of_process((&proc, &mount), 42, "c2"), None, "another's now");
        assert_eq!(CgroupDirs::of_process((&proc, &mount), 43, "c1"), None);
    }

    #[test]
    fn memory_is_asked_for_until_it_came_back_or_all_was_asked_for_or_it_may_not_go_on() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("c1");
        write(dir.join("memory.current"), "20000000\n");
        write(
            dir.join("memory.stat"),
            "inactive_anon 4000000\nactive_anon 5000000\ninactive_file 0\n",
        );
        let found = CgroupDirs::among(std::slice::from_ref(&dir)).unwrap();
        assert!(!found.can_reclaim());
        let missing = found.reclaim(MemoryFigure::WorkingSet, 1, || true).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(found.swappable(&found.memory().unwrap()), 9_000_000);
        write(dir.join("memory.swap.max"), "5000000\n");
        write(dir.join("memory.swap.current"), "4000000\n");
        assert_eq!(found.swappable(&found.memory().unwrap()), 1_000_000);

        write(dir.join("memory.reclaim"), "");
        let asked = || fs::read_to_string(dir.join("memory.reclaim")).unwrap();
        assert_eq!(found.reclaim(MemoryFigure::WorkingSet, 1, || false).unwrap(), 0);
        assert_eq!(asked(), "");
        let turns = std::cell::Cell::new(0);
        let counted = |last: u32| {
            turns.set(turns.get() + 1);
            if turns.get() == last {
                write(dir.join("memory.stat"), "inactive_anon 1000000\ninactive_file 0\n");
            }
            true
        };
        assert_eq!(
            found.reclaim(MemoryFigure::Anonymous, 7_000_000, || counted(2)).unwrap(),
            8_000_000
        );
        assert_eq!((turns.replace(0), &*asked()), (2, "4194304 swappiness=max"));
        assert_eq!(found.reclaim(MemoryFigure::Anonymous, 7_000_000, || counted(0)).unwrap(), 0);
        assert_eq!(turns.get(), 5, "20 MB, 4 MiB at a time");
    }

    #[test]
    fn a_process_is_measured_in_its_cgroup_on_version_2() {
        let root = tempfile::tempdir().unwrap();
        let (proc, mount) = (root.path().join("proc"), root.path().join("cg"));
        write(mount.join("cgroup.controllers"), "memory pids\n");
        write(proc.join("42/cgroup"), "0::/pod-u/c1\n");
        write(mount.join("pod-u/c1/memory.current"), "5000\n");
        write(mount.join("pod-u/c1/memory.stat"), "inactive_file 2000\n");
        write(mount.join("pod-u/c1/memory.swap.current"), "4096\n");
        write(mount.join("pod-u/c1/pids.current"), "7\n");
        write(mount.join("pod-u/c1/cpu.stat"), "usage_usec 1500000\nuser_usec 7\n");
        let found = CgroupDirs::of_process((&proc, &mount), 42, "c1").unwrap();
        assert_eq!((working_set(&found), found.tasks()), (Some(3000), Some(7)));
        assert_eq!(found.cpu_time(), Some(Duration::from_millis(1500)));
        let swap =
            ["memory.swap.current", "memory.zswap.current"].map(|file| found.of_memory(file));
        assert_eq!(swap, [Some(4096), None], "a kernel without zswap");
        assert_eq!(Some(found), CgroupDirs::among(&[mount.clone(), mount.join("pod-u/c1")]));
    }

    #[test]
    fn a_container_that_moves_its_first_process_into_a_cgroup_below_is_measured_as_a_whole() {
        let root = tempfile::tempdir().unwrap();
        let (proc, mount) = (root.path().join("proc"), root.path().join("cg"));
        write(mount.join("cgroup.controllers"), "memory pids\n");
        write(mount.join("pod-u/c1/memory.current"), "5000\n");
        write(mount.join("pod-u/c1/memory.stat"), "inactive_file 2000\n");
        for below in ["init.scope", "c1", "x/c1-too"] {
            write(proc.join("42/cgroup"), &format!("0::/pod-u/c1/{below}\n"));
            let found = CgroupDirs::of_process((&proc, &mount), 42, "c1").unwrap();
            assert_eq!(working_set(&found), Some(3000), "{below}");
            assert!(found.parent("-u").is_some(), "{below}");
        }
    }
}
