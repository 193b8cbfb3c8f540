//! The control groups that a node leaves behind.

use std::fs;
use std::path::{Path, PathBuf};

/// Removes the group `name` from every hierarchy, children first.
///
/// Groups that are busy or gone are passed over: a node's processes are dead by then, and what the
/// kernel still holds goes at the next call or with the machine.
pub(crate) fn remove_everywhere(name: &str) {
    for mount in mounts(&fs::read_to_string("/proc/mounts").unwrap_or_default()) {
        remove_tree(&mount.join(name));
    }
}

/// The mount points of all control group hierarchies, out of the text of `/proc/mounts`.
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
    use super::mounts;

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
