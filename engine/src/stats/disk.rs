//! Measures the disk usage of a directory tree.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio::time::Instant;
use winddown_shared::DiskUse;

/// How much may still be examined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// The number of files and directories.
    pub(crate) entries: u64,
    pub(crate) until: Instant,
}

/// The number of entries between two checks of the clock.
const LOOK: u64 = 256;

/// Adds up `root` and everything below it on the same file system. A symbolic link counts as itself and is not
/// followed, except `root`; a file with several hard links counts once. None if `root` does not exist. Blocks.
///
/// When the budget is used up, the result is what was found by then: less than there is, never more.
pub(crate) fn walk(root: &Path, budget: &mut Budget) -> Option<DiskUse> {
    let found = fs::metadata(root).ok()?;
    let device = found.dev();
    let mut total = used(&found);
    let mut seen = HashSet::new();
    let mut left: Vec<PathBuf> = Vec::new();
    if found.is_dir() {
        left.push(root.to_owned());
    }
    while let Some(dir) = left.pop() {
        // A directory that is removed meanwhile takes no space.
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            if !budget.take() {
                return Some(total);
            }
            let Ok(found) = entry.metadata() else { continue };
            if found.dev() != device {
                continue;
            }
            let is_first = found.is_dir() || found.nlink() < 2 || seen.insert(found.ino());
            if is_first {
                total = total.and(used(&found));
            }
            if found.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Some(total)
}

impl Budget {
    fn take(&mut self) -> bool {
        let Some(entries) = self.entries.checked_sub(1) else { return false };
        self.entries = entries;
        if entries % LOOK == 0 && Instant::now() >= self.until {
            self.entries = 0;
        }
        true
    }
}

/// The allocated space: less than the length for a sparse file.
fn used(found: &Metadata) -> DiskUse {
    DiskUse { bytes: found.blocks().saturating_mul(512), inodes: 1 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn budget(entries: u64) -> Budget {
        Budget { entries, until: Instant::now() + Duration::from_secs(3600) }
    }

    #[test]
    fn a_tree_is_added_up_once_whatever_names_its_files_have() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(at("a/b/file"), at("a/again")).unwrap();
        std::os::unix::fs::symlink("/", at("out")).unwrap();
        let total = walk(root.path(), &mut budget(1000)).unwrap();
        // The root, two directories, the file, the link.
        assert_eq!(total.inodes, 5);
        assert!((98_304..400_000).contains(&total.bytes), "{total:?}");
    }

    #[test]
    fn holes_take_no_room() {
        let root = tempfile::tempdir().unwrap();
        fs::File::create(root.path().join("holes")).unwrap().set_len(1 << 40).unwrap();
        assert!(walk(root.path(), &mut budget(10)).unwrap().bytes < 1 << 20);
    }

    #[test]
    fn other_file_systems_are_left_out_and_a_file_is_a_tree_too() {
        let proc = walk(Path::new("/proc/self/status"), &mut budget(10)).unwrap();
        assert_eq!(proc.inodes, 1);
        assert_eq!(walk(Path::new("/nowhere"), &mut budget(10)), None);
    }

    #[test]
    fn a_walk_ends_with_its_budget_and_tells_no_more_than_it_found() {
        let root = tempfile::tempdir().unwrap();
        (0..50).for_each(|n| fs::write(root.path().join(n.to_string()), "x").unwrap());
        let mut small = budget(10);
        assert_eq!(walk(root.path(), &mut small).unwrap().inodes, 11);
        assert_eq!(small.entries, 0);
        let mut late = Budget { entries: 257, until: Instant::now() };
        assert!(walk(root.path(), &mut late).unwrap().inodes < 10);
    }
}
