//! The fields of an `httpGet` of a probe or hook that no request can hold.

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as api;

/// A field of an `httpGet` that cannot be sent in a request. Displays as the field's path below `httpGet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidField {
    /// `path`
    Path,
    /// `host`
    Host,
    /// `httpHeaders[…].name`
    HeaderName(usize),
    /// `httpHeaders[…].value`
    HeaderValue(usize),
}

impl InvalidField {
    /// What is wrong with the field, without its value: a header may hold a password.
    pub fn why(self) -> &'static str {
        match self {
            Self::Path | Self::HeaderValue(_) => {
                "contains a line break or another control character"
            }
            Self::Host => "is neither an address nor a host name",
            Self::HeaderName(_) => "is not a header name",
        }
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path => f.write_str("path"),
            Self::Host => f.write_str("host"),
            Self::HeaderName(index) => write!(f, "httpHeaders[{index}].name"),
            Self::HeaderValue(index) => write!(f, "httpHeaders[{index}].value"),
        }
    }
}

/// Lists the fields of an `httpGet` that cannot be sent in a request.
pub fn invalid_fields(action: &api::HTTPGetAction) -> Vec<InvalidField> {
    let mut found = Vec::new();
    if action.path.as_deref().is_some_and(|path| path.chars().any(char::is_control)) {
        found.push(InvalidField::Path);
    }
    if action.host.as_deref().is_some_and(|host| !host.is_empty() && !is_host(host)) {
        found.push(InvalidField::Host);
    }
    for (index, header) in action.http_headers.iter().flatten().enumerate() {
        if !is_header_name(&header.name) {
            found.push(InvalidField::HeaderName(index));
        }
        if !is_header_value(&header.value) {
            found.push(InvalidField::HeaderValue(index));
        }
    }
    found
}

fn is_host(host: &str) -> bool {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    host.parse::<IpAddr>().is_ok() || host.len() <= 253 && host.bytes().all(is_name)
}

/// A token of RFC 9110.
fn is_header_name(name: &str) -> bool {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.len() < 1 << 16 && name.bytes().all(is_token)
}

fn is_header_value(value: &str) -> bool {
    value.bytes().all(|b| b == b'\t' || !b.is_ascii_control())
}
