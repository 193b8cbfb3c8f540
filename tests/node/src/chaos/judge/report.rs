//! The report must agree with what the pods recorded.

use serde_json::Value;

use super::{SECOND, Verdict, within};
use crate::chaos::record::Record;
use crate::chaos::seen::is_called;
use crate::chaos::{Fate, Fault, Service};
use crate::scenario::has_unknown_end;
use crate::witness::At;
use crate::{PodBehavior, TestPod};

/// Every shutdown has a report, and the last one lists every pod that ran, with its end.
pub(super) fn the_report_is_complete(record: &Record) -> Verdict {
    if record.reports.iter().any(Value::is_null) {
        return Err("a report is not whole".to_owned());
    }
    let Some(report) = record.report() else {
        return match may_be_missing(record) {
            true => Ok(()),
            false => Err("there is no report".to_owned()),
        };
    };
    let (reports, asked) = (record.shutdown_reports().count(), record.asked.len());
    if reports != asked && !may_be_missing(record) {
        return Err(format!("there are {reports} reports of {asked} shutdowns"));
    }
    let trigger = report["trigger"].as_str().unwrap_or_default();
    let past = record.had(Fault::ShutdownPastLogind) && trigger == "unitStop";
    if trigger != "loginManager" && !past {
        return Err(format!("the report says it began by {trigger}"));
    }
    // Also counts pods that were still being started.
    let is_forced = all(report).any(|said| said["outcome"] == "killed");
    let mut is_known = true;
    for pod in record.pods.iter().filter(|pod| ran(record, pod)) {
        let Some(said) = of(report, pod) else {
            if ended_for_its_own_reason(record, pod) {
                continue;
            }
            return Err(format!("the report lacks {}", pod.name));
        };
        if may_be_unknown(record) && has_unknown_end(said) {
            is_known = false;
            continue;
        }
        let end = said["outcome"].as_str().unwrap_or_default();
        let expected = match pod.behavior {
            PodBehavior::Willing
            | PodBehavior::NeverReady
            | PodBehavior::Holding
            | PodBehavior::Staying => end == "exited",
            PodBehavior::Deaf | PodBehavior::Lasting | PodBehavior::Stuck => end == "killed",
            PodBehavior::Hog => matches!(end, "exited" | "killed"),
        };
        if !expected {
            return Err(format!("the report says of {} ({:?}): {said}", pod.name, pod.behavior));
        }
    }
    let outcome = if is_forced { "forced" } else { "clean" };
    match is_known && report["outcome"] != outcome {
        true => Err(format!("the report says {}, and it was {outcome}", report["outcome"])),
        false => Ok(()),
    }
}

/// Whether the pod was running when the last shutdown was requested.
pub(super) fn ran(record: &Record, pod: &TestPod) -> bool {
    let asked = record.last_asked();
    let log = &record.logs[&pod.name];
    let before = (0, asked);
    let starts: Vec<At> = log.starts.iter().map(|(at, _)| *at).collect();
    let Some(started) = within(&starts, before).last() else { return false };
    let since = (started, asked);
    let ended = record.lives.iter().filter(|life| life.pod == pod.name);
    let ended: Vec<At> = ended.filter_map(|life| life.ended).collect();
    // Pods that were already terminating for other pods are not counted.
    let was_ending = within(&log.terms, since).next().is_some();
    !was_ending && within(&log.exits, since).chain(within(&ended, since)).next().is_none()
}

/// Whether the pod was gone before the last shutdown can have asked it to stop.
fn ended_for_its_own_reason(record: &Record, pod: &TestPod) -> bool {
    let asked = record.last_asked();
    let before = (asked, record.asks_from(pod, (asked, At::MAX)));
    let lives = record.lives.iter().filter(|life| life.pod == pod.name);
    lives.filter_map(|life| life.ended).any(|ended| (before.0..before.1).contains(&ended))
}

pub(super) fn of<'a>(report: &'a Value, pod: &TestPod) -> Option<&'a Value> {
    let is = |said: &&Value| said["name"].as_str().is_some_and(|name| is_called(name, &pod.name));
    all(report).find(is)
}

/// All pods in a report.
pub(super) fn all(report: &Value) -> impl Iterator<Item = &Value> {
    let groups = report["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["pods"].as_array().into_iter().flatten())
}

/// Whether the end of pods may be unknown. What a killed agent had seen but not recorded is lost, and the next one
/// reports it as unknown. The same holds while containerd is away.
fn may_be_unknown(record: &Record) -> bool {
    let asked = record.last_asked();
    let containerd =
        |fault| matches!(fault, Fault::Of(Service::Containerd, fate) if fate != Fate::Hangs);
    record.was_harmed(Fault::kills_the_agent, asked, At::MAX)
        || record.runtime.has_containers() && record.was_harmed(containerd, asked, At::MAX)
}

/// Whether reports may be missing: a full disk takes no report. It has to be full then, and the agent has to log that.
fn may_be_missing(record: &Record) -> bool {
    let is_full = |fault| fault == Fault::StateFull;
    record.excuses.iter().any(|at| record.was_harmed(is_full, at.saturating_sub(SECOND / 10), *at))
}
