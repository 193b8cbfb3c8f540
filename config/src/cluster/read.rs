//! The fields that are more than a word or a number.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use winddown_shared::parse_duration;

use super::super::read::absolute;
use super::{DNS, DOMAIN, ENDED, EndedPods, LEASE, LONGEST, NODE_IP, NodeTaint, TAINTS};
use winddown_yaml::{Fields, Located, Node, Position, Value, names};

pub(crate) fn one_of<T: Copy>(
    fields: &mut Fields<'_, '_>,
    key: &'static str,
    choices: &[(&str, T)],
) -> Option<T> {
    let Located { value, at } = fields.text(key)?;
    let found = choices.iter().find(|(name, _)| *name == value);
    if found.is_none() {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let (last, rest) = names.split_last()?;
        let what = format!("`{value}` is unknown: write {} or {last}", rest.join(", "));
        fields.fail(key, at, what);
    }
    found.map(|(_, choice)| *choice)
}

/// A file; an empty text is none.
pub(super) fn file(fields: &mut Fields<'_, '_>, key: &'static str) -> Option<PathBuf> {
    let text = fields.text(key).filter(|text| !text.value.is_empty())?;
    Some(absolute(fields, key, &text))
}

pub(super) fn lease(fields: &mut Fields<'_, '_>) -> Option<Duration> {
    // The lease is renewed four times in its life, and no timer is faster than a second.
    let seconds = fields.integer(LEASE, 4, 86_400)?;
    Some(Duration::from_secs(u64::from(u32::try_from(seconds.value).unwrap_or(40))))
}

pub(super) fn node_ips(fields: &mut Fields<'_, '_>) -> Vec<IpAddr> {
    let Some(found) = fields.node(NODE_IP) else { return Vec::new() };
    let Some(text) = fields.raw(NODE_IP, &found, "an address") else { return Vec::new() };
    let mut ips: Vec<IpAddr> = Vec::new();
    for part in text.value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.parse::<IpAddr>() {
            Ok(ip) if ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() => {
                let what = format!("`{part}` is no address that others can reach this node at");
                fields.fail(NODE_IP, text.at, what);
            }
            Ok(ip) if ips.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) => {
                let what = "has two addresses of one family: write one, or an IPv4 and an IPv6 one";
                fields.fail(NODE_IP, text.at, what);
            }
            Ok(ip) => ips.push(ip),
            Err(_) => {
                let what = format!("`{part}` is no address: write such as 10.0.0.5 or fd00::5");
                fields.fail(NODE_IP, text.at, what);
            }
        }
    }
    ips
}

pub(super) fn name_servers(fields: &mut Fields<'_, '_>) -> Vec<IpAddr> {
    let Some(found) = fields.node(DNS) else { return Vec::new() };
    let Value::List(items) = &found.value.value else {
        let what = format!("needs a list such as [10.96.0.10], this is {}", found.value.describe());
        fields.fail(DNS, found.at, what);
        return Vec::new();
    };
    let mut servers = Vec::with_capacity(items.len());
    for item in items {
        let address = match &item.value {
            Value::Scalar(scalar) => scalar.text.parse::<IpAddr>().ok(),
            _ => None,
        };
        match address {
            Some(address) => servers.push(address),
            None => {
                let what =
                    format!("needs addresses such as 10.96.0.10, this is {}", item.describe());
                fields.fail(DNS, item.at, what);
            }
        }
    }
    servers
}

/// A domain such as cluster.local. It becomes a word of a resolver file.
pub(super) fn domain(fields: &mut Fields<'_, '_>) -> String {
    let Some(text) = fields.text(DOMAIN) else { return String::new() };
    let is_label = |label: &str| {
        let mut letters = label.bytes();
        !label.starts_with('-')
            && !label.ends_with('-')
            && (1..=63).contains(&label.len())
            && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
    };
    let plain = text.value.strip_suffix('.').unwrap_or(text.value);
    if !text.value.is_empty() && (plain.len() > 253 || !plain.split('.').all(is_label)) {
        let what = format!("`{}` is no domain: write such as cluster.local", text.value);
        fields.fail(DOMAIN, text.at, what);
    }
    plain.to_owned()
}

pub(super) fn taints(fields: &mut Fields<'_, '_>) -> Vec<NodeTaint> {
    let Some(found) = fields.node(TAINTS) else { return Vec::new() };
    let Value::List(items) = &found.value.value else {
        let what = format!("needs a list, this is {}", found.value.describe());
        fields.fail(TAINTS, found.at, what);
        return Vec::new();
    };
    let mut taints: Vec<NodeTaint> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Some(taint) = taint(fields, index, item) else { continue };
        if taints.iter().any(|t| (&t.key, t.effect) == (&taint.key, taint.effect)) {
            let what = format!("{}:{} is listed twice: keep one", taint.key, taint.effect);
            fields.fail_index(TAINTS, index, item.at, what);
        } else {
            taints.push(taint);
        }
    }
    taints
}

fn taint(fields: &mut Fields<'_, '_>, index: usize, item: &Node) -> Option<NodeTaint> {
    let start = item.at;
    fields.below_index(TAINTS, index, item, |entry| {
        let key = required(entry, "key", start);
        let value = entry.text("value").map(|text| (text.value.to_owned(), text.at));
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let effect = match entry.has("effect") {
            true => one_of(entry, "effect", &effects.map(|effect| (effect, effect))),
            false => {
                required(entry, "effect", start);
                None
            }
        };
        let (key, at) = key?;
        if !names::is_qualified_name(&key) {
            entry.fail(
                "key",
                at,
                format!("`{key}` is no taint's key: write such as example.com/a"),
            );
        }
        let (value, at) = value.unwrap_or_else(|| (String::new(), at));
        if !names::is_label_value(&value) {
            let what =
                format!("`{value}` is no taint's value: write letters, digits, `-`, `_`, `.`");
            entry.fail("value", at, what);
        }
        Some(NodeTaint { key, value, effect: effect? })
    })
}

fn required(
    fields: &mut Fields<'_, '_>,
    key: &'static str,
    start: Position,
) -> Option<(String, Position)> {
    if !fields.has(key) {
        // Known, so that it is not called unknown when it is null.
        let _ = fields.node(key);
        fields.fail(key, start, "is missing: an entry needs one");
        return None;
    }
    fields.text(key).map(|text| (text.value.to_owned(), text.at))
}

pub(super) fn ended_pods(fields: &mut Fields<'_, '_>) -> Option<EndedPods> {
    let Located { value, at } = fields.text(ENDED)?;
    let unknown = |fields: &mut Fields<'_, '_>, why: &str| {
        let what = format!("`{value}` {why}: write delete, keep, or ttl and a duration (ttl 24h)");
        fields.fail(ENDED, at, what);
        None
    };
    match value {
        "delete" => Some(EndedPods::Delete),
        "keep" => Some(EndedPods::Keep),
        _ => {
            let Some(after) = value.strip_prefix("ttl ") else {
                return unknown(fields, "is unknown");
            };
            match parse_duration(after.trim()) {
                Ok(after) if (Duration::from_secs(1)..=LONGEST).contains(&after) => {
                    Some(EndedPods::Ttl(after))
                }
                Ok(_) => unknown(fields, "is out of range, which is 1s to 720h"),
                Err(_) => unknown(fields, "has no duration"),
            }
        }
    }
}
