//! Names that only pods have.

use std::net::IpAddr;

/// Whether `text` is a domain to search: a DNS subdomain whose labels may have `_` in them, also at their start.
pub(super) fn is_search_domain(text: &str) -> bool {
    let outer = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    let label = |label: &str| {
        let bytes = label.strip_prefix('_').unwrap_or(label).as_bytes();
        outer(bytes.first()) && outer(bytes.last()) && bytes.iter().all(inner)
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Whether `text` is an IP address in the one way that all programs read alike: no leading zeros, no IPv4 address as an
/// IPv6 one.
pub(super) fn is_address(text: &str) -> bool {
    match text.parse() {
        Ok(IpAddr::V4(_)) => true,
        Ok(IpAddr::V6(address)) => address.to_ipv4_mapped().is_none(),
        Err(_) => false,
    }
}

/// Whether `text` is a kernel parameter: parts with `.` or `/` between them, at most 253 characters.
pub(super) fn is_sysctl(text: &str) -> bool {
    let outer = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    let part = |part: &str| {
        let bytes = part.as_bytes();
        outer(bytes.first()) && outer(bytes.last()) && bytes.iter().all(inner)
    };
    text.len() <= 253 && text.split(['.', '/']).all(part)
}

/// Whether `text` is the name of a variable: printable ASCII without `=`.
pub(super) fn is_variable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=')
}

/// Whether `text` is the name of an HTTP header, as the kubelet sends them.
pub(super) fn is_header(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Whether `text` is a signal that a container can be ended with on Linux.
pub(super) fn is_signal(text: &str) -> bool {
    const NAMES: [&str; 36] = [
        "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT",
        "KILL", "PIPE", "POLL", "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM",
        "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
        "RTMIN", "RTMAX",
    ];
    let Some(name) = text.strip_prefix("SIG") else { return false };
    // As written: `SIGRTMIN+5`, not `SIGRTMIN+05`.
    let counted = |first: &str, most: u8| {
        let number = name.strip_prefix(first)?;
        (1..=most).find(|n| n.to_string() == number)
    };
    NAMES.contains(&name) || counted("RTMIN+", 15).or_else(|| counted("RTMAX-", 14)).is_some()
}
