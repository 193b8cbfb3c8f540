//! Colours, and the format of errors.

use anstyle::{AnsiColor, Style};
use winddown_shared::display::clean;

/// Styles text, if colour is enabled.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// Whether colour is enabled.
    pub color: bool,
}

pub(super) const PLAIN: Style = Style::new();
pub(super) const HEAD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const WARN: Style = AnsiColor::Yellow.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();

impl Paint {
    /// The text in this style. Blank text is not styled.
    pub fn with(self, style: Style, text: &str) -> String {
        if self.color && style != PLAIN && !text.trim().is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// Formats an error and its sources, one per line, and what to do next.
pub fn error(error: &anyhow::Error, hint: &str, color: bool) -> String {
    let paint = Paint { color };
    let mut lines = String::new();
    for (depth, cause) in error.chain().enumerate() {
        let head = if depth == 0 { paint.with(BAD, "error:") } else { "  because:".to_owned() };
        // Configuration errors have several lines; each is cleaned separately.
        for (number, line) in cause.to_string().lines().enumerate() {
            if number == 0 {
                lines.push_str(&head);
                lines.push(' ');
            } else {
                lines.push_str("  ");
            }
            lines.push_str(&clean(line));
            lines.push('\n');
        }
    }
    push_hint(&mut lines, hint, paint);
    lines.trim_end().to_owned()
}

/// Formats a notice that is not an error, and what to do next.
pub fn notice(text: &str, hint: &str, color: bool) -> String {
    let paint = Paint { color };
    let mut lines = format!("{} {}\n", paint.with(WARN, "note:"), clean(text));
    push_hint(&mut lines, hint, paint);
    lines.trim_end().to_owned()
}

fn push_hint(lines: &mut String, hint: &str, paint: Paint) {
    if !hint.is_empty() {
        lines.push_str(&format!("  {} {}\n", paint.with(HEAD, "next:"), clean(hint)));
    }
}
