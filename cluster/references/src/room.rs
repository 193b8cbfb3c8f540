//! Keeps the volumes of all pods from filling the memory file system that they are in. Blocking.
//!
//! It is `/run`, which systemd, D-Bus and the agent's own records need as well. A kubelet mounts a file system for each
//! volume, and bounds each by what the node has for pods; here all volumes share one file system and one bound.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};

use super::payload::Payload;

use winddown_shared::Mutex;

/// The type of a tmpfs, see statfs(2).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// One part in so many stays free of volumes.
const FREE_PART: u64 = 2;

/// The room for volumes in a memory file system: they may take it until half of the file system is in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeRoom(Arc<Mutex<()>>);

/// What a file system has, or a volume takes. A file takes whole blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amounts {
    blocks: u64,
    inodes: u64,
}

// === impl VolumeRoom ===

impl VolumeRoom {
    /// Waits for the turn to write `files` to `volume` below `directory`. Until it is dropped no other volume is written,
    /// so that the room that was found is still there.
    ///
    /// # Errors
    /// With the files, more than half of the file system would be in use. A volume that takes no more than before may
    /// always be written: a renewed token never waits for room.
    pub(crate) fn turn(
        &self,
        directory: &Path,
        volume: &Path,
        files: &Payload,
    ) -> io::Result<MutexGuard<'_, ()>> {
        let turn = self.0.lock();
        if !is_in_memory(directory)? {
            return Ok(turn);
        }
        let found = rustix::fs::statvfs(directory)?;
        let all = Amounts { blocks: found.f_blocks, inodes: found.f_files };
        let free = Amounts { blocks: found.f_bavail, inodes: found.f_favail };
        let wanted = Amounts::of(files, found.f_frsize.max(1));
        if wanted.fit(all, free) || wanted.are_within(Amounts::taken(volume, found.f_frsize.max(1)))
        {
            return Ok(turn);
        }
        Err(io::Error::other(no_room(wanted, all, free, &mount_of(directory)?, found.f_frsize)))
    }
}

/// Says that a volume finds no room in the file system mounted at `mount`, and what to do: whether it is too large by
/// itself, or others take the room, of pods or not.
fn no_room(wanted: Amounts, all: Amounts, free: Amounts, mount: &Path, block: u64) -> String {
    let mount = mount.display();
    let (most, size, count) = match fits(all.blocks, free.blocks, wanted.blocks) {
        false => {
            let most = (all.blocks.saturating_mul(block) / FREE_PART) >> 20;
            (format!("{most} MiB"), "size", "")
        }
        true => (format!("{} files", all.inodes / FREE_PART), "nr_inodes", "--inodes "),
    };
    let next = match wanted.fit(all, all) {
        false => format!(
            "this volume alone takes more: refer to fewer keys, or allow more \
             (`mount -o remount,{size}=… {mount}`)"
        ),
        true => format!(
            "`du {count}-xd2 {mount}` shows what takes it: terminate pods with large Secrets or \
             ConfigMaps, or remove what is not of pods"
        ),
    };
    format!(
        "no room: more than half of {mount}, which is in memory, would be in use ({most}); {next}"
    )
}

/// Where the file system of the directory is mounted.
fn mount_of(directory: &Path) -> io::Result<PathBuf> {
    let device = fs::metadata(directory)?.dev();
    let same = |path: &&Path| fs::metadata(path).is_ok_and(|found| found.dev() == device);
    Ok(directory.ancestors().take_while(same).last().unwrap_or(directory).to_owned())
}

/// Whether the directory is in memory, as `/run` is. The room on a disk is not this crate's: nothing there starves systemd.
fn is_in_memory(directory: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statfs(directory)?.f_type == TMPFS_MAGIC)
}

// === impl Amounts ===

impl Amounts {
    /// What the files take of a file system with blocks of this size: each is an inode, and so is the link to it.
    fn of(files: &Payload, block: u64) -> Self {
        let blocks = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(block);
        Self {
            blocks: files.values().map(|file| blocks(file.bytes.bytes().len())).sum(),
            inodes: u64::try_from(files.len()).unwrap_or(u64::MAX).saturating_mul(2),
        }
    }

    /// What is in the directory now; what cannot be read counts as nothing.
    fn taken(directory: &Path, block: u64) -> Self {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.fold(Self::default(), |Self { blocks, inodes }, entry| {
            let Ok(meta) = entry.metadata() else { return Self { blocks, inodes } };
            let below =
                if meta.is_dir() { Self::taken(&entry.path(), block) } else { Self::default() };
            // The system counts in units of 512 bytes, whatever the file system's blocks are.
            let own = (meta.blocks() * 512).div_ceil(block);
            Self { blocks: blocks + own + below.blocks, inodes: inodes + 1 + below.inodes }
        })
    }

    fn are_within(self, other: Self) -> bool {
        self.blocks <= other.blocks && self.inodes <= other.inodes
    }

    /// Whether half of the file system is still free with these. One without a bound reports none.
    fn fit(self, all: Self, free: Self) -> bool {
        fits(all.blocks, free.blocks, self.blocks) && fits(all.inodes, free.inodes, self.inodes)
    }
}

fn fits(all: u64, free: u64, wanted: u64) -> bool {
    all == 0 || free.saturating_sub(wanted) >= all / FREE_PART
}

#[cfg(test)]
mod tests {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use winddown_shared::WallTime;

    use super::*;
    use crate::atomic;
    use crate::payload::File;

    /// A memory file system of 1 MiB; none, and a skipped test, where it cannot be mounted.
    struct Mounted(tempfile::TempDir);

    impl Mounted {
        fn new(test: &str) -> Option<Self> {
            let directory = tempfile::tempdir().unwrap();
            let options = Some(c"size=1m");
            match mount("tmpfs", directory.path(), "tmpfs", MountFlags::NOSUID, options) {
                Ok(()) => Some(Self(directory)),
                Err(lacks) => {
                    println!("SKIPPED: {test}: needs to mount a tmpfs: {lacks}");
                    assert!(
                        std::env::var_os("WINDDOWN_NO_SKIP").is_none(),
                        "skipped: {test}: {lacks}"
                    );
                    None
                }
            }
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = unmount(self.0.path(), UnmountFlags::DETACH);
        }
    }

    fn files(keys: usize, bytes: usize) -> Payload {
        let file = || File { bytes: vec![b'x'; bytes].into(), mode: 0o644, owner: None };
        (0..keys).map(|key| (format!("key{key}"), file())).collect()
    }

    #[test]
    fn volumes_may_take_blocks_and_inodes_until_half_of_the_file_system_is_in_use() {
        let of = |blocks, inodes| Amounts { blocks, inodes };
        for (wanted, free, fits) in [
            (of(50, 2), of(100, 100), true),
            (of(51, 2), of(100, 100), false),
            (of(2, 51), of(100, 100), false),
            (of(20, 2), of(70, 100), true),
            // What others took counts as well: `/run` is theirs.
            (of(21, 2), of(70, 100), false),
            (of(1, 2), of(50, 100), false),
            (of(0, 0), of(0, 0), false),
        ] {
            assert_eq!(wanted.fit(of(100, 100), free), fits, "{wanted:?} of {free:?}");
        }
        assert!(of(1 << 40, 2).fit(of(0, 100), of(0, 100)), "no bound in bytes");
        assert_eq!(Amounts::of(&files(3, 4097), 4096), of(6, 6));
        assert_eq!(Amounts::of(&files(3, 0), 4096), of(0, 6));
    }

    #[test]
    fn what_is_advised_fits_what_takes_the_room() {
        let of = |blocks, inodes| Amounts { blocks, inodes };
        let said = |wanted, free| no_room(wanted, of(512, 512), free, Path::new("/run"), 4096);
        let (used, empty) = (of(260, 260), of(512, 512));
        for (said, next) in [
            (said(of(10, 2), used), "would be in use (1 MiB); `du -xd2 /run` shows"),
            (said(of(1, 10), used), "would be in use (256 files); `du --inodes -xd2 /run` shows"),
            (
                said(of(300, 2), empty),
                "alone takes more: refer to fewer keys, or allow more (`mount -o remount,size=",
            ),
            (said(of(1, 300), empty), "or allow more (`mount -o remount,nr_inodes=… /run`)"),
        ] {
            assert!(said.contains(next), "{said}");
        }
    }

    #[test]
    fn pods_together_leave_half_of_a_memory_file_system_free_and_a_volume_is_renewed_in_it() {
        let test =
            "pods_together_leave_half_of_a_memory_file_system_free_and_a_volume_is_renewed_in_it";
        let Some(mount) = Mounted::new(test) else { return };
        let directory = mount.0.path();
        let room = VolumeRoom::default();
        let now = WallTime::UNIX_EPOCH;
        let put = |volume: &str, files: &Payload| {
            let volume = directory.join(volume);
            room.turn(directory, &volume, files)
                .and_then(|_turn| atomic::write(&volume, files, None, now))
        };
        let each = files(10, 4096);
        let made =
            (0..100).take_while(|number| put(&format!("pod{number}"), &each).is_ok()).count();
        assert!((9..=12).contains(&made), "{made} volumes of 40 KiB in half of 1 MiB");
        let free = || rustix::fs::statvfs(directory).unwrap();
        assert!(free().f_bavail >= free().f_blocks / 2, "{}", free().f_bavail);
        let said = put("late", &each).unwrap_err().to_string();
        let shown = format!("`du -xd2 {}` shows what takes it", directory.display());
        assert!(said.starts_with("no room") && said.contains(&shown), "{said}");
        let mut renewed = files(10, 4096);
        renewed.get_mut("key0").unwrap().bytes = vec![b'y'; 4096].into();
        assert!(put("pod0", &renewed).unwrap(), "as large as before");
        assert!(put("pod0", &files(11, 4096)).is_err(), "larger than before");
    }
}
