use std::fs;
use std::path::PathBuf;

use super::*;

/// A fake machine in a directory tree.
struct Tree {
    _folder: tempfile::TempDir,
    roots: Roots,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let under = |name: &str| folder.path().join(name);
        let roots = Roots { proc: under("proc"), sys: under("sys"), storage: folder.path().into() };
        let tree = Self { _folder: folder, roots };
        tree.proc("meminfo", "MemTotal:       24684092 kB\nMemFree:         3486672 kB\n");
        tree.proc("sys/kernel/pid_max", "4194304\n");
        tree.proc("sys/kernel/threads-max", "192000\n");
        tree.sys("devices/system/cpu/online", "0-1\n");
        tree
    }

    fn proc(&self, path: &str, text: &str) {
        write(self.roots.proc.join(path), text);
    }

    fn sys(&self, path: &str, text: &str) {
        write(self.roots.sys.join(path), text);
    }

    fn read(&self) -> Capacity {
        Capacity::read(&self.roots).unwrap()
    }

    fn error(&self) -> String {
        let error = Capacity::read(&self.roots).unwrap_err().to_string();
        error.replace(&*self.roots.storage.display().to_string(), "")
    }
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn what_the_machine_has_is_read_from_the_kernels_files() {
    let tree = Tree::new();
    tree.sys("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n");
    tree.sys("kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n");
    let said = tree.read();
    assert_eq!(said.cpu_milli, 2000);
    assert_eq!(said.memory, 24_684_092 * 1024);
    assert_eq!(said.huge_pages, [(2 << 20, 16 << 20), (1 << 30, 0)].into());
    assert_eq!(said.pids, Some(192_000));
    assert!(said.ephemeral_storage > 0);
}

#[test]
fn apparmor_is_there_where_the_kernel_has_it_and_has_it_on() {
    for (enabled, mounted, expected) in [
        (Some("Y\n"), true, true),
        (Some("N\n"), true, false),
        (Some("Y\n"), false, false),
        (None, true, false),
    ] {
        let tree = Tree::new();
        if let Some(enabled) = enabled {
            tree.sys("module/apparmor/parameters/enabled", enabled);
        }
        if mounted {
            tree.sys("kernel/security/apparmor/profiles", "");
        }
        assert_eq!(tree.roots.has_app_armor(), expected, "{enabled:?}, {mounted}");
    }
}

#[test]
fn this_machine_can_be_read() {
    let said = Capacity::read(&Roots::of_host("/")).unwrap();
    assert!(said.cpu_milli >= 1000 && said.memory > 1 << 20 && said.ephemeral_storage > 1 << 20);
}

#[test]
fn processors_that_are_offline_do_not_count() {
    for (online, processors) in [("0", 1), ("0-3,8", 5), ("0,2,4-5", 4), ("0-127", 128)] {
        let tree = Tree::new();
        tree.sys("devices/system/cpu/online", &format!("{online}\n"));
        assert_eq!(tree.read().cpu_milli, processors * 1000, "{online}");
    }
}

#[test]
fn processors_are_counted_in_proc_where_sys_does_not_list_them() {
    let tree = Tree::new();
    fs::remove_file(tree.roots.sys.join("devices/system/cpu/online")).unwrap();
    tree.proc("cpuinfo", "processor\t: 0\nmodel\t: x\n\nprocessor\t: 1\n\nHardware\t: y\n");
    assert_eq!(tree.read().cpu_milli, 2000);
    tree.proc("cpuinfo", "Hardware\t: y\n");
    assert!(tree.error().starts_with("/proc/cpuinfo: describes no processor"), "{}", tree.error());
}

#[test]
fn a_kernel_without_huge_pages_or_limits_of_threads_is_no_error() {
    let tree = Tree::new();
    fs::remove_dir_all(tree.roots.proc.join("sys")).unwrap();
    let said = tree.read();
    assert!(said.huge_pages.is_empty());
    assert_eq!(said.pids, None);
    tree.proc("sys/kernel/pid_max", "32768");
    assert_eq!(tree.read().pids, Some(32768));
}

#[test]
fn what_is_no_folder_of_huge_pages_is_passed_over() {
    let tree = Tree::new();
    for name in ["hugepages-kB", "hugepages-0kB", "hugepages--1kB", "hugepages-2M", "other"] {
        tree.sys(&format!("kernel/mm/hugepages/{name}/nr_hugepages"), "1");
    }
    assert!(tree.read().huge_pages.is_empty());
}

#[test]
fn a_file_that_says_something_else_is_named() {
    let odd: [(&str, &[&str], &str); 2] = [
        ("/proc/meminfo", &["", "MemTotal: kB", "MemTotal: -1 kB", "MemTotal: 5 MB"], "MemTotal"),
        (
            "/sys/devices/system/cpu/online",
            &["", "-", "3-1", "0-", "a", "0,,1", "99999999999"],
            "list",
        ),
    ];
    for (path, texts, what) in odd {
        for text in texts {
            let tree = Tree::new();
            write(tree.roots.storage.join(path.trim_start_matches('/')), text);
            let error = tree.error();
            assert!(error.starts_with(path) && error.contains(what), "{text:?}: {error}");
        }
    }
    let tree = Tree::new();
    tree.sys("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "many");
    assert!(tree.error().contains("nr_hugepages: contains no number"), "{}", tree.error());
}

#[test]
fn a_file_that_is_missing_is_named() {
    let tree = Tree::new();
    fs::remove_file(tree.roots.proc.join("meminfo")).unwrap();
    assert!(tree.error().starts_with("cannot read /proc/meminfo"), "{}", tree.error());
    let mut gone = Tree::new();
    gone.roots.storage.push("gone");
    let error = Capacity::read(&gone.roots).unwrap_err().to_string();
    let named = format!("cannot read {}", gone.roots.storage.display());
    assert!(error.starts_with(&named), "{error}");
}

proptest::proptest! {
    // Each case creates a directory tree.
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]
    #[test]
    fn no_text_makes_the_reading_fail_in_another_way_than_with_an_error(
        online in "[0-9,\\-a \n]{0,30}",
        memory in "(MemTotal:)? ?[0-9\\-]{0,22} ?(kB)?",
        pages in "[0-9\\-]{0,22}",
    ) {
        let tree = Tree::new();
        tree.sys("devices/system/cpu/online", &online);
        tree.proc("meminfo", &memory);
        tree.sys("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", &pages);
        if let Ok(said) = Capacity::read(&tree.roots) {
            proptest::prop_assert!(said.cpu_milli >= 1000 && said.memory > 0);
            proptest::prop_assert!(said.huge_pages.values().all(|bytes| *bytes >= 0));
        }
    }
}
