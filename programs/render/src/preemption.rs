//! The output of `winddown plan preemption`.

use std::collections::HashMap;

use winddown_shared::display::{self, clean};
use winddown_shared::{Quantity, QuantityFormat};

use super::paint::{BAD, GOOD, HEAD, Paint, WARN};
use super::{Column, Table, View, hanging, priority_unless_unset, wrap};
use winddown_control::api::{NodeResource, PreemptionCase, PreemptionPlan, RoomVerdict};

/// The free resources, the pods that wait for room, and what would be done for the pod in the request.
pub fn preemption(plan: &PreemptionPlan, view: &View) -> String {
    let paint = Paint { color: view.color };
    let mut text = match plan.resources.as_slice() {
        [] => "this node's resources are unknown\n".to_owned(),
        resources => resource_table(resources, view),
    };
    if !plan.waiting.is_empty() {
        text.push_str(&format!("\n{}\n", paint.with(HEAD, "WAITING FOR ROOM")));
        for pod in &plan.waiting {
            let line = format!("{}/{}: {}", pod.namespace, pod.name, pod.message);
            text.push_str(&hanging(&clean(&line), view.width, "", 2));
        }
    }
    if let Some(case) = &plan.pod {
        text.push('\n');
        text.push_str(&one(case, &plan.strategy, view));
    }
    text
}

fn resource_table(resources: &[NodeResource], view: &View) -> String {
    let mut table = Table::new([
        Column::words("RESOURCE"),
        Column::numbers("CAPACITY"),
        Column::numbers("ALLOCATABLE"),
        Column::numbers("USED"),
        Column::numbers("FREE"),
    ]);
    for resource in resources {
        let free = resource.allocatable.saturating_sub(resource.used);
        let amount = |amount| amount_text(&resource.name, amount);
        table.row([
            (resource.name.clone(), None),
            (amount(resource.capacity), None),
            (amount(resource.allocatable), None),
            (amount(resource.used), None),
            (amount(free), (free <= 0 && resource.allocatable > 0).then_some(WARN)),
        ]);
    }
    table.render(view)
}

fn one(case: &PreemptionCase, strategy: &str, view: &View) -> String {
    let paint = Paint { color: view.color };
    let mut text = String::new();
    let pod = clean(&case.pod);
    let (line, style) = match case.verdict {
        RoomVerdict::Starts => (format!("{pod} would start"), GOOD),
        RoomVerdict::Waits => (format!("{pod} would start later, {}", clean(&case.message)), WARN),
        RoomVerdict::Preempts => {
            let pods = display::pod_count(case.victims.len());
            (format!("{pod} would start after the preemption of {pods} ({strategy})"), WARN)
        }
        RoomVerdict::Rejected => {
            let (reason, message) = (clean(&case.reason), clean(&case.message));
            (format!("{pod} would be rejected, {reason}: {message}"), BAD)
        }
        RoomVerdict::Unknown => (format!("{pod}: not known"), WARN),
    };
    for (number, part) in wrap(&line, view.width, 2).iter().enumerate() {
        text.push_str(if number == 0 { "" } else { "  " });
        text.push_str(&paint.with(style, part));
        text.push('\n');
    }
    for lack in &case.insufficient {
        let amount = amount_text(&lack.name, lack.amount);
        text.push_str(&format!("  lacks {} {amount}\n", clean(&lack.name)));
    }
    let table = considered(case, view);
    if !table.is_empty() {
        text.push('\n');
        text.push_str(&table);
    }
    text
}

/// The victims in their order, and, in a wide view, all other pods.
fn considered(case: &PreemptionCase, view: &View) -> String {
    let mut table = Table::new([
        Column::words("POD"),
        Column::fixed("QOS"),
        Column::numbers("PRIORITY"),
        Column::numbers("DISTANCE"),
        Column::words("VERDICT"),
    ]);
    let places: HashMap<&str, usize> =
        case.victims.iter().enumerate().map(|(place, victim)| (victim.as_str(), place)).collect();
    let place = |pod: &str| places.get(pod).copied();
    let shown = case.considered.iter().filter(|one| view.wide || place(&one.pod).is_some());
    let mut rows: Vec<_> = shown.collect();
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by_key(|one| (place(&one.pod).unwrap_or(usize::MAX), &one.pod));
    for one in rows {
        table.row([
            (one.pod.clone(), None),
            (one.qos.clone(), None),
            (priority_unless_unset(one.priority, one.has_no_priority), None),
            (format!("{:.2}", one.distance), None),
            (one.text.clone(), place(&one.pod).map(|_| WARN)),
        ]);
    }
    table.render(view)
}

/// An amount for people: `1500m`, `23.5Gi`. Bytes are rounded; the JSON is exact.
fn amount_text(resource: &str, amount: i64) -> String {
    let bytes =
        matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    match resource {
        "cpu" => Quantity::from_milli(amount, QuantityFormat::DecimalSi).to_string(),
        _ if bytes => byte_text(amount),
        _ => amount.to_string(),
    }
}

pub(super) fn byte_text(bytes: i64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let size = bytes.unsigned_abs();
    let sign = if bytes < 0 { "-" } else { "" };
    let Some((unit, suffix)) = UNITS.into_iter().find(|(unit, _)| size >= *unit) else {
        return bytes.to_string();
    };
    // Tenths, rounded down, so that the amount shown as free is really free.
    let tenths = u128::from(size) * 10 / u128::from(unit);
    match tenths % 10 {
        0 => format!("{sign}{}{suffix}", tenths / 10),
        rest => format!("{sign}{}.{rest}{suffix}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use winddown_control::api::{ConsideredPod, InsufficientResource, WaitingPod};

    const VIEW: View = View { width: Some(100), color: false, wide: false };

    fn resource(name: &str, capacity: i64, allocatable: i64, used: i64) -> NodeResource {
        NodeResource { name: name.to_owned(), capacity, allocatable, used }
    }

    fn considered(pod: &str, distance: f64, text: &str) -> ConsideredPod {
        ConsideredPod {
            pod: pod.to_owned(),
            qos: "Burstable".to_owned(),
            distance,
            text: text.to_owned(),
            ..ConsideredPod::default()
        }
    }

    fn plan() -> PreemptionPlan {
        let mut plan = PreemptionPlan { strategy: "distance".to_owned(), ..Default::default() };
        plan.resources = vec![
            resource("pods", 110, 110, 3),
            resource("cpu", 2000, 1800, 2100),
            resource("memory", 24_684_092 * 1024, 24_581_692 * 1024, 512 << 20),
            resource("hugepages-2Mi", 0, 0, 0),
        ];
        plan
    }

    #[test]
    fn what_there_is_is_shown_in_units_people_use() {
        let expected = "\
RESOURCE       CAPACITY  ALLOCATABLE   USED    FREE
pods                110          110      3     107
cpu                   2        1800m  2100m   -300m
memory           23.5Gi       23.4Gi  512Mi  22.9Gi
hugepages-2Mi         0            0      0       0
";
        assert_eq!(preemption(&plan(), &VIEW), expected);
        let unknown = preemption(
            &PreemptionPlan { strategy: "minimal".to_owned(), ..Default::default() },
            &VIEW,
        );
        assert_eq!(unknown, "this node's resources are unknown\n");
    }

    #[test]
    fn the_pod_that_was_asked_about_comes_with_its_victims_first() {
        let mut plan = PreemptionPlan { strategy: "distance".to_owned(), ..Default::default() };
        plan.waiting = vec![WaitingPod {
            namespace: "a".to_owned(),
            name: "b\x1b".to_owned(),
            message: "waiting for c/d".to_owned(),
            ..WaitingPod::default()
        }];
        plan.pod = Some(PreemptionCase {
            pod: "default/dns".to_owned(),
            verdict: RoomVerdict::Preempts,
            insufficient: vec![InsufficientResource { name: "cpu".to_owned(), amount: 1500 }],
            victims: vec!["default/web".to_owned()],
            considered: vec![
                ConsideredPod {
                    has_no_priority: true,
                    ..considered("default/a", 1.0, "kept: frees nothing of what is lacking")
                },
                considered("default/web", 0.0, "victim 1"),
            ],
            ..PreemptionCase::default()
        });
        let expected = "\
this node's resources are unknown

WAITING FOR ROOM
a/b\\x1b: waiting for c/d

default/dns would start after the preemption of 1 pod (distance)
  lacks cpu 1500m

POD          QOS        PRIORITY  DISTANCE  VERDICT
default/web  Burstable         0      0.00  victim 1
default/a    Burstable         -      1.00  kept: frees nothing of what is lacking
";
        assert_eq!(preemption(&plan, &View { wide: true, ..VIEW }), expected);
        let short = preemption(&plan, &VIEW);
        assert!(short.contains("default/web ") && !short.contains("default/a "), "{short}");
    }

    #[test]
    fn a_pod_that_would_wait_for_terminating_ones_is_told_with_their_names() {
        let mut plan = PreemptionPlan { strategy: "distance".to_owned(), ..Default::default() };
        plan.pod = Some(PreemptionCase {
            pod: "default/dns".to_owned(),
            verdict: RoomVerdict::Waits,
            message: "waiting for terminating pods: default/web".to_owned(),
            ..PreemptionCase::default()
        });
        let text = preemption(&plan, &VIEW);
        let line = "default/dns would start later, waiting for terminating pods: default/web\n";
        assert!(text.ends_with(line), "{text}");
    }

    #[test]
    fn a_refusal_is_told_with_its_reason() {
        let mut plan = PreemptionPlan { strategy: "distance".to_owned(), ..Default::default() };
        plan.pod = Some(PreemptionCase {
            pod: "default/dns".to_owned(),
            verdict: RoomVerdict::Rejected,
            reason: "NodeShutdown".to_owned(),
            message: "no".to_owned(),
            ..PreemptionCase::default()
        });
        let text = preemption(&plan, &VIEW);
        assert!(text.ends_with("\ndefault/dns would be rejected, NodeShutdown: no\n"), "{text}");
    }

    #[test]
    fn bytes_are_rounded_down_so_that_what_is_shown_is_there() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1Ki"),
            ((2 << 20) - 1, "1.9Mi"),
            (i64::MAX, "8388607.9Ti"),
            (i64::MIN, "-8388608Ti"),
        ] {
            assert_eq!(byte_text(bytes), text);
        }
    }
}
