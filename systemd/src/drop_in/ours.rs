//! Decides what winddown's own drop-in must contain, given the other drop-ins.
//!
//! The delay has several owners. Each may need a delay longer than systemd's default, and none may
//! shorten it for the others. Our file sorts last, so it must not exist if the other files set
//! enough.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::write::{self, WriteError, Written};
use super::{DEFAULT, NAME, Source, effective, merge};

/// What winddown's drop-in has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ours {
    /// Absent: logind's delay is long enough without it.
    Absent,
    /// Present, with this delay, which is longer than logind's without it.
    Gives(Duration),
}

/// What [`apply`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The files are as they have to be.
    Nothing,
    /// Winddown's drop-in has a new content.
    Wrote {
        /// Its path on the node.
        file: PathBuf,
    },
    /// Winddown's drop-in is gone.
    Removed {
        /// Its path on the node.
        file: PathBuf,
    },
}

/// Decides what winddown's drop-in must be for a delay of at least `wanted`. The sources are as for
/// [`effective`]; our own are ignored.
pub fn ours(main: &[Source], drop_ins: &[Source], wanted: Duration) -> Ours {
    let is_ours = |source: &&Source| source.file.file_name().is_some_and(|name| name == NAME);
    let others: Vec<Source> = drop_ins.iter().filter(|s| !is_ours(s)).cloned().collect();
    let without_us = effective(main, &others).map_or(DEFAULT, |setting| setting.value);
    if without_us >= wanted { Ours::Absent } else { Ours::Gives(wanted) }
}

/// Writes or removes winddown's drop-in below `root` as `wanted` requires. A missing drop-in is
/// written only if logind's delay is too short at present (`short`). Blocks on the file system.
///
/// # Errors
/// [`WriteError`]. The old file is intact.
pub fn apply(root: &Path, wanted: Duration, short: bool) -> Result<Applied, WriteError> {
    let (main, drop_ins) = merge::scan(root);
    match ours(&main, &drop_ins, wanted) {
        Ours::Absent => match write::remove(root)? {
            Some(file) => Ok(Applied::Removed { file }),
            None => Ok(Applied::Nothing),
        },
        Ours::Gives(delay) if short || write::is_there(root) => match write::write(root, delay)? {
            Written::Changed { file } => Ok(Applied::Wrote { file }),
            Written::Unchanged { .. } => Ok(Applied::Nothing),
        },
        Ours::Gives(_) => Ok(Applied::Nothing),
    }
}

#[cfg(test)]
mod tests;
