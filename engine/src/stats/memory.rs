//! Takes memory back from running pods.

use std::io;

use tokio_util::sync::CancellationToken;
use winddown_shared::{Freed, MemoryFigure, RuntimeError};

use super::CgroupDirs;
use crate::failure::{blocking, caused};

/// Has the kernel take back memory of these cgroups, one after the other, until `figure` has fallen by `bytes`. Dropping
/// the future ends it after a few MiB.
///
/// # Errors
/// The kernel cannot, see [`CgroupDirs::reclaim`].
pub async fn reclaim_memory(
    find: impl FnOnce() -> Vec<CgroupDirs> + Send + 'static,
    figure: MemoryFigure,
    bytes: u64,
) -> Result<Freed, RuntimeError> {
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    blocking(move || {
        let fallen = find().iter().try_fold(0, |fallen: u64, dirs| {
            let left = bytes.saturating_sub(fallen);
            let more = dirs.reclaim(figure, left, || !stop.is_cancelled())?;
            io::Result::Ok(fallen.saturating_add(more))
        });
        let what = "having the kernel take back memory";
        fallen.map(|bytes| Freed { items: 0, bytes }).map_err(|error| caused(what, error))
    })
    .await
}
