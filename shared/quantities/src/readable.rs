//! Durations and amounts for people.

use std::time::Duration;

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

/// Formats an amount of bytes: `512 B`, `1.5 MiB`.
#[allow(clippy::cast_precision_loss, reason = "one digit is shown")]
pub fn bytes(bytes: u64) -> String {
    let mut rest = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if rest < 1024.0 {
            break;
        }
        rest /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{rest:.1} {unit}") }
}

#[cfg(test)]
mod tests;
