//! Rules for single values.

use std::ops::RangeInclusive;

use winddown_yaml::{FieldCheck, Shortened, names};

pub(super) const LABEL: &str = "write lower-case letters, digits and `-`, at most 63";
pub(super) const SUBDOMAIN: &str = "use lower-case letters, digits, `-`, `.`; at most 253";
pub(super) const KEY: &str = "is no key: write at most 63 letters, digits, `-`, `_` and `.`, \
                              with a DNS name and / before it if you like";
pub(super) const NEEDS_API_SERVER: &str =
    "needs an API server; manifest pods have none: use a hostPath volume or plain values";

/// Reports a text that is not one of `allowed`, which may be empty if that is allowed.
pub(super) fn word(check: &mut FieldCheck<'_>, key: &str, text: &str, allowed: &[&str]) {
    if allowed.contains(&text) {
        return;
    }
    let words: Vec<&str> = allowed.iter().copied().filter(|word| !word.is_empty()).collect();
    let words = either(&words);
    match text {
        "" => check.fail_at(key, format!("is empty: write {words}")),
        _ => check.fail_at(key, format!("`{}` is unknown: write {words}", Shortened(text))),
    }
}

/// Reports a text that is there and not one of `allowed`.
pub(super) fn word_if_any(
    check: &mut FieldCheck<'_>,
    key: &str,
    text: Option<&String>,
    allowed: &[&str],
) {
    if let Some(text) = text {
        word(check, key, text, allowed);
    }
}

fn either(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Reports a number that is there and less than `least`.
pub(super) fn at_least<T: Into<i64>>(
    check: &mut FieldCheck<'_>,
    key: &str,
    value: Option<T>,
    least: i64,
) {
    if let Some(number) = value.map(Into::into).filter(|number| *number < least) {
        check.fail_at(key, format!("is {number}: write {least} or more"));
    }
}

/// Reports a number that is there and outside `range`.
pub(super) fn within<T: Into<i64>>(
    check: &mut FieldCheck<'_>,
    key: &str,
    value: Option<T>,
    range: RangeInclusive<i64>,
) {
    if let Some(number) = value.map(Into::into).filter(|number| !range.contains(number)) {
        let (least, most) = range.into_inner();
        check.fail_at(key, format!("is {number}: write a number from {least} to {most}"));
    }
}

/// Reports what is no DNS label. `what` it names, e.g. `volume name`.
pub(super) fn label(check: &mut FieldCheck<'_>, key: &str, text: &str, what: &str) {
    if text.is_empty() {
        check.fail_at(key, format!("is empty: write a {what}"));
    } else if !names::is_dns_label(text) {
        check.fail_at(key, format!("`{}` is no {what}: {LABEL}", Shortened(text)));
    }
}

/// Reports what is no DNS subdomain. `what` it names, e.g. `runtime class`.
pub(super) fn subdomain(check: &mut FieldCheck<'_>, key: &str, text: &str, what: &str) {
    if text.is_empty() {
        check.fail_at(key, format!("is empty: write a {what}, or remove it"));
    } else if !names::is_dns_subdomain(text) {
        check.fail_at(key, format!("`{}` is no {what}: {SUBDOMAIN}", Shortened(text)));
    }
}

/// Reports what is no name with an optional domain, as labels and conditions have.
pub(super) fn qualified(check: &mut FieldCheck<'_>, key: &str, text: &str) {
    if text.is_empty() {
        check.fail_at(key, "is empty: write a name, with a DNS name and / before it if you like");
    } else if !names::is_qualified_name(text) {
        check.fail_at(key, format!("`{}` {KEY}", Shortened(text)));
    }
}

/// Reports what is no value of a label.
pub(super) fn label_value(check: &mut FieldCheck<'_>, key: &str, text: &str) {
    if !names::is_label_value(text) {
        let what = format!(
            "`{}` is no label value: write at most 63 letters, digits, `-`, `_` and `.`, a letter or \
             digit at both ends",
            Shortened(text)
        );
        check.fail_at(key, what);
    }
}

/// Reports a path that is absolute or leads up; `below` says of what it has to be a part.
pub(super) fn path_below(check: &mut FieldCheck<'_>, key: &str, path: &str, below: &str) {
    if path.starts_with('/') || leads_up(path) {
        check.fail_at(key, format!("leads out of {below}: write a path below it, without `..`"));
    }
}

pub(super) fn leads_up(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// Reports what is no port.
pub(super) fn port(check: &mut FieldCheck<'_>, key: &str, port: i32) {
    if !(1..=65535).contains(&port) {
        check.fail_at(key, format!("is {port}: write a port from 1 to 65535"));
    }
}

/// Reports what is no mode of a file.
pub(super) fn mode(check: &mut FieldCheck<'_>, key: &str, mode: Option<i32>) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        check.fail_at(key, format!("is {mode}: write a file mode from 0 to 0777"));
    }
}
