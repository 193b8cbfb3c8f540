//! Colour, and the way errors are printed.

use anstyle::{AnsiColor, Style};
use winddown_shared::display::clean;

/// Puts colour around text, or does not.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// It does.
    pub color: bool,
}

pub(super) const PLAIN: Style = Style::new();
pub(super) const HEAD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const WARN: Style = AnsiColor::Yellow.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();

impl Paint {
    /// The text as it is to look. What is blank stays as it is.
    pub fn with(self, style: Style, text: &str) -> String {
        if self.color && style != PLAIN && !text.trim().is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// An error with its sources on one line each, and what to do next.
pub fn error(error: &anyhow::Error, hint: &str, color: bool) -> String {
    let paint = Paint { color };
    let mut lines = String::new();
    for (depth, cause) in error.chain().enumerate() {
        let head = if depth == 0 { paint.with(BAD, "error:") } else { "  because:".to_owned() };
        // A configuration's errors come as several lines; each is cleaned by itself.
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

/// Something worth knowing that is no failure, and what to do next.
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
