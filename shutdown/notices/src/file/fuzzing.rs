//! Properties that a parsed notice file must have.

use super::content;
use crate::{Announcement, When};

/// Returns what the text announces when it is read as a notice file.
pub(crate) fn announced(text: &str) -> Option<Announcement> {
    let (when, rest) = content::parse(text).ok()?;
    assert!(text.ends_with(rest) || text.trim_end().ends_with(rest), "{rest:?} is of {text:?}");
    if let When::In(length) = when {
        assert!(length.as_secs() <= 4 * 9_223_372_036, "four words at most: {length:?}");
    }
    Some(Announcement::new(when, rest))
}
