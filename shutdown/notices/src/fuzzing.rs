//! Properties that notices from any writer must have. Called by tests/fuzz.

use crate::{Announcement, cloud, file};

/// Reads the bytes as a notice file and as responses of the metadata services. Panics if a property is violated.
pub fn notice(content: &[u8]) {
    let Ok(text) = std::str::from_utf8(content) else { return };
    let announced = file::fuzzing::announced(text).into_iter();
    for announced in announced.chain(cloud::fuzzing::answers(text)) {
        laws(&announced);
    }
}

/// Asserts that the text for people is one line of bounded length, wherever it came from.
fn laws(announced: &Announcement) {
    let text = &announced.text;
    assert!(text.chars().count() <= 201 && !text.contains(char::is_control), "{text:?}");
    let again = Announcement::new(announced.when, text);
    // The ellipsis of a truncated text is cut off again and put back.
    assert_eq!(again.text.chars().count(), text.chars().count(), "{text:?}");
}

#[test]
fn any_notice_keeps_the_laws() {
    winddown_fuzz::short("notices", notice);
}
