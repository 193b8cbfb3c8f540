//! Text measured in columns.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Cuts `text` to at most `columns` columns, with an ellipsis in place of the rest.
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

/// The text with `program`, one word of a shell's, in the place of `winddown` wherever a command begins with it; as it is
/// without one, where a shell finds the program by its name.
pub fn by_path<'t>(text: &'t str, program: Option<&str>) -> Cow<'t, str> {
    let Some(program) = program else { return text.into() };
    let mut text = text.to_owned();
    for before in ["`", "&& ", "sudo "] {
        for after in [' ', '\n'] {
            text = text
                .replace(&format!("{before}winddown{after}"), &format!("{before}{program}{after}"));
        }
    }
    text.into()
}

/// Wraps `text` with [`wrap`], each line with a newline: `lead` precedes the first line, and `indent` spaces precede
/// the others.
pub fn hanging(text: &str, width: Option<usize>, lead: &str, indent: usize) -> String {
    let mut lines = String::from(lead);
    for (number, line) in wrap(text, width, indent).iter().enumerate() {
        lines.push_str(&" ".repeat(if number == 0 { 0 } else { indent }));
        lines.push_str(line);
        lines.push('\n');
    }
    lines
}

/// Wraps `text` at spaces to lines of at most `width` columns. Room for the indentation of `indent` columns is reserved
/// on every line, so that a lead fits on the first one, which keeps the spaces that `text` begins with. A word that is
/// longer than a line is broken. No width, no breaks.
pub fn wrap(text: &str, width: Option<usize>, indent: usize) -> Vec<String> {
    let Some(width) = width else { return vec![text.to_owned()] };
    let room = width.saturating_sub(indent).max(16);
    let words = text.trim_start_matches(' ');
    let mut lines = Vec::new();
    // What a line begins with: the first one with spaces.
    let mut begin = text.len() - words.len();
    let mut line = " ".repeat(begin);
    let mut used = begin;
    for word in words.split(' ') {
        let gap = usize::from(used > begin);
        if used + gap + word.width() <= room {
            if gap == 1 {
                line.push(' ');
            }
            line.push_str(word);
            used += gap + word.width();
            continue;
        }
        if used > begin {
            lines.push(std::mem::take(&mut line));
            (used, begin) = (0, 0);
        }
        for c in word.chars() {
            let wide = c.width().unwrap_or(0);
            if used + wide > room {
                lines.push(std::mem::take(&mut line));
                (used, begin) = (0, 0);
            }
            line.push(c);
            used += wide;
        }
    }
    lines.push(line);
    lines
}
