//! Control groups of the machine that runs the tests, in version 1, version 2 or both.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

const MOUNT: &str = "/sys/fs/cgroup";
/// Where version 2 is mounted next to version 1.
const BESIDE: &str = "/sys/fs/cgroup/unified";

/// A group with the same name in each hierarchy for memory, tasks, processors and stall times. Dropping it kills its
/// processes.
#[derive(Debug)]
pub struct Group {
    memory: PathBuf,
    /// All directories without duplicates, that of `memory` first.
    places: Vec<PathBuf>,
    is_v2: bool,
}

/// Whether this machine has version 2 only, as nodes that share its kernel then have.
#[must_use]
pub fn is_version_2() -> bool {
    Path::new(MOUNT).join("cgroup.controllers").exists()
}

impl Group {
    /// Creates the group; none if memory and tasks cannot be limited.
    ///
    /// # Errors
    /// The kernel's error when the group is created.
    pub fn make(name: &str) -> io::Result<Option<Self>> {
        let is_v2 = is_version_2();
        let parents = match is_v2 {
            true => vec![PathBuf::from(MOUNT)],
            false => ["memory", "pids"].map(|name| Path::new(MOUNT).join(name)).into(),
        };
        if is_v2 {
            // systemd has usually done this already; if it is impossible, the group's files are missing.
            let _ =
                fs::write(Path::new(MOUNT).join("cgroup.subtree_control"), "+cpu +memory +pids");
        }
        let can_be_made = |parent: &PathBuf| parent.join("cgroup.procs").exists();
        if !rustix::process::geteuid().is_root() || !parents.iter().all(can_be_made) {
            return Ok(None);
        }
        let mut group = Self { memory: parents[0].join(name), places: Vec::new(), is_v2 };
        // Only version 2 reports stall times.
        let beside = [PathBuf::from(BESIDE), Path::new(MOUNT).join("cpu")];
        let beside = beside.into_iter().filter(|dir| !is_v2 && can_be_made(dir));
        for parent in parents.into_iter().chain(beside) {
            let place = parent.join(name);
            fs::create_dir(&place)?;
            // A separate machine would have its processors to itself, even while this one compiles.
            for (file, weight) in [("cpu.shares", "20480"), ("cpu.weight", "782")] {
                if place.join(file).exists() {
                    fs::write(place.join(file), weight)?;
                }
            }
            group.places.push(place);
        }
        let is_bounded = |file: &str| group.places.iter().any(|place| place.join(file).exists());
        Ok((is_bounded(group.memory_file()) && is_bounded("pids.max")).then_some(group))
    }

    /// The group of a node that shares the host's kernel; none if the node has no group.
    #[must_use]
    pub fn of_node(name: &str) -> Option<Self> {
        let is_v2 = is_version_2();
        let hierarchy = Path::new(MOUNT).join(if is_v2 { "" } else { "memory" });
        // Without places, so that dropping it does not kill the node.
        let group = Self { memory: hierarchy.join(name), places: Vec::new(), is_v2 };
        group.memory.join(group.memory_file()).exists().then_some(group)
    }

    /// The group's directories, one per hierarchy.
    #[must_use]
    pub fn places(&self) -> &[PathBuf] {
        &self.places
    }

    /// Limits its memory, in bytes, and disables swap for it where possible.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bound_memory(&self, bytes: u64) -> io::Result<()> {
        let _ = fs::write(self.memory.join("memory.swap.max"), "0");
        fs::write(self.memory.join(self.memory_file()), bytes.to_string())
    }

    /// Limits its number of tasks.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bound_tasks(&self, tasks: u64) -> io::Result<()> {
        let file =
            self.places.iter().map(|place| place.join("pids.max")).find(|file| file.exists());
        fs::write(file.ok_or(io::ErrorKind::NotFound)?, tasks.to_string())
    }

    /// The number of bytes of its memory that are available, page cache included; none without a limit.
    #[must_use]
    pub fn memory_left(&self) -> Option<u64> {
        let number = |file: &str| -> Option<u64> {
            fs::read_to_string(self.memory.join(file)).ok()?.trim().parse().ok()
        };
        let usage = if self.is_v2 { "memory.current" } else { "memory.usage_in_bytes" };
        let used = number(usage)?.saturating_sub(self.page_cache()?);
        Some(number(self.memory_file())?.saturating_sub(used))
    }

    /// The number of bytes in its page cache and those of the groups below it.
    #[must_use]
    pub fn page_cache(&self) -> Option<u64> {
        let stat = fs::read_to_string(self.memory.join("memory.stat")).ok()?;
        Some(cached(&stat, self.is_v2))
    }

    fn memory_file(&self) -> &'static str {
        if self.is_v2 { "memory.max" } else { "memory.limit_in_bytes" }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            let mut left = false;
            for place in &self.places {
                let text = fs::read_to_string(place.join("cgroup.procs")).unwrap_or_default();
                for pid in text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                    let _ = kill_process(pid, Signal::KILL);
                    left = true;
                }
            }
            if !left {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        for place in &self.places {
            let _ = fs::remove_dir(place);
        }
    }
}

/// The page cache according to the text of a `memory.stat`.
fn cached(stat: &str, is_v2: bool) -> u64 {
    let part = |name: &str| -> u64 {
        // Version 1 uses the names that in version 2 include the groups below for the group alone.
        let name = format!("{}{name} ", if is_v2 { "" } else { "total_" });
        let line = stat.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    part("inactive_file") + part("active_file")
}

/// Removes the group `name` from every hierarchy, children first.
///
/// Groups that are busy or gone are skipped: a node's processes are dead by then, and what the kernel still holds is
/// removed at the next call or with the machine.
pub(crate) fn remove_everywhere(name: &str) {
    for mount in mounts(&fs::read_to_string("/proc/mounts").unwrap_or_default()) {
        remove_tree(&mount.join(name));
    }
}

/// Gives a node's services and the containers of its container runtime the processor time that they have on a machine of
/// their own: there the services are one group, `system.slice`, and pods weigh as much as the processors that they may use.
/// Otherwise each process of the node would weigh as much as all containers. Does nothing where groups do not have shares.
pub(crate) fn weigh_as_on_a_machine(name: &str) -> io::Result<()> {
    let processors = std::thread::available_parallelism()?.get();
    for mount in mounts(&fs::read_to_string("/proc/mounts")?) {
        let (node, containers) = (mount.join(name), mount.join(name).join("k8s.io"));
        if !containers.join("cpu.shares").exists() {
            continue;
        }
        let services = node.join("system.slice");
        fs::create_dir(&services)?;
        fs::write(services.join("cpu.shares"), "1024")?;
        fs::write(containers.join("cpu.shares"), (processors * 1024).to_string())?;
        move_all(&node, &services, Duration::from_secs(10))?;
    }
    Ok(())
}

/// Moves the processes of a group to another, with those that they start meanwhile.
fn move_all(from: &Path, to: &Path, limit: Duration) -> io::Result<()> {
    let (begun, mut refused) = (Instant::now(), None);
    loop {
        let pids = fs::read_to_string(from.join("cgroup.procs"))?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids.lines() {
            // It may have exited.
            refused = fs::write(to.join("cgroup.procs"), pid).err().or(refused);
        }
        if begun.elapsed() > limit {
            let (left, why) = (pids.trim().replace('\n', ", "), refused.map(|error| error.kind()));
            let error = format!("processes stay in {}: {left} ({why:?})", from.display());
            return Err(io::Error::other(error));
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// The mount points of all control group hierarchies in the text of `/proc/mounts`.
fn mounts(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let path = fields.next()?;
            matches!(fields.next()?, "cgroup" | "cgroup2").then(|| PathBuf::from(path))
        })
        .collect()
}

fn remove_tree(group: &Path) {
    for child in fs::read_dir(group).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&child.path());
        }
    }
    let _ = fs::remove_dir(group);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use std::time::Duration;

    use super::{cached, mounts, move_all};

    #[test]
    fn processes_that_cannot_be_moved_to_another_group_are_an_error_that_names_them() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        for group in [&from, &to] {
            fs::create_dir(group).unwrap();
        }
        fs::write(from.join("cgroup.procs"), "17\n18\n").unwrap();
        let limit = Duration::from_millis(20);
        let error = move_all(&from, &to, limit).unwrap_err().to_string();
        assert!(error.ends_with("from: 17, 18 (None)"), "{error}");
        fs::write(from.join("cgroup.procs"), "").unwrap();
        move_all(&from, &to, limit).unwrap();
    }

    #[test]
    fn the_page_cache_is_that_of_all_below_in_both_versions() {
        let v1 = "inactive_file 1\nactive_file 2\ntotal_inactive_file 30\ntotal_active_file 40\n";
        assert_eq!(
            (cached(v1, false), cached("anon 5\ninactive_file 3\nactive_file 4\n", true)),
            (70, 7)
        );
    }

    #[test]
    fn both_kinds_of_hierarchy_are_found_and_nothing_else() {
        let text = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                    cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n\
                    cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                    broken\n";
        let found = mounts(text);
        assert_eq!(
            found,
            ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"].map(std::path::PathBuf::from)
        );
    }
}
