//! Checks how much memory, disk space, inodes and tasks are left.

use std::path::Path;

use winddown_eviction::{Cause, Signal, Unit};
use winddown_shared::Quantity;
use winddown_shared::display::bytes;

use super::Check;
use crate::facts::Facts;
use crate::finding::{Area, Finding};
use winddown_control::api::{PressureStatus, ThresholdStatus};

/// Checks that no eviction threshold is met: otherwise pods are evicted as soon as an agent runs. Returns `None` beside
/// a kubelet, which evicts by thresholds of its own.
pub(super) fn room(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "room",
        Area::Node,
        "below a threshold pods that may be evicted are terminated, one after the other, until enough is left",
    );
    if facts.is_beside_kubelet() {
        return None;
    }
    let running = facts.agent.known().and_then(|status| status.pressure.as_ref());
    // An agent that has just started has not measured anything yet.
    let running = running.filter(|pressure| pressure.thresholds.iter().any(is_measured));
    let is_met = |one: &&ThresholdStatus| one.met_for_seconds.is_some() && is_measured(one);
    let short: Vec<&ThresholdStatus> = match (running, facts.shortages.known()) {
        (Some(pressure), _) => pressure.thresholds.iter().filter(is_met).collect(),
        (None, Some(short)) => short.iter().collect(),
        (None, None) => return CHECK.not_observed("what is left", &facts.shortages),
    };
    if short.is_empty() {
        let well = CHECK.ok("no eviction threshold is met");
        return Some(match running.and_then(swap_line) {
            Some(swap) => well.saw(swap),
            None => well,
        });
    }
    let lines: Vec<String> = short.iter().filter_map(|short| line(short)).collect();
    if facts.config.config.eviction.shadow {
        let title =
            "an eviction threshold is met: pods would be evicted, were it not for evictionShadow";
        return Some(CHECK.info(title).saw_all(&lines));
    }
    let when = match short.iter().any(|short| short.hard) {
        true => "at once",
        false => "if it stays so",
    };
    let on = if facts.agent.known().is_some() { "" } else { " when the agent starts" };
    let disk = short.iter().any(|short| short.signal.contains("fs."));
    let mut found = CHECK
        .warning(format!("an eviction threshold is met: pods will be evicted {when}{on}"))
        .saw_all(&lines);
    if disk {
        found = found.advise(super::node::space(&[state_directory(facts)]));
    }
    let mut then = "";
    if facts.agent.known().is_some() {
        found = found.advise("`winddown plan eviction --explain` shows which pod would be evicted");
        then = ", then: `systemctl reload winddown`";
    }
    Some(found.advise(format!(
        "make room, or lower {} in {}{then}",
        fields(&short),
        facts.config.file.display()
    )))
}

/// The free swap of the node; `None` on a node without swap.
fn swap_line(pressure: &PressureStatus) -> Option<String> {
    let swap = pressure.swap?;
    let (free, total) = (bytes(swap.free), bytes(swap.total));
    Some(format!("swap: {free} of {total} free, which does not count as available memory"))
}

fn is_measured(threshold: &ThresholdStatus) -> bool {
    threshold.available.is_some()
}

fn line(short: &ThresholdStatus) -> Option<String> {
    let counted = Cause::named(&short.signal).and_then(Cause::unit) != Some(Unit::Bytes);
    let amount = |amount: i64| match u64::try_from(amount) {
        Ok(amount) if !counted => bytes(amount),
        _ => amount.to_string(),
    };
    let parsed =
        |text: &Option<String>| text.as_ref()?.parse().ok().map(|one: Quantity| one.value());
    let ThresholdStatus { signal, hard, available, threshold, capacity, .. } = short;
    let all = [parsed(available)?, parsed(threshold)?, (*capacity)?];
    let [available, threshold, capacity] = all.map(amount);
    let kind = if *hard { "hard" } else { "soft" };
    Some(format!("{signal}: {available} of {capacity}, the {kind} threshold is {threshold}"))
}

fn fields(short: &[&ThresholdStatus]) -> String {
    let mut fields: Vec<String> = Vec::new();
    for short in short {
        let field = if short.hard { "evictionHard" } else { "evictionSoft" };
        // A threshold that is derived from another has no field of its own.
        let signal = match short.signal.parse::<Signal>().map(Signal::configured_as) {
            Ok(Some(signal)) => signal.as_str(),
            Ok(None) => continue,
            // An agent of another version has signals of its own.
            Err(_) => &short.signal,
        };
        let field = format!("{field}[{signal}]");
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    fields.join(", ")
}

fn state_directory(facts: &Facts) -> &Path {
    &facts.config.config.access.state_directory
}
