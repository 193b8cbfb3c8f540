//! A line of a screen, made of styled spans.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::fit;
use super::paint::Paint;

/// A styled part of a line, safe to print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The text.
    pub text: String,
    /// The style.
    pub style: Style,
}

/// The spans of a line, from left to right.
pub type Line = Vec<Span>;

/// The line as it is sent to a terminal.
pub fn painted(line: &[Span], color: bool) -> String {
    line.iter().map(|span| Paint { color }.with(span.style, &span.text)).collect()
}

pub(super) fn span(style: Style, text: impl Into<String>) -> Span {
    Span { text: text.into(), style }
}

pub(super) fn width(line: &[Span]) -> usize {
    line.iter().map(|span| span.text.width()).sum()
}

/// Cuts the line to `room` columns.
pub(super) fn cut(line: Line, mut room: usize) -> Line {
    let mut kept = Vec::with_capacity(line.len());
    for mut span in line {
        if room == 0 {
            break;
        }
        if span.text.width() > room {
            span.text = fit(&span.text, room).into_owned();
        }
        room -= span.text.width().min(room);
        kept.push(span);
    }
    kept
}
