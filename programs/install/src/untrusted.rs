//! A path that somebody else may write.

use std::fmt;

use winddown_host::OthersMayWrite;
use winddown_shared::display::clean;

/// A path through which somebody else decides what root runs or believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untrusted {
    /// The path, and who may write to it.
    pub found: OthersMayWrite,
    /// What to do about it.
    pub mend: String,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n    {}", shown(&self.found), clean(&self.mend))
    }
}

pub(super) fn shown(found: &OthersMayWrite) -> String {
    clean(&found.to_string()).into_owned()
}
