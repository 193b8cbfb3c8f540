//! `winddown plan eviction`, as the running agent answers it, and the pressure in `winddown status`.

use winddown_shared::display::{clean, seconds};

use super::paint::{BAD, DIM, GOOD, HEAD, Paint, WARN};
use super::{Column, Table, View, wrap};
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
        text.push_str(&ranking(&plan.pods, view));
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
            for (number, part) in wrap(&one(record), view.width, 4).iter().enumerate() {
                text.push_str(if number == 0 { "  " } else { "    " });
                text.push_str(part);
                text.push('\n');
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
        let (signal, available) = (clean(&one.signal), one.available.as_deref().unwrap_or("-"));
        let least = one.threshold.as_deref().unwrap_or("-");
        text.push_str(&format!("; {signal} {} of {}", clean(available), clean(least)));
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
        let amount =
            |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), rounded);
        table.row([
            (one.signal.clone(), None),
            (amount(&one.available), style),
            (amount(&one.threshold), None),
            (kind, None),
            (met, style),
        ]);
    }
    table.render(view)
}

/// Those that would end, in their order; in a wide view the others too.
fn ranking(pods: &[RankedPodStatus], view: &View) -> String {
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
            (pod.usage.map_or_else(|| "-".to_owned(), |usage| usage.to_string()), None),
            (pod.request.to_string(), None),
            (what.to_owned(), style),
        ]);
    }
    table.render(view)
}

/// Bytes as people write them, `23.5Gi`; all else as it is.
fn rounded(text: &str) -> String {
    let kibibytes = text.strip_suffix("Ki").and_then(|digits| digits.parse::<i64>().ok());
    let bytes = kibibytes.and_then(|kibibytes| kibibytes.checked_mul(1024));
    bytes.map_or_else(|| text.to_owned(), super::preemption::byte_text)
}

fn one(record: &EvictionRecord) -> String {
    let mut text = format!("{} {}", record.at, clean(&record.signal));
    if let (Some(available), Some(least)) = (&record.available, &record.threshold) {
        text.push_str(&format!(": {} of {}", clean(available), clean(least)));
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
