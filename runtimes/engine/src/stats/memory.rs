//! Reclaims memory from running pods.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{Freed, MemoryFigure, RuntimeError};

use super::CgroupDirs;
use super::cgroup::value;
use crate::failure::{blocking, caused};

/// Has the kernel reclaim memory from these cgroups, the largest first, until `figure` has fallen by `bytes` or `time`
/// is over. Dropping the future ends it after a few MiB.
///
/// # Errors
/// The kernel cannot reclaim memory, see [`CgroupDirs::reclaim`].
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
        let mut fallen = 0_u64;
        for dirs in &all {
            match dirs.reclaim(figure, bytes.saturating_sub(fallen), &goes_on) {
                Ok(more) => fallen = fallen.saturating_add(more),
                // The container has exited meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(caused("having the kernel reclaim memory", error)),
            }
        }
        Ok(Freed::new(0, fallen))
    });
    let taken = taken.await;
    drop(waits);
    taken
}
