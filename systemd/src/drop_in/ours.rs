//! Decides what winddown's own drop-in must contain, given the other drop-ins.
//!
//! The delay has several owners. Each may need more than systemd's default, and none may shorten
//! the delay of another. Our file sorts last, so it must not exist if the other files set a long
//! enough delay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::write::{self, WriteError, Written};
use super::{DEFAULT_DELAY, NAME, Source, effective, merge};

/// The required state of winddown's drop-in.
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
    /// Winddown's drop-in was written.
    Wrote {
        /// Its path on the node.
        file: PathBuf,
    },
    /// Winddown's drop-in was removed.
    Removed {
        /// Its path on the node.
        file: PathBuf,
    },
}

/// Decides what winddown's drop-in must be for a delay of at least `wanted`. The sources are the
/// same as for [`effective`]; our own drop-in is ignored.
pub fn ours(main: &[Source], drop_ins: &[Source], wanted: Duration) -> RequiredDropIn {
    let is_ours = |source: &&Source| source.file.file_name().is_some_and(|name| name == NAME);
    let others: Vec<Source> = drop_ins.iter().filter(|s| !is_ours(s)).cloned().collect();
    let without_us = effective(main, &others).map_or(DEFAULT_DELAY, |setting| setting.value);
    if without_us >= wanted { RequiredDropIn::Absent } else { RequiredDropIn::Present(wanted) }
}

/// Writes or removes winddown's drop-in below `root` as `wanted` requires. A missing drop-in is
/// written only if logind's current delay is too short (`short`). Blocks on the file system.
///
/// # Errors
/// [`WriteError`]. The old file is intact.
pub fn apply(root: &Path, wanted: Duration, short: bool) -> Result<Applied, WriteError> {
    let (main, drop_ins) = merge::scan(root);
    match ours(&main, &drop_ins, wanted) {
        RequiredDropIn::Absent => match write::remove(root)? {
            Some(file) => Ok(Applied::Removed { file }),
            None => Ok(Applied::Nothing),
        },
        RequiredDropIn::Present(delay) if short || write::is_there(root) => {
            match write::write(root, delay)? {
                Written::Changed { file } => Ok(Applied::Wrote { file }),
                Written::Unchanged { .. } => Ok(Applied::Nothing),
            }
        }
        RequiredDropIn::Present(_) => Ok(Applied::Nothing),
    }
}

#[cfg(test)]
mod tests;
