//! Between names of units and their object paths.

/// Where the objects of units are.
const UNITS: &str = "/org/freedesktop/systemd1/unit/";

/// The unit whose object this is; none if its name does not begin with `prefix`.
pub(super) fn unit_of(path: &str, prefix: &str) -> Option<String> {
    let name = unescape(path.strip_prefix(UNITS)?)?;
    name.starts_with(prefix).then_some(name)
}

/// What systemd makes of a name: all but letters and digits as `_` and two hexadecimal digits.
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
