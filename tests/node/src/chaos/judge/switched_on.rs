//! Invariants about optional features, and about the notices that pods get.

use serde_json::Value;

use super::Verdict;
use super::report::{all, of, ran};
use crate::chaos::record::Record;
use crate::chaos::{Fate, Fault, Feature, Runtime, Service};
use crate::{PodBehavior, TestPod};

/// A pod that was asked to stop, and stopped, had an termination notice at that time. A container may have none if containerd
/// was away, or if the agent was killed before it created the directory.
pub(super) fn pods_are_told(record: &Record) -> Verdict {
    let is_away = |fault: Fault| matches!(fault, Fault::Of(Service::Containerd, fate) if fate != Fate::Restarted);
    // Beside a kubelet, nobody tells.
    if record.runtime == Runtime::Companion {
        return Ok(());
    }
    if record.runtime.has_containers() && record.harms.iter().any(|harm| is_away(harm.fault)) {
        return Ok(());
    }
    for (name, log) in &record.logs {
        if log.told.len() < log.exits.len() {
            return Err(format!("{name} was not told that it ends: {log:?}"));
        }
    }
    Ok(())
}

/// Pods that are not stopping have no termination notice: there was none, or it was withdrawn.
pub(super) fn a_notice_goes_when_it_is_called_off(record: &Record) -> Verdict {
    match &record.untimely[..] {
        [] => Ok(()),
        pods => Err(format!("pods at rest with an termination notice: {}", pods.join(", "))),
    }
}

/// The enabled features did what they are for, and the abuse of them did no harm.
pub(super) fn what_is_switched_on_works(record: &Record) -> Verdict {
    // Other invariants check whether the report exists.
    let Some(report) = record.report() else { return Ok(()) };
    record.features.iter().try_for_each(|feature| match feature {
        // Checked when the node comes to rest: all other pods were started.
        Feature::StartInOrder => Ok(()),
        Feature::Guard => the_held_shutdown_is_reported(record, report),
        Feature::RebootInPlace => the_pod_stays(record, report),
        Feature::AfterNodes => the_wait_is_reported(report),
        Feature::FarNotice => nothing_ends_by_notice(record),
    })
}

fn the_held_shutdown_is_reported(record: &Record, report: &Value) -> Verdict {
    // An agent or logind that was restarted acquires the lock again.
    let is_new = record.harms.iter().any(|harm| harm.fault.keeps_the_lock_away());
    let Some(pod) = with(record, PodBehavior::Holding).filter(|pod| ran(record, pod)) else {
        return Ok(());
    };
    let warnings = report["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_named =
        warnings.clone().any(|said| said.contains(&pod.name) && said.contains("blocked"));
    match is_named || is_new || record.at_rest.is_none() {
        true => Ok(()),
        false => Err(format!("the report does not name {}: {:?}", pod.name, report["warnings"])),
    }
}

fn the_pod_stays(record: &Record, report: &Value) -> Verdict {
    let Some(pod) = with(record, PodBehavior::Staying).filter(|pod| ran(record, pod)) else {
        return Ok(());
    };
    match of(report, pod) {
        Some(said) if said["staysOnReboot"] != true => Err(format!("it does not stay: {said}")),
        _ => Ok(()),
    }
}

/// The awaited node never goes down: the wait must time out.
fn the_wait_is_reported(report: &Value) -> Verdict {
    // Without pods of the control plane there is nothing that could wait.
    if all(report).next().is_none() {
        return Ok(());
    }
    let mut work = report["work"].as_array().into_iter().flatten();
    match work.find(|work| work["what"] == "wait for the nodes that go down first") {
        Some(wait) if wait["outcome"] != "done" => Ok(()),
        wait => Err(format!("the wait for a node that is up: {wait:?}")),
    }
}

fn nothing_ends_by_notice(record: &Record) -> Verdict {
    match record.reports.iter().any(|report| report["trigger"] == "notice") {
        true => Err("pods terminated for a notice that is hours away".to_owned()),
        false => Ok(()),
    }
}

fn with(record: &Record, behavior: PodBehavior) -> Option<&TestPod> {
    record.pods.iter().find(|pod| pod.behavior == behavior)
}
