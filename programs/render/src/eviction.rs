//! The output of `winddown plan eviction`, and the pressure in `winddown status`.

use winddown_eviction::{Cause, Unit};
use winddown_shared::display::{clean, seconds};
use winddown_shared::{Quantity, SYSTEM_CRITICAL_PRIORITY};

use super::paint::{BAD, DIM, GOOD, HEAD, Paint, WARN};
use super::preemption::byte_text;
use super::{Column, Table, View, hanging, priority_unless_unset};
use winddown_control::api::{
    EvictionHookRun, EvictionPlan, EvictionRecord, PressureStatus, RankedPodStatus, SwapStatus,
    ThresholdStatus,
};

/// The number of decisions about a pod shown unless the view is wide, and of others.
const SHOWN_DECISIONS: usize = 5;

/// The thresholds, the pods that would be evicted in eviction order, and the latest decisions. A wide view has all
/// pods, including those that would stay, and all decisions.
pub fn eviction(plan: &EvictionPlan, view: &View) -> String {
    let paint = Paint { color: view.color };
    let mut text = String::new();
    let (line, style) = summary(&plan.pressure);
    text.push_str(&format!("pressure: {}\n", paint.with(style, &line)));
    if let Some(swap) = &plan.pressure.swap {
        text.push_str(&swap_line(swap));
    }
    if !plan.pressure.thresholds.is_empty() {
        text.push('\n');
        text.push_str(&thresholds(&plan.pressure.thresholds, view));
    }
    if let Some(signal) = &plan.signal {
        let title = format!("EVICTION ORDER FOR {}", clean(signal));
        text.push_str(&format!("\n{}\n", paint.with(HEAD, &title)));
        if plan.waits {
            let why = "no pod is evicted yet: enough is freed by those that are terminating";
            text.push_str(&hanging(why, view.width, "", 2));
        }
        text.push_str(&ranking(signal, &plan.pods, view));
    }
    for pod in &plan.pressure.pending_readmission {
        let name = format!("{}/{}", clean(&pod.namespace), clean(&pod.name));
        let delay = match pod.readmission_in_seconds {
            delay if delay > 0.0 => format!(", in {} at the earliest", seconds(delay)),
            _ => String::new(),
        };
        text.push_str(&format!(
            "{name} was evicted and is readmitted when the pressure is over{delay}\n"
        ));
    }
    if !plan.history.is_empty() {
        text.push_str(&format!("\n{}\n", paint.with(HEAD, "DECISIONS")));
        for record in shown_of(&plan.history, view.wide) {
            text.push_str(&hanging(&one(record), view.width, "  ", 4));
            if let Some(run) = &record.hook {
                text.push_str(&hook(run, view));
            }
        }
    }
    text
}

/// The summary of the node's pressure in one line, and its style.
pub(super) fn summary(pressure: &PressureStatus) -> (String, anstyle::Style) {
    let met: Vec<&ThresholdStatus> =
        pressure.thresholds.iter().filter(|one| one.met_for_seconds.is_some()).collect();
    let mut text = match (pressure.conditions.is_empty(), met.as_slice()) {
        (true, []) if pressure.thresholds.is_empty() => "no thresholds".to_owned(),
        (true, []) => "none".to_owned(),
        (true, _) => "short".to_owned(),
        (false, _) => clean(&pressure.conditions.join(", ")).into_owned(),
    };
    for one in &met {
        let [available, least] =
            [&one.available, &one.threshold].map(|text| amount(&one.signal, text));
        text.push_str(&format!("; {} {available}, threshold {least}", clean(&one.signal)));
    }
    if pressure.shadow {
        text.push_str(" (dry run: evictionShadow)");
    }
    let style = match (met.is_empty(), pressure.conditions.is_empty()) {
        (true, true) => GOOD,
        (true, false) => WARN,
        (false, _) => BAD,
    };
    (text, style)
}

/// The line about the free swap, and how much of the used swap is compressed in memory.
fn swap_line(swap: &SwapStatus) -> String {
    let amount = |bytes: u64| byte_text(i64::try_from(bytes).unwrap_or(i64::MAX));
    let (free, total) = (amount(swap.free), amount(swap.total));
    let mut text = format!("swap: {free} of {total} free (does not count as available memory)");
    if let Some((zswap, zswapped)) = swap.zswap.zip(swap.zswapped).filter(|(zswap, _)| *zswap > 0) {
        text.push_str(&format!("; zswap has {} in {}", amount(zswapped), amount(zswap)));
    }
    text.push('\n');
    text
}

fn thresholds(all: &[ThresholdStatus], view: &View) -> String {
    let mut table = Table::new([
        Column::words("SIGNAL"),
        Column::numbers("AVAILABLE"),
        Column::numbers("THRESHOLD"),
        Column::words("KIND"),
        Column::numbers("DURATION"),
    ]);
    for one in all {
        let met = one.met_for_seconds.map_or_else(|| "-".to_owned(), seconds);
        let style = one.met_for_seconds.map(|_| BAD);
        table.row([
            (one.signal.clone(), None),
            (amount(&one.signal, &one.available), style),
            (amount(&one.signal, &one.threshold), None),
            (kind(one), None),
            (met, style),
        ]);
    }
    table.render(view)
}

pub(super) fn kind(threshold: &ThresholdStatus) -> String {
    match threshold.hard {
        true => "hard".to_owned(),
        false => format!("soft, {}", seconds(threshold.grace_seconds)),
    }
}

/// The table of pods that would be evicted, in eviction order; in a wide view, of all pods.
fn ranking(signal: &str, pods: &[RankedPodStatus], view: &View) -> String {
    let can_end = |pod: &&RankedPodStatus| matches!(&*pod.verdict, "chosen" | "notNeeded");
    let shown: Vec<_> = pods.iter().filter(|pod| view.wide || can_end(pod)).collect();
    if shown.is_empty() {
        return match pods.iter().filter(|pod| pod.verdict == "notMeasured").count() {
            0 => format!("none: no pod qualifies for eviction\n{}", spared(pods, view)),
            1 => "none yet: the usage of 1 pod is unknown\n".to_owned(),
            count => format!("none yet: the usage of {count} pods is unknown\n"),
        };
    }
    let mut columns = vec![
        Column::words("POD"),
        Column::numbers("PRIORITY"),
        Column::numbers("USAGE"),
        Column::numbers("REQUEST"),
        Column::words("VERDICT"),
    ];
    let has_swap = shown.iter().any(|pod| pod.swap.is_some_and(|bytes| bytes > 0));
    if has_swap {
        columns.insert(3, Column::numbers("SWAP"));
    }
    let mut table = Table::new(columns);
    for pod in shown {
        let (what, style) = match &*pod.verdict {
            "chosen" => ("is evicted first", Some(WARN)),
            "notNeeded" => ("kept while others come first", None),
            "ending" => ("is terminating", Some(DIM)),
            "stuck" => ("should have terminated", Some(BAD)),
            other => match why_it_stays(other) {
                Some(why) => (why, Some(DIM)),
                None => (other, None),
            },
        };
        let mut row = vec![
            (format!("{}/{}", pod.namespace, pod.name), None),
            (priority_unless_unset(pod.priority, pod.has_no_priority), None),
            (used(signal, pod), None),
            (amount(signal, &Some(pod.request.to_string())), None),
            (what.to_owned(), style),
        ];
        if has_swap {
            row.insert(3, (amount(signal, &pod.swap.map(|bytes| bytes.to_string())), None));
        }
        table.row(row);
    }
    table.render(view)
}

/// What a pod uses; `>` where that is not all.
fn used(signal: &str, pod: &RankedPodStatus) -> String {
    let counted = amount(signal, &pod.usage.map(|usage| usage.to_string()));
    if pod.is_partial { format!(">{counted}") } else { counted }
}

/// Why a pod with this verdict would not be evicted, whatever the others use.
pub fn why_it_stays(verdict: &str) -> Option<&'static str> {
    match verdict {
        "critical" => Some("kept: exempt from eviction"),
        "notMeasured" => Some("kept: its usage is unknown"),
        "refused" => Some("kept: the runtime has just refused to stop it"),
        _ => None,
    }
}

/// Why the policy spares pods, a line for each reason that holds for some.
fn spared(pods: &[RankedPodStatus], view: &View) -> String {
    let spared = pods.iter().filter(|pod| pod.verdict == "critical");
    let (critical, is_static): (Vec<_>, Vec<_>) =
        spared.partition(|pod| pod.priority >= SYSTEM_CRITICAL_PRIORITY);
    let line = |pods: Vec<&RankedPodStatus>, one: &str, several: &str| match pods.len() {
        0 => String::new(),
        1 => hanging(&format!("1 pod {one}"), view.width, "  ", 4),
        count => hanging(&format!("{count} pods {several}"), view.width, "  ", 4),
    };
    let of_static = "only with a priority in its manifest can a static pod be evicted, and none with \
                     `evictStaticPods: spared`";
    let of_critical = "a priority of 2000000000 or more";
    line(is_static, &format!("is static: {of_static}"), &format!("are static: {of_static}"))
        + &line(critical, &format!("has {of_critical}"), &format!("have {of_critical}"))
}

/// An amount in the unit of the signal, for people: bytes as `23.5Gi`, unless they are round already, everything else
/// unchanged; `-` if unknown.
pub(super) fn amount(signal: &str, text: &Option<String>) -> String {
    let Some(text) = text.as_deref() else { return "-".to_owned() };
    let is_bytes = Cause::named(signal).and_then(Cause::unit) == Some(Unit::Bytes);
    let is_round = ["Mi", "Gi", "Ti"].iter().any(|unit| text.ends_with(unit));
    let bytes = text.parse::<Quantity>().ok().filter(|_| is_bytes && !is_round);
    bytes.map_or_else(|| clean(text).into_owned(), |bytes| byte_text(bytes.value()))
}

/// The latest decisions in their order; in a wide view, all. Those about a pod are not pushed out by others, which are
/// repeated while no pod can be ended.
fn shown_of(history: &[EvictionRecord], wide: bool) -> Vec<&EvictionRecord> {
    let (mut about_a_pod, mut others) = (0, 0);
    let mut shown: Vec<_> = history
        .iter()
        .rev()
        .filter(|record| {
            let count = if record.victim.is_some() { &mut about_a_pod } else { &mut others };
            *count += 1;
            wide || *count <= SHOWN_DECISIONS
        })
        .collect();
    shown.reverse();
    shown
}

fn one(record: &EvictionRecord) -> String {
    let mut text = format!("{} {}", record.at, clean(&record.signal));
    if record.available.is_some() && record.threshold.is_some() {
        let [available, least] =
            [&record.available, &record.threshold].map(|text| amount(&record.signal, text));
        text.push_str(&format!(": {available}, threshold {least}"));
    }
    if let Some(victim) = &record.victim {
        text.push_str(&format!(", {}", clean(victim)));
    }
    text.push_str(&format!(": {}", clean(&record.outcome.to_string())));
    if record.times > 1 {
        text.push_str(&format!(" ({} times)", record.times));
    }
    text
}

/// The run of the hook before the eviction, with its output.
fn hook(run: &EvictionHookRun, view: &View) -> String {
    let came_of_it = match &run.error {
        None => format!("hook: done in {} ms", run.took_ms),
        Some(error) => format!("hook, after {} ms: {}", run.took_ms, clean(error)),
    };
    let mut text = hanging(&came_of_it, view.width, "    ", 4);
    text.extend(run.output.lines().map(|line| hanging(&clean(line), view.width, "      ", 2)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_shown_where_the_node_has_some_and_of_pods_that_have_any() {
        let pod = |name: &str, swap| RankedPodStatus {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            usage: Some(96 << 20),
            has_no_priority: name == "web",
            swap,
            verdict: "notNeeded".to_owned(),
            ..RankedPodStatus::default()
        };
        let view = View { width: None, color: false, wide: false };
        let signal = Some("memory.available".to_owned());
        let mut plan = EvictionPlan { signal, ..EvictionPlan::default() };
        plan.pods = vec![pod("hog", Some(0)), pod("web", None)];
        let text = eviction(&plan, &view);
        assert!(!text.to_lowercase().contains("swap"), "{text}");
        let priority = |name| {
            let row = text.lines().find(|line| line.starts_with(name));
            row.and_then(|row| row.split_whitespace().nth(1))
        };
        assert_eq!((priority("default/hog"), priority("default/web")), (Some("0"), Some("-")));
        plan.pods = vec![pod("hog", Some(64 << 20)), pod("web", None)];
        plan.pressure.swap =
            Some(SwapStatus { total: 2 << 30, free: 1 << 30, ..SwapStatus::default() });
        let text = eviction(&plan, &view);
        assert!(
            text.contains("swap: 1Gi of 2Gi free (does not count as available memory)\n"),
            "{text}"
        );
        assert!(text.contains("USAGE  SWAP  REQUEST"), "{text}");
        assert!(text.contains("96Mi  64Mi        0"), "{text}");
        let all = SwapStatus {
            zswap: Some(5 << 20),
            zswapped: Some(20 << 20),
            ..plan.pressure.swap.unwrap_or_default()
        };
        plan.pressure.swap = Some(all);
        let text = eviction(&plan, &view);
        let line =
            "swap: 1Gi of 2Gi free (does not count as available memory); zswap has 20Mi in 5Mi\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn pods_that_are_not_measured_are_no_reason_to_say_that_no_pod_can_be_ended() {
        let view = View { width: None, color: false, wide: false };
        let pod = |verdict: &str| RankedPodStatus {
            verdict: verdict.to_owned(),
            ..RankedPodStatus::default()
        };
        let signal = Some("memory.available".to_owned());
        let mut plan = EvictionPlan { signal, ..EvictionPlan::default() };
        for (verdicts, wanted) in [
            (&[][..], "none: no pod qualifies for eviction"),
            (&["critical", "ending"], "none: no pod qualifies for eviction"),
            (&["notMeasured"], "none yet: the usage of 1 pod is unknown"),
            (
                &["critical", "notMeasured", "notMeasured"],
                "none yet: the usage of 2 pods is unknown",
            ),
        ] {
            plan.pods = verdicts.iter().map(|verdict| pod(verdict)).collect();
            let text = eviction(&plan, &view);
            assert!(text.contains(&format!("{wanted}\n")), "{verdicts:?}: {text}");
        }
    }

    #[test]
    fn while_pods_terminate_the_plan_names_no_pod_as_the_next_and_an_uncounted_usage_is_said_to_be()
    {
        let view = View { width: None, color: false, wide: true };
        let pod = |name: &str, verdict: &str, is_partial| RankedPodStatus {
            name: name.to_owned(),
            usage: Some(1 << 20),
            is_partial,
            verdict: verdict.to_owned(),
            ..RankedPodStatus::default()
        };
        let signal = Some("nodefs.available".to_owned());
        let pods = vec![
            pod("hog", "ending", true),
            pod("odd", "refused", false),
            pod("web", "notNeeded", false),
        ];
        let plan = EvictionPlan { signal, waits: true, pods, ..EvictionPlan::default() };
        let text = eviction(&plan, &view);
        let note = "no pod is evicted yet: enough is freed by those that are terminating\n";
        assert!(text.contains(note), "{text}");
        let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        assert!(row("hog").contains(" >1Mi ") && row("hog").ends_with("is terminating"), "{text}");
        assert!(row("odd").ends_with("kept: the runtime has just refused to stop it"), "{text}");
    }

    #[test]
    fn where_every_pod_is_spared_the_plan_says_why() {
        let view = View { width: None, color: false, wide: false };
        let pod = |priority| RankedPodStatus {
            priority,
            verdict: "critical".to_owned(),
            ..RankedPodStatus::default()
        };
        let signal = Some("memory.available".to_owned());
        let pods = vec![pod(0), pod(100), pod(2_000_000_000)];
        let text = eviction(&EvictionPlan { signal, pods, ..EvictionPlan::default() }, &view);
        let said = "none: no pod qualifies for eviction\n  \
                    2 pods are static: only with a priority in its manifest can a static pod be evicted, and none \
                    with `evictStaticPods: spared`\n  \
                    1 pod has a priority of 2000000000 or more\n";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn evictions_are_shown_however_much_else_was_decided_since() {
        let view = View { width: None, color: false, wide: false };
        let history = (0..20)
            .map(|id| {
                let (victim, outcome) = match id {
                    3 => (Some("shop/web"), "terminated in 9 ms"),
                    _ => (None, "no pod qualifies for eviction"),
                };
                let record = serde_json::json!({
                    "id": id, "at": "2026-11-20T03:44:00Z", "signal": "memory.available",
                    "victim": victim, "outcome": outcome, "times": 1,
                });
                serde_json::from_value(record).unwrap()
            })
            .collect();
        let plan = EvictionPlan { history, ..EvictionPlan::default() };
        let text = eviction(&plan, &view);
        assert!(text.contains("shop/web: terminated in 9 ms"), "{text}");
        assert_eq!(text.matches("no pod qualifies for eviction").count(), 5, "{text}");
    }
}
