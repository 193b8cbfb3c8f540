use super::{clean, truncated};

#[test]
fn characters_that_could_move_the_cursor_or_hide_text_are_written_as_escapes() {
    assert_eq!(clean("web-1"), "web-1");
    assert_eq!(clean("a\x1b[2Jb"), "a\\x1b[2Jb");
    assert_eq!(clean("a\r\nb\tc\0\x07\x7f"), "a\\r\\nb\\tc\\x00\\x07\\x7f");
    assert_eq!(clean("\u{9b}31m"), "\\x9b31m");
    assert_eq!(clean("user\u{202e}gpj.exe"), "user\\u{202e}gpj.exe");
    assert_eq!(clean("we\u{200b}b"), "we\\u{200b}b");
    assert_eq!(clean("e\u{301}"), "e\\u{301}");
    assert_eq!(clean("größe 日本"), "größe 日本");
}

#[test]
fn the_beginning_of_a_text_ends_between_characters() {
    for (max_bytes, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (4, "aéb"), (9, "aéb")]
    {
        assert_eq!(truncated("aéb", max_bytes), expected, "{max_bytes}");
    }
}
