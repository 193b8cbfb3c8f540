//! `winddown plan eviction`, as the running agent answers it, and the pressure in `winddown status`.

mod curve;

use winddown_shared::Quantity;
use winddown_shared::display::{clean, seconds};

use super::paint::{BAD, DIM, GOOD, HEAD, Paint, WARN};
use super::preemption::byte_text;
use super::{Column, Table, View, hanging};
use winddown_control::api::{
    EvictionPlan, EvictionRecord, PressureStatus, RankedPodStatus, ThresholdStatus,
};

/// Decisions shown unless the view is wide.
const DECISIONS: usize = 5;

/// How far each threshold is, who would end and in which order, and what was decided lately. A wide
/// view has all pods, also those that would stay, and all decisions.
pub fn eviction(plan: &EvictionPlan, view: &View) -> String {
    let paint = Paint { color: view.color };
    let mut text = String::new();
    let (line, style) = summary(&plan.pressure);
    text.push_str(&format!("pressure: {}\n", paint.with(style, &line)));
    if !plan.pressure.thresholds.is_empty() {
        text.push('\n');
        text.push_str(&thresholds(&plan.pressure.thresholds, view));
    }
    if let Some(signal) = &plan.signal {
        let title = format!("WOULD END FOR {}", clean(signal));
        text.push_str(&format!("\n{}\n", paint.with(HEAD, &title)));
        text.push_str(&ranking(signal, &plan.pods, view));
    }
    for pod in &plan.pressure.away {
        let name = format!("{}/{}", clean(&pod.namespace), clean(&pod.name));
        let when = seconds(pod.back_in_seconds);
        text.push_str(&format!("{name} was evicted and comes back in {when} at the earliest\n"));
    }
    if !plan.history.is_empty() {
        text.push_str(&format!("\n{}\n", paint.with(HEAD, "DECISIONS")));
        let shown = if view.wide { plan.history.len() } else { DECISIONS };
        let first = plan.history.len().saturating_sub(shown);
        for record in plan.history.iter().skip(first) {
            text.push_str(&hanging(&one(record), view.width, "  ", 4));
            let room = view.width.map(|width| width.saturating_sub(4));
            let curve = record.curve.as_ref().and_then(|curve| curve::lines(curve, room));
            if let Some([blocks, mark, said]) = curve {
                text.push_str(&format!("    {blocks}\n    {mark}\n"));
                text.push_str(&hanging(&said, view.width, "    ", 4));
            }
        }
    }
    text
}

/// How the node stands, in one line, and how that is painted.
pub(super) fn summary(pressure: &PressureStatus) -> (String, anstyle::Style) {
    let met: Vec<&ThresholdStatus> =
        pressure.thresholds.iter().filter(|one| one.met_seconds.is_some()).collect();
    let mut text = match (pressure.conditions.is_empty(), met.as_slice()) {
        (true, []) if pressure.thresholds.is_empty() => "no thresholds".to_owned(),
        (true, []) => "none".to_owned(),
        (true, _) => "short".to_owned(),
        (false, _) => clean(&pressure.conditions.join(", ")).into_owned(),
    };
    for one in &met {
        let [available, least] =
            [&one.available, &one.threshold].map(|text| amount(&one.signal, text));
        text.push_str(&format!("; {} {available} of {least}", clean(&one.signal)));
    }
    if pressure.shadow {
        text.push_str(" (only watching: evictionShadow)");
    }
    let style = match (met.is_empty(), pressure.conditions.is_empty()) {
        (true, true) => GOOD,
        (true, false) => WARN,
        (false, _) => BAD,
    };
    (text, style)
}

fn thresholds(all: &[ThresholdStatus], view: &View) -> String {
    let mut table = Table::new([
        Column::words("SIGNAL"),
        Column::numbers("AVAILABLE"),
        Column::numbers("LEAST"),
        Column::words("KIND"),
        Column::numbers("MET-FOR"),
    ]);
    for one in all {
        let kind = match one.hard {
            true => "hard".to_owned(),
            false => format!("soft, {}", seconds(one.grace_seconds)),
        };
        let met = one.met_seconds.map_or_else(|| "-".to_owned(), seconds);
        let style = one.met_seconds.map(|_| BAD);
        table.row([
            (one.signal.clone(), None),
            (amount(&one.signal, &one.available), style),
            (amount(&one.signal, &one.threshold), None),
            (kind, None),
            (met, style),
        ]);
    }
    table.render(view)
}

/// Those that would end, in their order; in a wide view the others too.
fn ranking(signal: &str, pods: &[RankedPodStatus], view: &View) -> String {
    let can_end = |pod: &&RankedPodStatus| matches!(&*pod.verdict, "chosen" | "notNeeded");
    let shown: Vec<_> = pods.iter().filter(|pod| view.wide || can_end(pod)).collect();
    if shown.is_empty() {
        return "none: no pod can be ended for it\n".to_owned();
    }
    let mut table = Table::new([
        Column::words("POD"),
        Column::numbers("PRIORITY"),
        Column::numbers("USES"),
        Column::numbers("ASKED-FOR"),
        Column::words("WHAT"),
    ]);
    for pod in shown {
        let (what, style) = match &*pod.verdict {
            "chosen" => ("ends first", Some(WARN)),
            "notNeeded" => ("stays while others come first", None),
            "critical" => ("stays: the node cannot do without it", Some(DIM)),
            "notMeasured" => ("stays: what it uses is not known", Some(DIM)),
            "ending" => ("is ending", Some(DIM)),
            "stuck" => ("should have ended", Some(BAD)),
            other => (other, None),
        };
        table.row([
            (format!("{}/{}", pod.namespace, pod.name), None),
            (pod.priority.to_string(), None),
            (amount(signal, &pod.usage.map(|usage| usage.to_string())), None),
            (amount(signal, &Some(pod.request.to_string())), None),
            (what.to_owned(), style),
        ]);
    }
    table.render(view)
}

/// What a signal speaks of as people write it: bytes as `23.5Gi`, unless they are round already, and all else as it
/// is; `-` where it is not known.
pub(super) fn amount(signal: &str, text: &Option<String>) -> String {
    let Some(text) = text.as_deref() else { return "-".to_owned() };
    let is_counted = signal == "pid.available" || signal.ends_with("inodesFree");
    let is_round = ["Mi", "Gi", "Ti"].iter().any(|unit| text.ends_with(unit));
    let bytes = text.parse::<Quantity>().ok().filter(|_| !is_counted && !is_round);
    bytes.map_or_else(|| clean(text).into_owned(), |bytes| byte_text(bytes.value()))
}

fn one(record: &EvictionRecord) -> String {
    let mut text = format!("{} {}", record.at, clean(&record.signal));
    if record.available.is_some() && record.threshold.is_some() {
        let [available, least] =
            [&record.available, &record.threshold].map(|text| amount(&record.signal, text));
        text.push_str(&format!(": {available} of {least}"));
    }
    if let Some(victim) = &record.victim {
        text.push_str(&format!(", {}", clean(victim)));
    }
    text.push_str(&format!(": {}", clean(&record.outcome)));
    if record.times > 1 {
        text.push_str(&format!(" ({} times)", record.times));
    }
    text
}
