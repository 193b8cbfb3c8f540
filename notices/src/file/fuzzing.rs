//! Properties that a parsed notice file must have.

use super::content;
use crate::{Announcement, When};

pub(crate) fn laws(text: &str) {
    let Ok((when, rest)) = content::parse(text) else { return };
    assert!(text.ends_with(rest) || text.trim_end().ends_with(rest), "{rest:?} is of {text:?}");
    if let When::In(length) = when {
        assert!(length.as_secs() <= 4 * 9_223_372_036, "four words at most: {length:?}");
    }
    crate::fuzzing::laws(&Announcement::new(when, rest));
}
