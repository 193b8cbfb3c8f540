//! Control groups and tables of mounts.

use winddown_host::{
    CgroupMemory, CgroupMemoryEvents, MemoryStat, Mount, cgroup_number, cgroup_of_process, mounts,
};

/// The input is taken for each of the files; lines before the first empty one for the usage.
pub(crate) fn cgroups(text: &[u8]) {
    let at = text.windows(2).position(|two| two == b"\n\n").unwrap_or(0);
    let (usage, stat) = text.split_at(at);
    if let Some(memory) = CgroupMemory::parse(usage, stat, Some(usage)) {
        assert!(memory.working_set() <= memory.usage, "{memory:?}");
        assert!(memory.reclaimable() <= memory.usage, "{memory:?}");
    }
    assert_eq!(MemoryStat::parse(text), MemoryStat::parse(&[text, b"\nunknown 1\n"].concat()));
    let events = CgroupMemoryEvents::parse(&[text, b"\noom_kill 7\n"].concat());
    assert_eq!(events.oom_kill, 7, "the last line counts");
    if let Some(number) = cgroup_number(text) {
        assert_eq!(cgroup_number(number.to_string().as_bytes()), Some(number));
    }
    for controller in ["memory", "pids"] {
        if let Some((path, _)) = cgroup_of_process(text, controller) {
            assert!(path.starts_with('/'), "{path:?}");
            assert!(!path.split('/').any(|part| part == ".."), "{path:?} leads out");
        }
    }
}

pub(crate) fn mount_table(text: &[u8]) {
    let found: Vec<Mount> = mounts(text).collect();
    let lines = text.split(|&byte| byte == b'\n').count();
    assert!(found.len() <= lines, "a line has one mount point at most");
    let points = || found.iter().map(|mount| mount.point.as_os_str().len());
    assert!(points().sum::<usize>() <= text.len() && points().all(|length| length > 0));
}
