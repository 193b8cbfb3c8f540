//! Measures the disk usage of a directory tree.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, Stat, fstat, openat, statat};
use rustix::io::Errno;
use tokio::time::Instant;
use winddown_shared::DiskUse;

use winddown_host::FilePlace;
use winddown_host::regular::OPEN;

/// How long walks may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkBudget {
    pub(crate) until: Instant,
    /// Whether a walk left something out: it was cut short, or something could not be read.
    pub(crate) is_partial: bool,
}

/// The number of entries between two checks of the clock.
const ENTRIES_PER_CLOCK_CHECK: u64 = 256;
/// How many directories to enter, and files with several hard links, a walk remembers: a pod makes as many as it likes.
const MAX_REMEMBERED: usize = 500_000;
/// How many directories are kept open, from the root on. A pod can nest more than the agent has file descriptors.
const MAX_OPEN_DIRECTORIES: usize = 64;

/// Adds up `root` and everything below it, but not what is mounted there. A symbolic link counts as itself and is not
/// followed, nor is one in place of `root`; a file with several hard links counts once. None if `root` does not exist, or
/// cannot be read. Blocks.
///
/// When the time is over, there is more to remember than it may, something cannot be read, or a directory many levels
/// down is moved meanwhile, the result is what was found: less than there is, never more. In the first two cases, it says so.
pub(crate) fn walk(root: &Path, budget: &mut WalkBudget) -> Option<DiskUse> {
    let found = budget.read(statat(CWD, root, AtFlags::SYMLINK_NOFOLLOW))?;
    let mut walk = Walk::new(&found, budget);
    let opened = openat(CWD, root, OPEN, Mode::empty());
    if let Some(directory) = walk.budget.read(opened) {
        walk.enter(directory);
        walk.finish();
    }
    Some(walk.total)
}

/// A walk from directory to directory, without paths: a pod can make a tree that is deeper than a path can be long.
struct Walk<'a> {
    budget: &'a mut WalkBudget,
    total: DiskUse,
    /// The number of entries so far.
    entries: u64,
    /// How much more it may remember.
    room: usize,
    /// The files with several hard links.
    seen: HashSet<FileId>,
    /// From the root to the directory that was entered last. Empty when the walk is over.
    levels: Vec<Level>,
    /// The directories of the first levels.
    open: Vec<OwnedFd>,
    /// The directory that was entered last, if it is deeper than those.
    deep: Option<OwnedFd>,
}

/// Each subvolume has its own inode numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
}

struct Level {
    id: FileId,
    /// The directories in it that were not entered yet.
    left: Vec<CString>,
}

impl<'a> Walk<'a> {
    fn new(root: &Stat, budget: &'a mut WalkBudget) -> Self {
        Self {
            budget,
            total: used(root),
            entries: 0,
            room: MAX_REMEMBERED,
            seen: HashSet::new(),
            levels: Vec::new(),
            open: Vec::new(),
            deep: None,
        }
    }

    fn finish(&mut self) {
        while let Some(level) = self.levels.last_mut() {
            match level.left.pop() {
                Some(name) => {
                    self.room += 1;
                    self.go_down(&name);
                }
                None => self.go_up(),
            }
        }
    }

    fn go_down(&mut self, name: &CStr) {
        let Some(above) = self.deep.as_ref().or(self.open.last()) else { return };
        let opened = openat(above, name, OPEN, Mode::empty());
        if let Some(below) = self.budget.read(opened) {
            self.enter(below);
        }
    }

    /// Adds up what is in a directory.
    fn enter(&mut self, directory: OwnedFd) {
        let Some(own) = self.budget.read(fstat(&directory)) else { return };
        let mut left = Vec::new();
        for entry in self.budget.read(Dir::read_from(&directory)).into_iter().flatten() {
            let Some(entry) = self.budget.read(entry) else { break };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if !self.has_time() {
                self.cut_short();
                self.levels.clear();
                return;
            }
            let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
            let Some(found) = self.budget.read(found) else { continue };
            // Asks once more only where something may be mounted.
            let is_elsewhere = found.st_dev != own.st_dev && self.is_mounted(&directory, name);
            if !is_elsewhere && self.count(&found) && self.remembers() {
                left.push(name.to_owned());
            }
        }
        self.levels.push(Level { id: FileId::of(&own), left });
        if self.open.len() < MAX_OPEN_DIRECTORIES {
            self.open.push(directory);
        } else {
            self.deep = Some(directory);
        }
    }

    /// Whether `name` is on another mount than the directory. What cannot be looked at is.
    fn is_mounted(&mut self, directory: &OwnedFd, name: &CStr) -> bool {
        let place = |name| FilePlace::of(directory.as_fd(), name);
        let same = place(c"").and_then(|own| Ok(place(name)?.is_on_mount_of(own)));
        let same = same.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        !self.budget.read(same).unwrap_or(false)
    }

    /// Returns whether it is a directory to enter.
    fn count(&mut self, found: &Stat) -> bool {
        let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if is_dir || found.st_nlink < 2 || self.is_first_link(FileId::of(found)) {
            self.total = self.total.and(used(found));
        }
        is_dir
    }

    fn is_first_link(&mut self, id: FileId) -> bool {
        !self.seen.contains(&id) && self.remembers() && self.seen.insert(id)
    }

    /// Whether there is room to remember something more.
    fn remembers(&mut self) -> bool {
        let room = self.room.checked_sub(1);
        self.room = room.unwrap_or(0);
        if room.is_none() {
            self.cut_short();
        }
        room.is_some()
    }

    fn has_time(&mut self) -> bool {
        self.entries += 1;
        let is_due = self.entries.is_multiple_of(ENTRIES_PER_CLOCK_CHECK);
        !is_due || Instant::now() < self.budget.until
    }

    fn cut_short(&mut self) {
        (self.total.is_partial, self.budget.is_partial) = (true, true);
    }

    /// Goes back to the directory above. If the pod has meanwhile moved a directory that is deeper than those kept open,
    /// the walk goes on in the last of these.
    fn go_up(&mut self) {
        self.levels.pop();
        let Some(below) = self.deep.take() else {
            self.open.pop();
            return;
        };
        let Some(level) = self.levels.get(MAX_OPEN_DIRECTORIES..).and_then(<[_]>::last) else {
            return;
        };
        let is_above = |fd: &OwnedFd| fstat(fd).is_ok_and(|found| FileId::of(&found) == level.id);
        match openat(below, c"..", OPEN, Mode::empty()).ok().filter(is_above) {
            Some(above) => self.deep = Some(above),
            None => self.levels.truncate(MAX_OPEN_DIRECTORIES),
        }
    }
}

impl FileId {
    fn of(found: &Stat) -> Self {
        Self { device: found.st_dev, inode: found.st_ino }
    }
}

impl WalkBudget {
    /// What is removed meanwhile, or replaced by something else than a directory, takes no space. What cannot be read may.
    fn read<T>(&mut self, read: rustix::io::Result<T>) -> Option<T> {
        let is_nothing = |error| matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
        self.is_partial |= read.as_ref().is_err_and(|&error| !is_nothing(error));
        read.ok()
    }
}

/// The allocated space: less than the length for a sparse file.
fn used(found: &Stat) -> DiskUse {
    let blocks = u64::try_from(found.st_blocks).unwrap_or_default();
    DiskUse { bytes: blocks.saturating_mul(512), inodes: 1, is_partial: false }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use rustix::fs::mkdirat;

    use super::*;

    fn budget() -> WalkBudget {
        WalkBudget { until: Instant::now() + Duration::from_secs(3600), is_partial: false }
    }

    #[test]
    fn a_tree_is_added_up_once_whatever_names_its_files_have() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(at("a/b/file"), at("a/again")).unwrap();
        std::os::unix::fs::symlink("/", at("out")).unwrap();
        let total = walk(root.path(), &mut budget()).unwrap();
        // The root, two directories, the file, the link.
        assert_eq!(total.inodes, 5);
        assert!((98_304..400_000).contains(&total.bytes), "{total:?}");
        assert_eq!(walk(&at("out"), &mut budget()).unwrap().inodes, 1, "a link as the root");
    }

    #[test]
    fn holes_take_no_room() {
        let root = tempfile::tempdir().unwrap();
        fs::File::create(root.path().join("holes")).unwrap().set_len(1 << 40).unwrap();
        assert!(walk(root.path(), &mut budget()).unwrap().bytes < 1 << 20);
    }

    #[test]
    fn other_file_systems_are_left_out_and_a_file_is_a_tree_too() {
        let proc = walk(Path::new("/proc/self/status"), &mut budget()).unwrap();
        assert_eq!(proc.inodes, 1);
        let mut missing = budget();
        assert_eq!(walk(Path::new("/nowhere"), &mut missing), None);
        assert!(!missing.is_partial);
    }

    /// For example because no file descriptor is left.
    #[test]
    fn what_cannot_be_read_does_not_count_as_empty() {
        let mut unreadable = budget();
        assert_eq!(walk(Path::new(&"x".repeat(5000)), &mut unreadable), None);
        assert!(unreadable.is_partial);
        for (error, expected) in [(Errno::MFILE, true), (Errno::IO, true), (Errno::NOENT, false)] {
            let mut budget = budget();
            assert_eq!(budget.read::<()>(Err(error)), None);
            assert_eq!(budget.is_partial, expected, "{error}");
        }
    }

    /// A path ends at 4096 bytes; a container that goes on from there must not hide what it stores.
    #[test]
    fn a_tree_is_added_up_that_is_deeper_than_a_path_can_be_long() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut at = openat(CWD, &tree, OPEN, Mode::empty()).unwrap();
        for level in 0..2500 {
            // In whichever order a directory is read, some of these are entered on the way back.
            for name in [format!("a{level}"), "d".to_owned(), format!("z{level}")] {
                mkdirat(&at, name, Mode::RWXU).unwrap();
            }
            at = openat(&at, "d", OPEN, Mode::empty()).unwrap();
        }
        let total = walk(&tree, &mut budget()).unwrap();
        // Before the temporary directory is: std's way of removing it needs a descriptor for each level.
        winddown_host::removal::tree(&tree).unwrap();
        assert_eq!(total.inodes, 1 + 3 * 2500);
    }

    #[test]
    fn a_walk_does_not_follow_a_directory_that_is_moved_out_of_the_tree() {
        let root = tempfile::tempdir().unwrap();
        let (tree, elsewhere) = (root.path().join("tree"), root.path().join("elsewhere"));
        let deepest = tree.join("d/".repeat(MAX_OPEN_DIRECTORIES + 1));
        fs::create_dir_all(&deepest).unwrap();
        fs::write(deepest.join("file"), "x").unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let mut budget = budget();
        let mut walk = Walk::new(&rustix::fs::stat(&tree).unwrap(), &mut budget);
        walk.enter(openat(CWD, &tree, OPEN, Mode::empty()).unwrap());
        while let Some(name) = walk.levels.last_mut().unwrap().left.pop() {
            walk.go_down(&name);
        }
        fs::rename(&deepest, elsewhere.join("d")).unwrap();
        // There is one with this name in the other directory too.
        walk.levels[MAX_OPEN_DIRECTORIES].left.push(c"d".to_owned());
        let before = walk.total;
        walk.finish();
        assert_eq!(walk.total, before);
    }

    #[test]
    fn a_walk_that_runs_out_of_time_tells_what_it_found_and_that_there_is_more() {
        let root = tempfile::tempdir().unwrap();
        (0..300).for_each(|n| fs::write(root.path().join(n.to_string()), "x").unwrap());
        let mut late = WalkBudget { until: Instant::now(), is_partial: false };
        let found = walk(root.path(), &mut late).unwrap();
        assert!(found.inodes < 301 && found.is_partial && late.is_partial, "{found:?}");
        let mut in_time = budget();
        let found = walk(root.path(), &mut in_time).unwrap();
        assert!(found.inodes == 301 && !found.is_partial && !in_time.is_partial, "{found:?}");
    }

    #[test]
    fn a_walk_that_cannot_remember_all_directories_and_links_counts_the_rest_and_says_so() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for n in 0..5 {
            fs::create_dir(at(&format!("d{n}"))).unwrap();
            fs::write(at(&format!("d{n}/file")), "x").unwrap();
            fs::write(at(&format!("f{n}")), "x").unwrap();
        }
        let walked = |room| {
            let mut budget = budget();
            let mut walk = Walk::new(&rustix::fs::stat(root.path()).unwrap(), &mut budget);
            walk.room = room;
            walk.enter(openat(CWD, root.path(), OPEN, Mode::empty()).unwrap());
            walk.finish();
            (walk.total.inodes, walk.total.is_partial)
        };
        assert_eq!(walked(5), (16, false));
        assert_eq!(walked(3), (14, true), "two directories are not entered");
        (0..5).for_each(|n| fs::hard_link(at(&format!("f{n}")), at(&format!("g{n}"))).unwrap());
        assert_eq!(walked(10), (16, false), "a file counts once");
        assert!(matches!(walked(9), (15 | 14, true)), "a file or a directory is left out");
    }
}
