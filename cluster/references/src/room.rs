//! Keeps what pods have in memory, their volumes and their records, from filling the file system that it is in. Blocking.
//!
//! It is `/run`, which systemd, D-Bus and the agent's own records need as well. A kubelet mounts a file system for each
//! volume, bounds each by what the node has for pods, and keeps no variables; here all share one file system and one bound.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};

use super::payload::{Payload, directories};

use winddown_cluster::pods::PrepareError;
use winddown_host::is_on_tmpfs;
use winddown_shared::{Mutex, PodUid, PodUidMap};

/// What a pod may take without being large: the token of any pod, and a few keys.
const SMALL: u64 = 256 << 10;
/// How many inodes it may take.
const SMALL_INODES: u64 = 256;
/// The variables of a record are in the memory of the agent as well, so often.
const COPIES: u64 = 2;
/// A record may always grow by this much: a pod that has to terminate gets a time.
const GROWTH: u64 = 4096;

/// The room of a node for what the API server's pods have in memory. Large volumes and records may take it until half of
/// the file system is in use, so that a pod with a small one, above all a token, still finds room. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryRoom(Arc<Mutex<Records>>);

/// The bytes of the record of each pod.
type Records = PodUidMap<u64>;

/// The turn to write. Until it is dropped nothing else is written, so that the room that was found is still there.
#[derive(Debug)]
pub struct RoomTurn<'a> {
    _records: MutexGuard<'a, Records>,
}

/// What is to be written.
#[derive(Clone, Copy, Debug)]
struct RoomRequest {
    what: &'static str,
    amounts: Amounts,
    is_small: bool,
}

/// What a file system has, or a volume takes. A file takes whole blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amounts {
    blocks: u64,
    inodes: u64,
}

// === impl MemoryRoom ===

impl MemoryRoom {
    /// Waits for the turn to write `files` to `volume` below `directory`. The room on a disk is not this crate's: nothing
    /// there starves systemd.
    ///
    /// # Errors
    /// There is no room. A volume that takes no more than before may always be written: a renewed token never waits.
    pub(crate) fn turn(
        &self,
        directory: &Path,
        volume: &Path,
        files: &Payload,
    ) -> io::Result<RoomTurn<'_>> {
        let records = self.0.lock();
        if !is_on_tmpfs(directory)? {
            return Ok(RoomTurn { _records: records });
        }
        let found = FoundRoom::of(directory, &records)?;
        let amounts = Amounts::of(files, found.block);
        let before = || Amounts::taken(volume, found.block);
        let of_pod = || volume.parent().map(|all| Amounts::taken(all, found.block));
        let mut wanted = RoomRequest { what: "volume", amounts, is_small: false };
        if wanted.fits(&found) || amounts.are_within(before()) {
            return Ok(RoomTurn { _records: records });
        }
        let beside = of_pod().unwrap_or_default().without(before());
        wanted.is_small = amounts.with(beside).are_within(Amounts::small(found.block));
        match wanted.fits(&found) {
            true => Ok(RoomTurn { _records: records }),
            false => Err(io::Error::other(no_room(wanted, &found, &mount_of(directory)?))),
        }
    }

    /// Waits for the turn to write a record of so many bytes of a pod below `directory`, which exists. Where the file
    /// system cannot be asked there is room: that is no reason not to run a pod.
    ///
    /// # Errors
    /// There is no room. For a record that grows by little, as for the end of its pod, there always is.
    pub fn turn_of_record(
        &self,
        directory: &Path,
        uid: &PodUid,
        bytes: u64,
    ) -> Result<RoomTurn<'_>, PrepareError> {
        let mut records = self.0.lock();
        let before = records.get(uid).copied();
        let found = match is_on_tmpfs(directory) {
            Ok(true) => FoundRoom::of(directory, &records).ok(),
            Ok(false) | Err(_) => None,
        };
        if let (Some(found), Ok(mount)) = (found, mount_of(directory))
            && before.is_none_or(|before| bytes > before + GROWTH)
        {
            let blocks = bytes.saturating_mul(1 + COPIES).div_ceil(found.block);
            let amounts = Amounts { blocks, inodes: 1 };
            let wanted =
                RoomRequest { what: "pod with its variables", amounts, is_small: bytes <= SMALL };
            if !wanted.fits(&found) {
                let what = no_room(wanted, &found, &mount);
                return Err(PrepareError::Unavailable { what, after: None });
            }
        }
        // A smaller one is of a pod that has terminated: the agent does not have its variables any more either.
        records.insert(uid.clone(), bytes);
        Ok(RoomTurn { _records: records })
    }

    /// Counts the record that an earlier agent wrote.
    pub fn note_record(&self, uid: &PodUid, bytes: u64) {
        self.0.lock().insert(uid.clone(), bytes);
    }

    /// Counts the pod no more: the agent does not have it any more either.
    pub fn forget_record(&self, uid: &PodUid) {
        self.0.lock().remove(uid);
    }
}

/// A memory file system, and what is free in it.
#[derive(Clone, Copy, Debug)]
struct FoundRoom {
    all: Amounts,
    free: Amounts,
    /// Bytes of a block.
    block: u64,
}

impl FoundRoom {
    fn of(directory: &Path, records: &Records) -> io::Result<Self> {
        let found = rustix::fs::statvfs(directory)?;
        let block = found.f_frsize.max(1);
        // What the agent has in memory is not free either.
        let copies =
            records.values().fold(0_u64, |all, one| all.saturating_add(one.saturating_mul(COPIES)));
        Ok(Self {
            all: Amounts { blocks: found.f_blocks, inodes: found.f_files },
            free: Amounts {
                blocks: found.f_bavail.saturating_sub(copies.div_ceil(block)),
                inodes: found.f_favail,
            },
            block,
        })
    }
}

// === impl RoomRequest ===

impl RoomRequest {
    /// One part in so many stays free.
    fn free_part(self) -> u64 {
        if self.is_small { 4 } else { 2 }
    }

    /// Whether as much is free with this as has to be. A file system without a bound reports none.
    fn fits(self, FoundRoom { all, free, .. }: &FoundRoom) -> bool {
        self.fits_in(all.blocks, free.blocks, self.amounts.blocks)
            && self.fits_in(all.inodes, free.inodes, self.amounts.inodes)
    }

    fn fits_in(self, all: u64, free: u64, wanted: u64) -> bool {
        all == 0 || free.saturating_sub(wanted) >= all / self.free_part()
    }
}

/// Says that something finds no room in the file system mounted at `mount`, and what to do: whether it is too large by
/// itself, or others take the room, of pods or not.
fn no_room(wanted: RoomRequest, found: &FoundRoom, mount: &Path) -> String {
    let (mount, FoundRoom { all, free, block }) = (mount.display(), *found);
    let part = if wanted.is_small { "three quarters" } else { "half" };
    let may = |all: u64| all / wanted.free_part() * (wanted.free_part() - 1);
    let (most, size, count) = match wanted.fits_in(all.blocks, free.blocks, wanted.amounts.blocks) {
        false => (format!("{} MiB", may(all.blocks.saturating_mul(block)) >> 20), "size", ""),
        true => (format!("{} files", may(all.inodes)), "nr_inodes", "--inodes "),
    };
    let next = match wanted.fits(&FoundRoom { free: all, ..*found }) {
        false => format!(
            "this {} alone takes more: refer to fewer keys, or allow more \
             (`mount -o remount,{size}=… {mount}`)",
            wanted.what
        ),
        true => format!(
            "`du {count}-xd2 {mount}` shows what takes it: terminate pods with large Secrets or \
             ConfigMaps, or remove what is not of pods"
        ),
    };
    format!(
        "no room: more than {part} of {mount}, which is in memory, would be in use ({most}); {next}"
    )
}

/// Where the file system of the directory is mounted.
fn mount_of(directory: &Path) -> io::Result<PathBuf> {
    let device = fs::metadata(directory)?.dev();
    let same = |path: &&Path| fs::metadata(path).is_ok_and(|found| found.dev() == device);
    Ok(directory.ancestors().take_while(same).last().unwrap_or(directory).to_owned())
}

// === impl Amounts ===

impl Amounts {
    /// What the files take of a file system with blocks of this size: each is an inode, and so are the link to it and each
    /// directory, which has no blocks in memory.
    fn of(files: &Payload, block: u64) -> Self {
        let blocks = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(block);
        Self {
            blocks: files.values().map(|file| blocks(file.bytes.bytes().len())).sum(),
            inodes: u64::try_from(2 * files.len() + directories(files)).unwrap_or(u64::MAX),
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

    /// What a pod may take without being large.
    fn small(block: u64) -> Self {
        Self { blocks: SMALL.div_ceil(block), inodes: SMALL_INODES }
    }

    fn are_within(self, other: Self) -> bool {
        self.blocks <= other.blocks && self.inodes <= other.inodes
    }

    fn with(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_add(other.blocks),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    fn without(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_sub(other.blocks),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use winddown_shared::WallTime;

    use super::*;
    use crate::atomic;
    use crate::payload::File;

    /// A memory file system; none, and a skipped test, where it cannot be mounted.
    struct Mounted(tempfile::TempDir);

    impl Mounted {
        fn new(test: &str, size: &CStr) -> Option<Self> {
            let directory = tempfile::tempdir().unwrap();
            match mount("tmpfs", directory.path(), "tmpfs", MountFlags::NOSUID, Some(size)) {
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

    fn of(blocks: u64, inodes: u64) -> Amounts {
        Amounts { blocks, inodes }
    }

    fn wanted(amounts: Amounts, is_small: bool) -> RoomRequest {
        RoomRequest { what: "volume", amounts, is_small }
    }

    #[test]
    fn pods_may_take_blocks_and_inodes_until_half_is_in_use_and_with_little_three_quarters() {
        let fits = |amounts, free, is_small| {
            let found = FoundRoom { all: of(100, 100), free, block: 4096 };
            wanted(amounts, is_small).fits(&found)
        };
        for (wanted, free, fit) in [
            (of(50, 2), of(100, 100), true),
            (of(51, 2), of(100, 100), false),
            (of(2, 51), of(100, 100), false),
            (of(20, 2), of(70, 100), true),
            // What others took counts as well: `/run` is theirs.
            (of(21, 2), of(70, 100), false),
            (of(1, 2), of(50, 100), false),
            (of(0, 0), of(0, 0), false),
        ] {
            assert_eq!(fits(wanted, free, false), fit, "{wanted:?} of {free:?}");
        }
        assert!(fits(of(5, 2), of(30, 100), true) && !fits(of(6, 2), of(30, 100), true));
        let unbounded = FoundRoom { all: of(0, 100), free: of(0, 100), block: 4096 };
        assert!(wanted(of(1 << 40, 2), false).fits(&unbounded), "no bound in bytes");
        assert_eq!(Amounts::of(&files(3, 4097), 4096), of(6, 6));
        assert_eq!(Amounts::of(&files(3, 0), 4096), of(0, 6));
    }

    #[test]
    fn what_is_advised_fits_what_takes_the_room() {
        let said = |amounts, free, is_small| {
            let found = FoundRoom { all: of(512, 512), free, block: 4096 };
            no_room(wanted(amounts, is_small), &found, Path::new("/run"))
        };
        let (used, full, empty) = (of(260, 260), of(128, 128), of(512, 512));
        for (said, next) in [
            (
                said(of(10, 2), used, false),
                "half of /run, which is in memory, would be in use (1 MiB)",
            ),
            (said(of(10, 2), used, false), "`du -xd2 /run` shows"),
            (said(of(10, 2), full, true), "three quarters of /run, which is in memory"),
            (said(of(1, 10), used, false), "in use (256 files); `du --inodes -xd2 /run` shows"),
            (
                said(of(300, 2), empty, false),
                "alone takes more: refer to fewer keys, or allow more (`mount -o remount,size=",
            ),
            (said(of(1, 300), empty, false), "or allow more (`mount -o remount,nr_inodes=… /run`)"),
        ] {
            assert!(said.contains(next), "{said}");
        }
    }

    #[test]
    fn large_records_leave_room_for_the_agents_copies_of_them_and_for_every_token() {
        let test = "large_records_leave_room_for_the_agents_copies_of_them_and_for_every_token";
        let Some(mount) = Mounted::new(test, c"size=16m") else { return };
        let (directory, room) = (mount.0.path(), MemoryRoom::default());
        let record = |uid: &str, bytes: usize| {
            let uid = PodUid::new(uid);
            let turn = room.turn_of_record(directory, &uid, u64::try_from(bytes).unwrap());
            turn.map(|_turn| fs::write(directory.join(uid.as_str()), vec![b'x'; bytes]).unwrap())
        };
        let made = (0..16).take_while(|n| record(&format!("u{n}"), 1 << 20).is_ok()).count();
        assert_eq!(made, 2, "each of 1 MiB is there three times, and 8 MiB may be taken");
        let refused = record("late", 1 << 20).unwrap_err().to_string();
        assert!(refused.starts_with("no room: more than half"), "{refused}");
        record("u0", (1 << 20) + 100).expect("a pod is told when it has to terminate");
        record("small", 8 << 10).unwrap();
        let volume = |pod: &str, files: &Payload| {
            room.turn(directory, &directory.join(pod).join("volume"), files).map(drop)
        };
        volume("other", &files(3, 2000)).expect("a token");
        let large = volume("other", &files(3, 1 << 20)).unwrap_err().to_string();
        assert!(large.starts_with("no room: more than half"), "{large}");
        room.forget_record(&PodUid::new("u1"));
        fs::remove_file(directory.join("u1")).unwrap();
        record("late", 1 << 20).expect("one has gone");
        record("u0", 1 << 10).unwrap();
        record("later", 1 << 20).expect("one has terminated, and has no variables any more");
    }

    #[test]
    fn a_pod_with_many_small_volumes_is_a_large_one() {
        let test = "a_pod_with_many_small_volumes_is_a_large_one";
        let Some(mount) = Mounted::new(test, c"size=4m") else { return };
        let (directory, room) = (mount.0.path(), MemoryRoom::default());
        fs::write(directory.join("of others"), vec![b'x'; 2 << 20]).unwrap();
        let put = |pod: &str, number: usize| {
            let (volume, files) = (directory.join(pod).join(number.to_string()), files(10, 4096));
            fs::create_dir_all(directory.join(pod)).unwrap();
            let written = room
                .turn(directory, &volume, &files)
                .and_then(|_turn| atomic::write(&volume, &files, None, WallTime::UNIX_EPOCH));
            written.is_ok()
        };
        let made = (0..64).take_while(|number| put("many", *number)).count();
        assert!((4..=6).contains(&made), "{made} volumes of 40 KiB in 256 KiB");
        assert!(put("other", 0));
    }

    #[test]
    fn directories_of_a_volume_count_as_what_they_take() {
        let test = "directories_of_a_volume_count_as_what_they_take";
        let Some(mount) = Mounted::new(test, c"size=4m") else { return };
        let (directory, volume) = (mount.0.path(), mount.0.path().join("volume"));
        let deep = format!("{}f", "a/".repeat(300));
        let paths = ["a-b/f", "a/b/f", "a/b/g", "a/bc/f", &deep, "b/c/d/f", "f"];
        let file = || File { bytes: vec![b'x'].into(), mode: 0o644, owner: None };
        let files: Payload = paths.iter().map(|path| ((*path).to_owned(), file())).collect();
        atomic::write(&volume, &files, None, WallTime::UNIX_EPOCH).unwrap();
        let (counted, taken) = (Amounts::of(&files, 4096), Amounts::taken(directory, 4096));
        // Each part of a path at the top has a link instead of each file.
        assert!(counted.inodes.abs_diff(taken.inodes) <= 4, "{counted:?} {taken:?}");
        assert_eq!(counted.blocks, taken.blocks);
    }

    #[test]
    fn pods_together_leave_half_of_a_memory_file_system_free_and_a_volume_is_renewed_in_it() {
        let test =
            "pods_together_leave_half_of_a_memory_file_system_free_and_a_volume_is_renewed_in_it";
        let Some(mount) = Mounted::new(test, c"size=1m") else { return };
        let directory = mount.0.path();
        let room = MemoryRoom::default();
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
