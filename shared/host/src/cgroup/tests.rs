use super::*;

const V1_STAT: &[u8] = b"cache 13422592\nrss 16932864\ninactive_file 118784\nactive_file 4235264\n\
    hierarchical_memory_limit 9223372036854771712\ntotal_inactive_file 13598842880\n\
    total_active_file 6074957824\n";
const V2_STAT: &[u8] = b"anon 1000\nfile 9000\ninactive_anon 0\nactive_anon 1000\n\
    inactive_file 4000\nactive_file 5000\nslab_reclaimable 300\nslab_unreclaimable 77\n";

#[test]
fn version_1_counts_its_descendants_and_a_limit_of_all_pages_is_none() {
    let memory = CgroupMemory::parse(b"19821129728\n", V1_STAT, Some(b"9223372036854771712\n"));
    let memory = memory.unwrap();
    assert_eq!(memory.working_set(), 19_821_129_728 - 13_598_842_880);
    assert_eq!(memory.reclaimable(), 13_598_842_880 + 6_074_957_824);
    assert_eq!(memory.limit, None);
}

#[test]
fn version_2_has_one_set_of_numbers_and_max_is_no_limit() {
    let memory = CgroupMemory::parse(b"12000\n", V2_STAT, Some(b"max\n")).unwrap();
    assert_eq!((memory.working_set(), memory.reclaimable()), (8000, 9300));
    assert_eq!(memory.limit, None);
    let memory = CgroupMemory::parse(b"12000\n", V2_STAT, Some(b"104857600\n")).unwrap();
    assert_eq!(memory.limit, Some(104_857_600));
}

#[test]
fn a_usage_or_a_page_cache_that_is_not_told_makes_the_memory_unknown() {
    for (usage, stat) in [(&b""[..], V2_STAT), (b"-1", V2_STAT), (b"12000", b"file 3\n")] {
        assert_eq!(CgroupMemory::parse(usage, stat, None), None);
    }
}

#[test]
fn numbers_that_race_never_make_a_working_set_below_zero() {
    let memory = CgroupMemory::parse(b"3000", V2_STAT, None).unwrap();
    assert_eq!((memory.working_set(), memory.reclaimable()), (0, 3000));
}

#[test]
fn memory_events_are_read_by_name() {
    let text = b"low 1\nhigh 22\nmax 333\noom 4\noom_kill 5\noom_group_kill 6\n";
    assert_eq!(CgroupMemoryEvents::parse(text).oom_kill, 5);
    assert_eq!(CgroupMemoryEvents::parse(b"low 1\n").oom_kill, 0);
}

#[test]
fn the_cgroup_of_a_process_is_found_on_every_kind_of_machine() {
    let v1 = b"9:name=systemd:/a\n4:cpu,cpuacct:/b\n3:memory:/c/d\n0::/e\n";
    assert_eq!(cgroup_of_process(v1, "memory"), Some(("/c/d", false)));
    assert_eq!(cgroup_of_process(v1, "cpuacct"), Some(("/b", false)));
    assert_eq!(cgroup_of_process(v1, "pids"), Some(("/e", true)));
    assert_eq!(cgroup_of_process(b"0::/x:y\n", "memory"), Some(("/x:y", true)));
    assert_eq!(cgroup_of_process(b"0::/../../other\n", "memory"), None);
    assert_eq!(cgroup_of_process(b"", "memory"), None);
    for (path, named) in [
        ("/pod/aa", Some("/pod/aa")),
        ("/pod/crio-aa.scope/init.scope", Some("/pod/crio-aa.scope")),
        ("/pod/aa/x/aa", Some("/pod/aa")),
        ("/pod/bb", None),
    ] {
        assert_eq!(cgroup_named(path, "aa"), named, "{path}");
    }
}
