//! The node's state in its cluster, in one line.

use anstyle::Style;
use winddown_shared::display::{age, clean, seconds};

use super::paint::{BAD, GOOD, PLAIN, WARN};
use super::times::Times;
use winddown_control::api::{AfterNodesStatus, ApiState, ClusterStatus, NodeStage};

/// The age in seconds from which a lease is shown.
const OLD_LEASE: u64 = 30;

pub(super) fn summary(cluster: &ClusterStatus, times: Times<'_>) -> (String, Style) {
    let since = cluster.api.since.map(|then| format!(" {}", times.since(then))).unwrap_or_default();
    let (state, mut style) = match cluster.api.state {
        ApiState::Connected => ("API connected", GOOD),
        ApiState::Unreachable => ("API UNREACHABLE", BAD),
        ApiState::Unauthorized => ("API REJECTS the credentials", BAD),
        ApiState::Untrusted => ("TLS with the API server FAILS", BAD),
        ApiState::Unsigned => ("no credentials for the API server yet", WARN),
        ApiState::Unknown => ("API not queried yet", WARN),
    };
    let mut text = format!("{state}{since}");
    if let Some(why) = &cluster.api.why {
        text.push_str(&format!(": {}", clean(why)));
    }
    match cluster.registered {
        Some(true) => text.push_str("; node registered"),
        Some(false) => {
            text.push_str("; the Node object was deleted");
            style = BAD;
        }
        // Beside a kubelet, which registers it.
        None if cluster.is_beside_kubelet() => {}
        None => text.push_str("; node not registered yet"),
    }
    if let Some(seconds) = cluster.lease_age_seconds.filter(|age| *age > OLD_LEASE) {
        let old = age(i64::try_from(seconds).unwrap_or(i64::MAX));
        text.push_str(&format!("; lease last renewed {old} ago"));
    }
    for (count, what) in [
        (cluster.statuses_waiting, "statuses not sent yet"),
        (cluster.spooled, "kept on disk"),
        (cluster.pods_waiting, "pods waiting to be synced"),
    ] {
        if count > 0 {
            text.push_str(&format!("; {count} {what}"));
        }
    }
    let is_said =
        |problem: &&String| cluster.api.why.as_ref().is_some_and(|why| why.contains(&***problem));
    for problem in cluster.problems.iter().filter(|problem| !is_said(problem)) {
        text.push_str(&format!("; {}", clean(problem)));
        if style == GOOD {
            style = WARN;
        }
    }
    (text, style)
}

const MAX_NAMED_NODES: usize = 5;

/// The line about the nodes that shut down before this one, and its style.
pub(super) fn after_nodes(after: &AfterNodesStatus) -> (String, Style) {
    let (wait, which) = (seconds(after.wait_seconds), clean(&after.selector));
    let title = match after.waiting {
        true => format!("waiting up to {wait} for nodes {which}"),
        false => format!("a shutdown waits up to {wait} for nodes {which}"),
    };
    let style = if after.waiting { WARN } else { PLAIN };
    if let Some(why) = &after.problem {
        return (format!("{title}; their progress is UNKNOWN: {}", clean(why)), WARN);
    }
    let Some(nodes) = &after.nodes else {
        return (format!("{title}; not known yet which"), WARN);
    };
    if nodes.is_empty() {
        return (format!("{title}; no other node matches"), WARN);
    }
    let stage = |stage| match stage {
        NodeStage::NotReporting => "never reports shutdowns",
        NodeStage::Up => "up",
        NodeStage::ShuttingDown => "going down",
        NodeStage::Down => "down",
        NodeStage::Unknown => "unknown",
    };
    let named = nodes.iter().take(MAX_NAMED_NODES);
    let mut named: Vec<_> =
        named.map(|node| format!("{} {}", clean(&node.name), stage(node.stage))).collect();
    if let Some(more @ 1..) = nodes.len().checked_sub(MAX_NAMED_NODES) {
        named.push(format!("{more} more"));
    }
    (format!("{title}; {}", named.join(", ")), style)
}
