//! Text of others for people: safe to print whatever it contains.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

/// Makes `text` safe to print on one line: control characters and characters that reorder or hide
/// text are written as escapes (`\x1b`, `\u{202e}`).
///
/// Names, messages and paths come from anyone who can put a pod on the node. Printed verbatim, they
/// could rewrite the screen of the reader.
pub fn clean(text: &str) -> Cow<'_, str> {
    escaped(text, |c| match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        c if u32::from(c) < 0x100 => format!("\\x{:02x}", u32::from(c)),
        c => format!("\\u{{{:x}}}", u32::from(c)),
    })
}

/// Quotes what a container wrote, on one line: without the quotation marks it could read like the agent's own words.
pub fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// Returns `text` with the `escape` of each character that is not safe to print, in whatever notation the text is in.
pub fn escaped(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    // Most text is plain, for which bytes suffice.
    let is_plain = text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
    if is_plain || !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_harmful(c) {
            true => safe.push_str(&escape(c)),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Whether `c` moves the cursor, reorders the line, or is invisible.
fn is_harmful(c: char) -> bool {
    // A mark of zero width would draw over the character before it.
    hides_or_controls(c) || c.width() == Some(0) || matches!(c, '\u{fe00}'..='\u{fe0f}')
}

/// Whether `c` changes only how the character before it is drawn: an accent, or the variant of a symbol. Harmless in a
/// text of which only the lines matter.
pub fn is_combining(c: char) -> bool {
    is_harmful(c) && !hides_or_controls(c)
}

fn hides_or_controls(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Line and paragraph separators; direction marks, embeddings, overrides, isolates.
            '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Soft hyphen, zero-width characters, fillers, annotations.
            | '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{115f}' | '\u{1160}' | '\u{3164}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            // Tags.
            | '\u{e0000}'..='\u{e0fff}'
        )
}

/// The beginning of `text`, of at most `max_bytes`, and without a part of a character at its end.
#[must_use]
pub fn truncated(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests;
