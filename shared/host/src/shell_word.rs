//! Paths in commands for people to type.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

/// Returns the text as one word of a shell's command line. It has no control characters, which a terminal would obey.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    if has_plain_characters(text) {
        return text.into();
    }
    if !text.chars().any(char::is_control) {
        return format!("'{}'", text.replace('\'', r"'\''")).into();
    }
    // Of POSIX since 2024; bash, zsh and busybox have had it for long.
    let mut word = String::from("$'");
    for character in text.chars() {
        match character {
            '\'' | '\\' => word.extend(['\\', character]),
            _ if character.is_control() => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(word, "\\{byte:03o}");
                }
            }
            _ => word.push(character),
        }
    }
    word.push('\'');
    word.into()
}

/// Returns the path as one word of a shell's command line, as [`shell_word`].
pub fn path_word(path: impl AsRef<Path>) -> String {
    shell_word(&path.as_ref().to_string_lossy()).into_owned()
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
            ("a\u{1b}[2K\n'", r"$'a\033[2K\012\''"),
            ("\u{9b}\\", r"$'\302\233\\'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
