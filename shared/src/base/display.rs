//! Text for people: safe to print whatever a name contains, with durations in a uniform style.

use std::borrow::Cow;
use std::time::Duration;

use unicode_width::UnicodeWidthChar;

/// Makes `text` safe to print on one line: control characters and characters that reorder or hide
/// text are written as escapes (`\x1b`, `\u{202e}`).
///
/// Names, messages and paths come from anyone who can put a pod on the node. Printed verbatim, they
/// could rewrite the screen of the reader.
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

/// Whether `c` moves the cursor, reorders the line, or is invisible.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        // A mark of zero width would draw over the character before it.
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

/// The beginning of `text`, of at most `max_bytes`, and without a part of a character at its end.
#[must_use]
pub fn truncated(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

/// Formats a duration of `seconds`: `350ms`, `3.2s`, `45s`, `1m30s`, `2h05m`.
pub fn seconds(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "?".to_owned();
    }
    if seconds == 0.0 {
        return "0s".to_owned();
    }
    if seconds < 0.9995 {
        return format!("{:.0}ms", (seconds * 1000.0).max(1.0));
    }
    if seconds < 59.95 {
        let text = format!("{seconds:.1}");
        return format!("{}s", text.strip_suffix(".0").unwrap_or(&text));
    }
    let minutes = (seconds.round() / 60.0).floor();
    let rest = seconds.round() - minutes * 60.0;
    if minutes < 60.0 {
        return if rest == 0.0 { format!("{minutes}m") } else { format!("{minutes}m{rest:02}s") };
    }
    let hours = (minutes / 60.0).floor();
    let rest = minutes - hours * 60.0;
    if rest == 0.0 { format!("{hours}h") } else { format!("{hours}h{rest:02}m") }
}

/// Formats a duration like [`seconds`].
pub fn duration(duration: Duration) -> String {
    seconds(duration.as_secs_f64())
}

/// Formats a duration in seconds whatever its length, so that it can be compared with another at a
/// glance: `12 ms`, `8.2 s`, `90 s`.
pub fn in_seconds(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        1..100 => format!("{millis} ms"),
        _ => {
            let text = format!("{:.1}", duration.as_secs_f64());
            format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
        }
    }
}

/// Formats a number of pods: `1 pod`, `2 pods`.
pub fn pod_count(count: usize) -> String {
    if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") }
}

/// Formats an age in whole seconds as kubectl shows it: `45s`, `3m20s`, `47m`, `3h12m`, `20h`, `5d3h`.
pub fn age(seconds: i64) -> String {
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        small => format!("{big}{big_unit}{small}{small_unit}"),
    };
    let s = seconds.max(0);
    let (minutes, hours, days) = (s / 60, s / 3600, s / 86_400);
    match s {
        0..120 => format!("{s}s"),
        _ if minutes < 10 => two(minutes, "m", s % 60, "s"),
        _ if hours < 3 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ => two(days / 365, "y", days % 365, "d"),
    }
}

#[cfg(test)]
mod tests;
