//! Paths in commands for people to type.

use std::borrow::Cow;

/// Returns the text as one word of a shell's command line.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    match has_plain_characters(text) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")).into(),
    }
}

/// Whether no character of the text means anything to a shell or to systemd.
pub fn has_plain_characters(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/+@:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_if_a_shell_would_read_anything_into_it() {
        for (text, word) in [
            ("/etc/winddown/config.yaml", "/etc/winddown/config.yaml"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(id)", "'$(id)'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
