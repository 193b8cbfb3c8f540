//! Text that cannot hurt a terminal, measured in columns.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Makes `text` safe to print on one line: control characters and characters that reorder or hide
/// text are written as escapes (`\x1b`, `\u{202e}`).
///
/// Names, messages and paths come from whoever can put a pod on the node; printed as they are, they
/// could rewrite the screen of the person who looks.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if !is_harmful(c) => safe.push(c),
            c if u32::from(c) < 0x100 => safe.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => safe.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(safe)
}

/// `text` in at most `columns` columns; what is cut off is marked by an ellipsis.
pub fn fit(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return Cow::Borrowed(text);
    }
    let Some(room) = columns.checked_sub(1) else { return Cow::Borrowed("") };
    let mut used = 0;
    let mut cut = String::new();
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    Cow::Owned(cut)
}

/// `text` in lines of at most `width` columns, broken at spaces; later lines are indented by
/// `indent` columns, for which the first one has room already used. A word that is longer than a
/// line is broken where the line ends. No width, no breaks.
pub fn wrap(text: &str, width: Option<usize>, indent: usize) -> Vec<String> {
    let Some(width) = width else { return vec![text.to_owned()] };
    let room = width.saturating_sub(indent).max(16);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let gap = usize::from(!line.is_empty());
        if used + gap + word.width() <= room {
            if gap == 1 {
                line.push(' ');
            }
            line.push_str(word);
            used += gap + word.width();
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        for c in word.chars() {
            let wide = c.width().unwrap_or(0);
            if used + wide > room {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(c);
            used += wide;
        }
    }
    lines.push(line);
    lines
}

/// Characters that move the cursor, reorder the line, or are not seen.
pub(crate) fn is_harmful(c: char) -> bool {
    c.is_control()
        // A mark without a width of its own would draw over what stands before it.
        || c.width() == Some(0)
        || matches!(
            c,
            // Line and paragraph separators; direction marks, embeddings, overrides, isolates.
            '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Soft hyphen, zero-width characters, fillers, annotations.
            | '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{115f}' | '\u{1160}' | '\u{3164}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            // Variation selectors and tags.
            | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}'
        )
}
