//! Measures processes, for values that no cgroup provides.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use winddown_engine::stats::Figures;
use winddown_host::{ProcStat, kernel};
use winddown_shim::procfs;

/// Whether processes provide something that is absent from these figures.
pub(crate) fn can_complete(figures: &Figures) -> bool {
    let Figures { memory_working_set, tasks, cpu_time, .. } = figures;
    memory_working_set.is_none() || tasks.is_none() || cpu_time.is_none()
}

/// All processes of the machine, by parent.
pub(crate) struct MachineProcesses {
    /// The pid and the number of threads of each child.
    children: HashMap<i32, Vec<(i32, u64)>>,
}

impl MachineProcesses {
    /// Reads one line for each process. Blocks for some milliseconds.
    pub(crate) fn look(proc_root: &Path) -> Self {
        let mut children = HashMap::<i32, Vec<(i32, u64)>>::new();
        for pid in procfs::pids(proc_root).into_iter().flatten() {
            let Ok(Some(stat)) = procfs::stat(proc_root, pid) else { continue };
            if !stat.has_ended() {
                children.entry(stat.parent).or_default().push((pid, stat.threads));
            }
        }
        Self { children }
    }

    /// Returns the usage of all processes below `root`, and of `root` if it belongs to the container. None if none is
    /// left.
    ///
    /// Memory that processes share (programs, libraries, shared memory) is not counted: it would be counted once for
    /// each of them. CPU time includes that of exited children.
    pub(crate) fn below(&self, proc_root: &Path, root: (i32, bool)) -> Option<Figures> {
        let (root, is_own) = root;
        let mut used = Vec::new();
        let is_root = |child: &&(i32, u64)| child.0 == root;
        let mut left: Vec<(i32, u64)> = match is_own {
            true => self.children.values().flatten().find(is_root).copied().into_iter().collect(),
            false => self.children.get(&root).cloned().unwrap_or_default(),
        };
        while let Some((pid, threads)) = left.pop() {
            let of_process =
                |name| kernel::read_to_string(proc_root.join(pid.to_string()).join(name));
            let statm = of_process("statm");
            // The process may have exited since.
            let Some(pages) = statm.ok().as_deref().and_then(own_pages) else { continue };
            let ticks = of_process("stat").ok().as_deref().and_then(own_ticks);
            // Ticks are coarse, and metrics-server omits a pod with a container that has used no CPU time.
            let exact = of_process("schedstat").ok().as_deref().and_then(ran).unwrap_or_default();
            used.push(Figures {
                memory_working_set: Some(pages.saturating_mul(page_size())),
                tasks: Some(threads),
                cpu_time: ticks.map(|ticks| duration(ticks).max(exact)),
                ..Figures::default()
            });
            left.extend(self.children.get(&pid).into_iter().flatten());
        }
        (!used.is_empty()).then(|| Figures::sum(used))
    }
}

fn duration(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second())
}

/// Reads the CPU time of the first thread from `/proc/PID/schedstat`.
pub(crate) fn ran(schedstat: &str) -> Option<Duration> {
    schedstat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Reads from `/proc/PID/stat` the CPU time of the process and of its reaped children, in clock ticks.
pub(crate) fn own_ticks(stat: &str) -> Option<u64> {
    let stat = ProcStat::new(stat)?;
    (14..=17).map(|number| stat.field::<u64>(number)).sum()
}

fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// Reads the resident pages without the shared ones from `/proc/PID/statm`.
pub(crate) fn own_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(resident.saturating_sub(shared))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_lines_of_the_kernel_are_read() {
        assert_eq!(own_pages("9000 500 120 1 0 2 0\n"), Some(380));
        assert_eq!(own_pages("9000 5 120"), Some(0));
        for text in ["", "9000", "9000 5", "a b c", "1 -1 2"] {
            assert_eq!(own_pages(text), None, "{text:?}");
        }
    }

    fn process(root: &Path, (pid, parent, threads, pages): (i32, i32, u64, u64)) {
        let dir = root.join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        let stat =
            format!("{pid} (x) S {parent} 0 0 0 0 0 0 0 0 0 {pid} 1 2 3 20 0 {threads} 0 1 1");
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(dir.join("statm"), format!("9000 {} 10 0", pages + 10)).unwrap();
    }

    #[test]
    fn what_descends_from_a_supervisor_is_its_containers_and_the_supervisor_is_not() {
        let root = tempfile::tempdir().unwrap();
        let all = [(1, 0, 1, 5), (10, 1, 2, 100), (11, 10, 1, 7), (12, 11, 4, 3), (20, 1, 1, 50)];
        all.into_iter().for_each(|one| process(root.path(), one));
        let processes = MachineProcesses::look(root.path());
        let below = |pid, is_own| processes.below(root.path(), (pid, is_own));
        let page = page_size();
        let used = |pages: u64, tasks, ticks: u64| {
            let cpu = ticks * 1000 / rustix::param::clock_ticks_per_second();
            Some(Figures {
                memory_working_set: Some(pages * page),
                tasks: Some(tasks),
                cpu_time: Some(Duration::from_millis(cpu)),
                ..Figures::default()
            })
        };
        assert_eq!(below(10, false), used(10, 5, 11 + 12 + 2 * 6));
        assert_eq!(below(10, true), used(110, 7, 10 + 11 + 12 + 3 * 6));
        assert_eq!(below(20, false), None, "nothing of the container is left");
        assert_eq!(below(99, true), None);
        fs::remove_dir_all(root.path().join("12")).unwrap();
        assert_eq!(below(10, false), used(7, 1, 11 + 6), "one has ended since");
    }

    #[test]
    fn a_process_that_sleeps_from_its_start_on_has_used_some_processor_time() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), (10, 1, 1, 5));
        let idle = "10 (sleep) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 1 1";
        fs::write(root.path().join("10/stat"), idle).unwrap();
        fs::write(root.path().join("10/schedstat"), "1234567 89 3\n").unwrap();
        let used = MachineProcesses::look(root.path()).below(root.path(), (10, true)).unwrap();
        assert_eq!(used.cpu_time, Some(Duration::from_nanos(1_234_567)));
    }
}
