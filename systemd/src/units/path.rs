//! Converts object paths of units to names.

/// The prefix of the object paths of units.
const UNITS: &str = "/org/freedesktop/systemd1/unit/";

/// Returns the name of the unit at `path`; `None` if it does not begin with `prefix`.
pub(super) fn unit_of(path: &str, prefix: &str) -> Option<String> {
    let name = unescape(path.strip_prefix(UNITS)?)?;
    name.starts_with(prefix).then_some(name)
}

/// Reverses systemd's escaping: every byte but letters and digits is `_` and two hexadecimal digits.
fn unescape(label: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(label.len());
    let mut rest = label;
    while let Some((before, after)) = rest.split_once('_') {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(after.get(..2)?, 16).ok()?);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}
