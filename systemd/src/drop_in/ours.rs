//! What winddown's own drop-in has to be beside those of others.
//!
//! The delay has several owners. Each may need it longer than systemd's default, and none may make
//! it shorter for the others. As our file has the last name, it must not be there at all where what
//! the others set is enough.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::write::{self, WriteError, Written};
use super::{DEFAULT, NAME, Source, effective, merge};

/// What winddown's drop-in has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ours {
    /// Not there: without it logind gives enough.
    Absent,
    /// There, with this delay, which is more than logind gives without it.
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

/// Decides what winddown's drop-in has to be for a delay of at least `wanted`. The sources are as
/// for [`effective`]; our own among them count for nothing.
pub fn ours(main: &[Source], drop_ins: &[Source], wanted: Duration) -> Ours {
    let is_ours = |source: &&Source| source.file.file_name().is_some_and(|name| name == NAME);
    let others: Vec<Source> = drop_ins.iter().filter(|s| !is_ours(s)).cloned().collect();
    let without_us = effective(main, &others).map_or(DEFAULT, |setting| setting.value);
    if without_us >= wanted { Ours::Absent } else { Ours::Gives(wanted) }
}

/// Makes winddown's drop-in below `root` what it has to be for `wanted`. One that is not there is
/// written only if logind gives less at present, as `short` says. Blocks on the file system.
///
/// # Errors
/// [`WriteError`]. What was there is unharmed.
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
