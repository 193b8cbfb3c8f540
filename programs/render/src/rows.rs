//! The rows above the pods, which `winddown status` and `status --watch` share.

use std::borrow::Cow;

use anstyle::Style;
use winddown_shared::display::{age, clean, pod_count, seconds};

use super::group_state::GroupState;
use super::paint::{BAD, GOOD, PLAIN, WARN};
use super::plan::at_most;
use super::times::Times;
use super::{PODS_UNKNOWN, group_title};
use winddown_control::api::{
    ClosedBy, DrainStatus, LockState, Phase, ProtectionState, ScheduledStatus, ShutdownProgress,
    Status,
};

/// A labelled row.
pub(super) struct Row {
    pub(super) label: &'static str,
    /// The text, safe to print.
    pub(super) text: String,
    pub(super) style: Style,
}

/// All rows, in the order of `winddown status`.
pub(super) fn rows(status: &Status, times: Times<'_>) -> Vec<Row> {
    let mut rows = Rows(Vec::new());
    rows.add("node", &about(status, times), PLAIN);
    let (text, style) = lock(status, times);
    rows.add("lock", &text, style);
    if let Some(verdict) = &status.protection {
        let (word, style) = match verdict.state {
            ProtectionState::Protected => ("yes", GOOD),
            ProtectionState::Unprotected => ("NO", BAD),
            ProtectionState::Limited => ("IN PART", WARN),
            ProtectionState::Unknown => ("NOT KNOWN", WARN),
        };
        rows.add("protected", &format!("{word}: {}", verdict.text), style);
    }
    shutdown_rows(status, times, &mut rows);
    held_up(status, times, &mut rows);
    notices(status, times, &mut rows);
    if !status.admission_closed_by.is_empty() {
        let reasons: Vec<_> =
            status.admission_closed_by.iter().map(|by| closed_by(*by, status)).collect();
        let text = format!("closed, no new pod is admitted: {}", reasons.join(", "));
        rows.add("admission", &text, WARN);
    }
    if !status.shutdown.phase.is_under_way() {
        rows.add("plan", &plan(status), if status.shutdown_plan.enabled { PLAIN } else { BAD });
    }
    if let Some(cluster) = &status.cluster {
        let (text, style) = super::cluster::summary(cluster, times);
        rows.add("cluster", &text, style);
        if let Some(after) = &cluster.after_nodes {
            let (text, style) = super::cluster::after_nodes(after);
            rows.add("after", &text, style);
        }
    }
    if let Some(pressure) = status.pressure.as_ref().filter(|p| !p.thresholds.is_empty()) {
        let (text, style) = super::eviction::summary(pressure);
        rows.add("pressure", &text, style);
    }
    for plugin in &status.plugins {
        rows.add("plug-in", &format!("{}: {}", plugin.name, plugin.text), PLAIN);
    }
    if let Some(last) = &status.last_boot {
        rows.add("last boot", &last.text, if last.graceful == Some(false) { WARN } else { PLAIN });
    }
    match (status.config.file.as_str(), status.config.loaded_at) {
        // An agent by a third party, which reads no configuration.
        ("", None) => {}
        ("", Some(_)) => rows.add("config", "built-in defaults, no file", PLAIN),
        (file, _) => rows.add("config", file, PLAIN),
    }
    rows.0
}

struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, label: &'static str, text: &str, style: Style) {
        self.0.push(Row { label, text: clean(text).into_owned(), style });
    }
}

/// The shutdown or, if there is none, the drain in progress.
pub(super) fn run(status: &Status) -> &ShutdownProgress {
    match &status.drain {
        Some(drain) if !status.shutdown.phase.is_under_way() => &drain.progress,
        _ => &status.shutdown,
    }
}

/// The shutdown or the drain, and its groups.
fn shutdown_rows(status: &Status, times: Times<'_>, rows: &mut Rows) {
    let running = status.shutdown.phase == Phase::Running;
    let is_under_way = status.shutdown.phase.is_under_way();
    let is_calm = !is_under_way && status.shutdown.scheduled.is_none();
    let style = if is_calm { PLAIN } else { WARN };
    rows.add("shutdown", &shutdown(status, times), style);
    if is_under_way && status.shutdown.pods_unknown {
        rows.add("", PODS_UNKNOWN, if running { WARN } else { PLAIN });
    }
    let run = run(status);
    if let (false, Some(drain)) = (is_under_way, &status.drain) {
        let text = match drain.progress.phase {
            Phase::Running => under_way(&drain.progress, times),
            _ => being_drained(drain),
        };
        rows.add("drain", &text, WARN);
    }
    let shown =
        |group: &&winddown_control::api::GroupProgress| run.phase.is_under_way() && group.pods > 0;
    for group in run.groups.iter().filter(shown) {
        let how = GroupState::of(group).as_str();
        let title = group_title(group.name.as_deref(), group.priority);
        let text = format!("{title}: {how}, {} of {} terminated", group.terminated, group.pods);
        rows.add("", &text, PLAIN);
    }
}

/// What pods hold up, what they wait for, and which of them stay.
fn held_up(status: &Status, times: Times<'_>, rows: &mut Rows) {
    if let Some(guard) = &status.guard {
        let pods = guard.pods.iter().map(|pod| {
            let left = pod.until.map(|at| format!(", {} more at most", times.left(at)));
            format!("{}/{}{}", pod.namespace, pod.name, left.unwrap_or_default())
        });
        let pods = pods.collect::<Vec<_>>().join("; ");
        let refused = match (guard.state, &guard.why) {
            (LockState::Held, _) => "shutdowns are refused for".to_owned(),
            (_, None) => "shutdowns are NOT refused yet for".to_owned(),
            (_, Some(why)) => format!("shutdowns are NOT refused ({why}) for"),
        };
        rows.add("guard", &format!("{refused} {pods}"), WARN);
    }
    if let Some(start) = &status.start {
        let until = start.until.map(|at| format!(", {} more at most", times.left(at)));
        let (until, for_whom) = (until.unwrap_or_default(), start.not_ready.join(", "));
        let wait = if start.waiting == 1 { "waits" } else { "wait" };
        let waiting = pod_count(start.waiting);
        rows.add(
            "start",
            &format!("{waiting} {wait} for {}{until}: {for_whom}", start.group),
            WARN,
        );
    }
    let staying = status.pods.iter().filter(|pod| pod.stays_on_reboot);
    let staying: Vec<_> = staying.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    if !staying.is_empty() {
        let text = format!("these restart here when the node is back: {}", staying.join(", "));
        rows.add("reboot", &text, PLAIN);
    }
}

fn notices(status: &Status, times: Times<'_>, rows: &mut Rows) {
    for notice in &status.notices {
        let Some(deadline) = notice.deadline else { continue };
        let when = match deadline >= times.now {
            true => format!("the node goes away in {}", times.left(deadline)),
            false if times.clock => {
                format!("the node should have gone away at {}", times.clock(deadline))
            }
            false => format!("the node should have gone away {} ago", times.age(deadline)),
        };
        let far = if notice.in_effect { "" } else { "; not yet acted on" };
        let text = format!("{when}{far} ({}: {})", notice.source, notice.text);
        rows.add("notice", &text, if notice.in_effect { WARN } else { PLAIN });
    }
}

fn about(status: &Status, times: Times<'_>) -> String {
    let node = &status.node;
    let product = node.product.as_deref().unwrap_or("winddown");
    let mut about = format!("{}, {product} {}, pid {}", node.name, node.version, node.pid);
    if let Some(started) = node.started_at {
        about.push_str(&match times.clock {
            true => format!(", since {}", times.clock(started)),
            // Right even if the clock was set; other agents may not say it.
            false if node.uptime_seconds > 0 => {
                format!(", up {}", age(i64::try_from(node.uptime_seconds).unwrap_or(i64::MAX)))
            }
            false => format!(", up {}", times.age(started)),
        });
    }
    if !status.runtime.name.is_empty() {
        about.push_str(&format!(", runtime {}", status.runtime.name));
    }
    about
}

fn lock(status: &Status, times: Times<'_>) -> (String, Style) {
    let lock = &status.lock;
    let why = lock.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    match lock.state {
        LockState::Held => {
            let since = lock.held_since.map(|then| format!(" {}", times.since(then)));
            let held = format!("held{}", since.unwrap_or_default());
            let wanted = seconds(lock.required_seconds);
            match lock.delay_seconds {
                Some(delay) if delay < lock.required_seconds => (
                    format!("{held}; logind waits {} of the {wanted} required", seconds(delay)),
                    WARN,
                ),
                Some(delay) => {
                    (format!("{held}; logind waits {}, {wanted} required", seconds(delay)), GOOD)
                }
                None => (held, GOOD),
            }
        }
        LockState::Waiting => (format!("NOT HELD, retrying{why}"), BAD),
        LockState::Released => ("released, the node may go down".to_owned(), WARN),
        LockState::Absent => (format!("none{why}"), BAD),
        LockState::Unknown => ("unknown".to_owned(), WARN),
    }
}

fn shutdown(status: &Status, times: Times<'_>) -> String {
    match (status.shutdown.phase, &status.shutdown.scheduled) {
        (Phase::Running, _) => under_way(&status.shutdown, times),
        (Phase::Done, _) => "done, the node goes down".to_owned(),
        (Phase::Unknown, _) => "unknown".to_owned(),
        (Phase::Idle | Phase::Cancelled, Some(scheduled)) => self::scheduled(scheduled, times),
        (Phase::Cancelled, None) => "none under way, the last one was cancelled".to_owned(),
        (Phase::Idle, None) => "none under way".to_owned(),
    }
}

/// The time of a shutdown or a drain in progress.
fn under_way(run: &ShutdownProgress, times: Times<'_>) -> String {
    let since = run.since.filter(|_| !times.brief);
    let for_long = since.map(|then| format!(" for {}", times.age(then)));
    let left = run.deadline.map(|end| format!(", at most {} left", times.left(end)));
    format!("UNDER WAY{}{}", for_long.unwrap_or_default(), left.unwrap_or_default())
}

/// A shutdown that is scheduled: what, when, and the message of its author.
fn scheduled(scheduled: &ScheduledStatus, times: Times<'_>) -> String {
    let what = match scheduled.kind.as_str() {
        "powerOff" => "power-off",
        "softReboot" => "soft-reboot",
        other => other,
    };
    let ahead = match scheduled.at > times.now {
        true => format!(" (in {})", times.left(scheduled.at)),
        false => String::new(),
    };
    let message = scheduled.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
    format!("{what} scheduled for {:.0}{ahead}{message}", scheduled.at)
}

/// The reason why new pods are not admitted, human-readable.
fn closed_by(by: ClosedBy, status: &Status) -> Cow<'static, str> {
    if let (ClosedBy::Drain, Some(drain)) = (by, &status.drain) {
        let ends = if drain.is_over() { "admits pods again" } else { "cancels it" };
        return format!("{} (`winddown undrain` {ends})", being_drained(drain)).into();
    }
    Cow::Borrowed(why_closed(by))
}

/// The same, whatever else is known.
pub(super) const fn why_closed(by: ClosedBy) -> &'static str {
    match by {
        ClosedBy::Startup => "the agent is starting",
        ClosedBy::Shutdown => "the node is shutting down",
        ClosedBy::UnitStop => "the agent's unit is being stopped",
        ClosedBy::Notice => "a notice is in effect",
        ClosedBy::Drain => "an operator drained the node (`winddown undrain` admits pods again)",
        ClosedBy::Unknown => "a reason that this version does not know",
    }
}

pub(crate) fn being_drained(drain: &DrainStatus) -> String {
    let count = match drain.pods_unknown {
        true => format!("at least {}", pod_count(drain.pods_remaining)),
        false => pod_count(drain.pods_remaining),
    };
    match (drain.is_over(), drain.pods_unknown) {
        (true, true) => format!("the time of the drain is over; {PODS_UNKNOWN}"),
        (true, false) => format!("the time of the drain is over: {count} still terminating"),
        (false, _) => format!("the node is being drained: {count} remaining"),
    }
}

/// The configuration warning if graceful shutdown is off. It follows file, line and column.
const IS_OFF: &str = "shutdownGracePeriod: is 0";

/// A summary of what a shutdown would do now.
fn plan(status: &Status) -> String {
    let plan = &status.shutdown_plan;
    if !plan.enabled {
        let said = status.config.warnings.iter().find(|text| text.contains(IS_OFF));
        let place = said.and_then(|text| text.split_once(IS_OFF)).map(|(place, _)| place);
        let place = place.map(|place| format!(" ({}{IS_OFF})", clean(place)));
        return format!("OFF{}: a shutdown would not wait for the pods", place.unwrap_or_default());
    }
    let allowed = plan.available_seconds.min(plan.requested_seconds);
    let ends = plan.groups.iter().filter(|group| group.pods > 0);
    let most = at_most(ends.map(|group| group.deadline_seconds).reduce(f64::max), allowed);
    let groups: Vec<String> = plan
        .groups
        .iter()
        .filter(|group| group.pods > 0)
        .map(|group| {
            let (pods, time) = (group.pods, seconds(group.deadline_seconds));
            let title = group_title(group.name.as_deref(), group.priority);
            match group.name {
                Some(_) => format!("{title} ({pods}) within {time}"),
                None if pods == 1 => format!("1 pod of {title} within {time}"),
                None => format!("{pods} pods of {title} within {time}"),
            }
        })
        .collect();
    match groups.as_slice() {
        [] if status.pods_unknown => format!("{PODS_UNKNOWN}; {most}"),
        [] => format!("nothing to terminate; {most}"),
        groups => format!("{most}: {}", groups.join(", then ")),
    }
}
