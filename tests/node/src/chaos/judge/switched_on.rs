//! What comes of that which is off unless configured, and of what pods are told.

use serde_json::Value;

use super::report::{all, of, ran};
use super::{SLACK, Verdict, seconds, within};
use crate::chaos::record::{At, Record};
use crate::chaos::{Fault, Feature, Runtime};
use crate::{Manner, TestPod};

/// How long a program with a lock is waited for.
const TURN: At = super::SECOND;

/// A pod that was asked to end, and ended, had a notice of it then. A container of a containerd that is away, or of
/// an agent that was killed before it had made the directory, may have none.
pub(super) fn pods_are_told(record: &Record) -> Verdict {
    let is_away = |fault: Fault| {
        [Fault::ContainerdKilled, Fault::ContainerdStopped, Fault::ContainerdHangs].contains(&fault)
    };
    if record.runtime == Runtime::Containerd && record.harms.iter().any(|harm| is_away(harm.fault))
    {
        return Ok(());
    }
    for (name, log) in &record.logs {
        if log.told.len() < log.exits.len() {
            return Err(format!("{name} was not told that it ends: {log:?}"));
        }
    }
    Ok(())
}

/// Pods that do not end have no notice: none came, or it was taken back.
pub(super) fn a_notice_goes_when_it_is_called_off(record: &Record) -> Verdict {
    match &record.untimely[..] {
        [] => Ok(()),
        pods => Err(format!("pods at rest with an end notice: {}", pods.join(", "))),
    }
}

/// What was switched on did what it is for, and what abused it harmed nobody.
pub(super) fn what_is_switched_on_works(record: &Record) -> Verdict {
    // What others say of the report need not be said again.
    let Some(report) = record.report() else { return Ok(()) };
    record.features.iter().try_for_each(|feature| match feature {
        // That everybody else was started is seen when the node is at rest.
        Feature::StartInOrder => Ok(()),
        Feature::Guard => the_held_shutdown_is_reported(record, report),
        Feature::RebootInPlace => the_pod_stays(record, report),
        Feature::AfterNodes => the_wait_is_reported(report),
        Feature::InhibitorSocket => the_program_has_its_turn(record),
        Feature::FarNotice => nothing_ends_by_notice(record),
    })
}

fn the_held_shutdown_is_reported(record: &Record, report: &Value) -> Verdict {
    // Whoever comes back after one of these takes the lock anew.
    let is_new = record.harms.iter().any(|harm| harm.fault.keeps_the_lock_away());
    let Some(pod) = with(record, Manner::Holding).filter(|pod| ran(record, pod)) else {
        return Ok(());
    };
    let warnings = report["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_named = warnings.clone().any(|said| said.contains(&pod.name) && said.contains("held"));
    match is_named || is_new || record.at_rest.is_none() {
        true => Ok(()),
        false => Err(format!("the report does not name {}: {:?}", pod.name, report["warnings"])),
    }
}

fn the_pod_stays(record: &Record, report: &Value) -> Verdict {
    let Some(pod) = with(record, Manner::Staying).filter(|pod| ran(record, pod)) else {
        return Ok(());
    };
    match of(report, pod) {
        Some(said) if said["stays"] != true => Err(format!("it does not stay: {said}")),
        _ => Ok(()),
    }
}

/// The node that is waited for never goes down: the wait is over with its time.
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

/// It is told before the first pod is asked, and waited for no longer than its time.
fn the_program_has_its_turn(record: &Record) -> Verdict {
    let shutdown = (record.last_asked(), At::MAX);
    let terms = record.logs.values().filter_map(|log| within(&log.terms, shutdown).next());
    let Some(first) = terms.min() else { return Ok(()) };
    let is_new = record
        .harms
        .iter()
        .any(|harm| harm.fault.keeps_the_lock_away() || harm.fault == Fault::ShutdownPastLogind);
    match within(&record.turns, shutdown).next() {
        // A pod that was ending already wrote it down a moment later.
        Some(turn) if first + SLACK / 4 < turn => {
            Err(format!("a pod was asked {} before the program", seconds(turn - first)))
        }
        Some(turn) if !is_new && first > turn + TURN + SLACK => {
            Err(format!("the first pod waited for {}", seconds(first - turn)))
        }
        None if !is_new => Err("the program that has a lock was not told".to_owned()),
        _ => Ok(()),
    }
}

fn nothing_ends_by_notice(record: &Record) -> Verdict {
    match record.reports.iter().any(|report| report["trigger"] == "notice") {
        true => Err("pods ended for a notice that is hours away".to_owned()),
        false => Ok(()),
    }
}

fn with(record: &Record, manner: Manner) -> Option<&TestPod> {
    record.pods.iter().find(|pod| pod.manner == manner)
}
