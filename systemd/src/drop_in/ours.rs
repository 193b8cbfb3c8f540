//! Decides what the agent's own drop-in must contain, given the other drop-ins.
//!
//! The delay has several owners. Each may need more than systemd's default, and none may shorten
//! the delay of another. Our file sorts last, so it must not exist if the other files set a long
//! enough delay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::write::{self, WriteError, Written};
use super::{DEFAULT_DELAY, Source, effective, merge, name_of};

/// The required state of the agent's drop-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequiredDropIn {
    /// Absent: logind's delay is long enough without it.
    Absent,
    /// Present, with this delay, which is longer than logind's without it.
    Present(Duration),
}

/// The result of [`apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Applied {
    /// The files are already as required.
    Nothing,
    /// The drop-in was written.
    Wrote {
        /// Its path on the node.
        file: PathBuf,
    },
    /// The drop-in was removed.
    Removed {
        /// Its path on the node.
        file: PathBuf,
    },
}

/// Decides what the drop-in of the agent `owner` must be for a delay of at least `wanted`. The sources are the
/// same as for [`effective`]; the agent's own drop-in is ignored.
pub fn ours(main: &[Source], drop_ins: &[Source], owner: &str, wanted: Duration) -> RequiredDropIn {
    let own = name_of(owner);
    let is_ours = |source: &&Source| source.file.file_name().is_some_and(|name| name == &*own);
    let others: Vec<Source> = drop_ins.iter().filter(|s| !is_ours(s)).cloned().collect();
    let without_us = effective(main, &others).map_or(DEFAULT_DELAY, |setting| setting.value);
    if without_us >= wanted { RequiredDropIn::Absent } else { RequiredDropIn::Present(wanted) }
}

/// Writes or removes the drop-in of the agent `owner` below `root` as `wanted` requires. A missing drop-in is
/// written only if logind's current delay is too short (`short`). Blocks on the file system.
///
/// # Errors
/// [`WriteError`]. The old file is intact.
pub fn apply(
    root: &Path,
    owner: &str,
    wanted: Duration,
    short: bool,
) -> Result<Applied, WriteError> {
    let (main, drop_ins) = merge::scan(root);
    match ours(&main, &drop_ins, owner, wanted) {
        RequiredDropIn::Absent => match write::remove(root, owner)? {
            Some(file) => Ok(Applied::Removed { file }),
            None => Ok(Applied::Nothing),
        },
        RequiredDropIn::Present(delay) if short || write::is_there(root, owner) => {
            match write::write(root, owner, delay)? {
                Written::Changed { file } => Ok(Applied::Wrote { file }),
                Written::Unchanged { .. } => Ok(Applied::Nothing),
            }
        }
        RequiredDropIn::Present(_) => Ok(Applied::Nothing),
    }
}

#[cfg(test)]
mod tests;
