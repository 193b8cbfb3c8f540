//! What the fields of a Kubernetes `httpGet` may hold so that a request can hold them. Each error says why not, without the
//! value: a header may hold a password.

use std::net::IpAddr;

const CONTROL: &str = "contains a line break or another control character";

/// Checks a `path`.
///
/// # Errors
/// It has a control character.
pub fn path(path: &str) -> Result<(), &'static str> {
    let is_fine = !path.chars().any(char::is_control);
    is_fine.then_some(()).ok_or(CONTROL)
}

/// Checks a `host`; an empty one is that of the pod.
///
/// # Errors
/// It is neither an address nor a host name.
pub fn host(host: &str) -> Result<(), &'static str> {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let is_fine = host.parse::<IpAddr>().is_ok() || host.len() <= 253 && host.bytes().all(is_name);
    is_fine.then_some(()).ok_or("is neither an address nor a host name")
}

/// Checks the `name` of a header: a token of RFC 9110.
///
/// # Errors
/// It is not one.
pub fn header_name(name: &str) -> Result<(), &'static str> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let is_fine = !name.is_empty() && name.len() < 1 << 16 && name.bytes().all(is_token);
    is_fine.then_some(()).ok_or("is not a header name")
}

/// Checks the `value` of a header.
///
/// # Errors
/// It has a control character.
pub fn header_value(value: &str) -> Result<(), &'static str> {
    let is_fine = value.bytes().all(|b| b == b'\t' || !b.is_ascii_control());
    is_fine.then_some(()).ok_or(CONTROL)
}
