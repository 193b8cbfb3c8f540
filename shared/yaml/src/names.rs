//! Checks of names that Kubernetes accepts (RFC 1123 and formats based on it).

/// Whether `text` is a DNS label: lower-case letters, digits and `-`, at most 63, no `-` at either end.
pub fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether `text` is a DNS subdomain: labels joined with `.`, at most 253 characters.
pub fn is_dns_subdomain(text: &str) -> bool {
    let part = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

/// Whether `text` is a qualified name: an optional subdomain and `/`, then at most 63 of `[A-Za-z0-9_.-]`.
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name_part(name),
        None => is_name_part(text),
    }
}

/// Whether `text` is a label's value: empty, or at most 63 of `[A-Za-z0-9_.-]`, a letter or digit at both ends.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// Whether `text` is a port's name: at most 15 of `[a-z0-9-]`, at least one letter, no leading, trailing or double `-`.
pub fn is_port_name(text: &str) -> bool {
    text.len() <= 15
        && is_dns_label(text)
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.contains("--")
}

fn is_name_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let outer = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(inner)
        && outer(text.bytes().next())
        && outer(text.bytes().last())
}
