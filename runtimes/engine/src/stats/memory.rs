//! Reclaims memory from running pods.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::Instant;
use winddown_shared::{Freed, MemoryFigure, RuntimeError};

use super::CgroupDirs;
use super::cgroup::value;
use crate::failure::{blocking, caused};

/// Has the kernel reclaim memory from these cgroups, the largest first, until `figure` has fallen by `bytes` or `time`
/// is over. Dropping the future ends it after a few MiB.
///
/// # Errors
/// The kernel reclaimed nothing, and from one of them it cannot, see [`CgroupDirs::reclaim`].
pub async fn reclaim_memory(
    find: impl FnOnce() -> Vec<CgroupDirs> + Send + 'static,
    figure: MemoryFigure,
    bytes: u64,
    time: Duration,
) -> Result<Freed, RuntimeError> {
    let (waits, until) = (Arc::new(()), Instant::now() + time);
    let is_waited_for = Arc::downgrade(&waits);
    let goes_on = move || is_waited_for.strong_count() > 0 && Instant::now() < until;
    let taken = blocking(move || {
        let mut all = find();
        all.sort_by_cached_key(|dirs| {
            std::cmp::Reverse(dirs.memory().map(|memory| value(&memory, figure)))
        });
        let fallen = reclaim(&all, figure, bytes, &goes_on)
            .map_err(|error| caused("having the kernel reclaim memory", error))?;
        Ok(Freed::new(0, fallen))
    });
    let taken = taken.await;
    drop(waits);
    taken
}

/// Has the kernel reclaim memory from each of these cgroups in turn. Returns by how much `figure` has fallen.
fn reclaim(
    all: &[CgroupDirs],
    figure: MemoryFigure,
    bytes: u64,
    goes_on: impl Fn() -> bool,
) -> io::Result<u64> {
    let (mut fallen, mut left) = (0_u64, Ok(()));
    for dirs in all {
        match dirs.reclaim(figure, bytes.saturating_sub(fallen), &goes_on) {
            Ok(more) => fallen = fallen.saturating_add(more),
            Err(error) if is_gone(&error) => {}
            // What the pod's other containers have is reclaimed all the same.
            Err(error) => left = Err(error),
        }
    }
    if fallen == 0 { left.map(|()| 0) } else { Ok(fallen) }
}

/// Whether the container has exited meanwhile: before its file was opened, or before it was written to.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    #[test]
    fn a_container_whose_memory_cannot_be_reclaimed_does_not_keep_that_of_the_others() {
        let root = tempfile::tempdir().unwrap();
        let cgroup = |name: &str| {
            let dir = root.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("memory.current"), "20000000\n").unwrap();
            fs::write(dir.join("memory.stat"), "inactive_anon 8000000\ninactive_file 0\n").unwrap();
            CgroupDirs::among(&[dir]).unwrap()
        };
        let [refuses, gone, works] = ["refuses", "gone", "works"].map(cgroup);
        fs::create_dir(root.path().join("refuses/memory.reclaim")).unwrap();
        fs::write(root.path().join("works/memory.reclaim"), "").unwrap();
        let asked = Cell::new(0);
        let goes_on = || {
            asked.set(asked.get() + 1);
            if asked.get() > 2 {
                fs::write(
                    root.path().join("works/memory.stat"),
                    "inactive_anon 0\ninactive_file 0\n",
                )
                .unwrap();
            }
            true
        };
        let reclaim = |all: &[CgroupDirs]| reclaim(all, MemoryFigure::Anonymous, 1, goes_on);
        assert!(reclaim(std::slice::from_ref(&refuses)).is_err());
        assert_eq!(reclaim(std::slice::from_ref(&gone)).unwrap(), 0);
        asked.set(0);
        assert_eq!(reclaim(&[refuses, gone, works]).unwrap(), 8_000_000);
        assert!(is_gone(&Errno::NODEV.into()) && !is_gone(&Errno::INVAL.into()));
    }
}
