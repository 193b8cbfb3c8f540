//! Sentences that the formats of the report share.

use std::cmp::Reverse;
use std::time::Duration;

use winddown_shared::display::{clean, in_seconds, pod_count};
use winddown_shutdown::{
    BudgetReport, DelayedBy, EndDetail, GroupReport, NoticeReport, PodEnd, PodEndText, PodReport,
    ShutdownReport, Tone, Trigger, WorkOutcome, WorkReport,
};

use crate::group_title;

/// The warnings. The first names the pods whose final status the API server does not have yet.
pub(super) fn warnings(report: &ShutdownReport) -> Vec<String> {
    let warnings = report.warnings.iter().map(|warning| clean(warning).into_owned());
    undelivered(report).into_iter().chain(warnings).collect()
}

fn undelivered(report: &ShutdownReport) -> Option<String> {
    const MAX_NAMED_PODS: usize = 5;
    let all = &report.unsent_statuses;
    if all.is_empty() {
        return None;
    }
    let named: Vec<_> = all.iter().take(MAX_NAMED_PODS).map(|pod| clean(pod)).collect();
    let more = match all.len().saturating_sub(MAX_NAMED_PODS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "Not sent to the API server: the last status of {}: {}{more}. The next agent sends it.",
        pod_count(all.len()),
        named.join(", ")
    ))
}

/// What a plug-in did, and whether it was done.
pub(super) fn work(work: &WorkReport) -> (String, bool) {
    let took = |from: Option<Duration>| {
        let took = work.ended.zip(from).map(|(ended, started)| ended.saturating_sub(started));
        in_seconds(took.unwrap_or_default())
    };
    let (how, is_done) = match work.outcome {
        WorkOutcome::Done => (format!("done in {}", took(work.started)), true),
        WorkOutcome::Failed => (format!("failed after {}", took(work.started)), false),
        WorkOutcome::TimedOut => (format!("not done in {}", in_seconds(work.allowed)), false),
        WorkOutcome::Cancelled => ("cancelled".to_owned(), false),
        WorkOutcome::Running => ("under way".to_owned(), false),
        WorkOutcome::Skipped => ("not begun".to_owned(), false),
    };
    let (plugin, what, point) = (clean(&work.plugin), clean(&work.what), clean(&work.point));
    let why = work.error.as_deref().map(|why| format!(": {}", clean(why))).unwrap_or_default();
    let remark = work.remark.as_deref().map(|said| format!(": {}", clean(said)));
    let remark = remark.unwrap_or_default();
    (format!("{plugin}, {point}: {what}: {how}{why}{remark}"), is_done)
}

pub(super) fn occasion(report: &ShutdownReport) -> String {
    let action = match report.node_action.as_deref() {
        Some("powerOff") => " · power-off",
        Some("halt") => " · halt",
        Some("reboot") => " · reboot",
        Some("kexec") => " · kexec",
        Some("softReboot") => " · soft reboot",
        _ => "",
    };
    let at = report.started_at.strftime("%Y-%m-%d %H:%M:%S UTC");
    let node = report.node.as_deref().map(|node| format!(" · node {}", clean(node)));
    format!("{at}{action}{} · boot {}", node.unwrap_or_default(), clean(&report.boot_id))
}

/// The special circumstances of the run, one sentence each.
pub(super) fn origin(report: &ShutdownReport) -> Vec<String> {
    let mut said = Vec::new();
    if report.trigger == Trigger::UnitStop {
        said.push(
            "The login manager did not announce it: the service was stopped and terminated the pods."
                .to_owned(),
        );
    }
    said.extend(requested_by(report));
    said.extend(notice(report));
    said.extend(drain(report));
    if !report.resumed.is_empty() {
        let times: Vec<String> = report.resumed.iter().map(|at| in_seconds(*at)).collect();
        said.push(format!(
            "The agent was restarted in the middle and continued after {}.",
            times.join(", then after ")
        ));
    }
    if report.pods_unknown {
        said.push(
            "The container runtime did not list its pods: there may have been pods that are not \
             listed here."
                .to_owned(),
        );
    }
    said
}

/// The requester of the shutdown, as far as it is known.
pub(super) fn requested_by(report: &ShutdownReport) -> Option<String> {
    let request = report.requested_by.as_ref()?;
    let by = request.uid.map(|uid| format!(" by uid {uid}"));
    let pid = request.pid.map(|pid| format!(", pid {pid}"));
    let who = format!("{}{}", by.unwrap_or_default(), pid.unwrap_or_default());
    let message = request.message.as_deref().map(|message| format!(": {}", clean(message)));
    let message = message.unwrap_or_default();
    Some(match request.scheduled_for {
        Some(at) => {
            format!("Scheduled for {}{who}{message}.", at.strftime("%Y-%m-%d %H:%M:%S UTC"))
        }
        None if who.is_empty() => format!("Requested with the message{message}."),
        None => format!("Requested{who}{message}."),
    })
}

/// The notice that triggered the run: its source, text and deadline.
pub(super) fn notice(report: &ShutdownReport) -> Option<String> {
    let notice = report.notice.as_ref()?;
    let (source, text) = (clean(&notice.source), clean(&notice.text));
    let deadline = in_seconds(notice.deadline);
    Some(format!("Notice from {source}: {text}. The node goes down {deadline} after the start."))
}

/// How long the endpoint drain took.
pub(super) fn drain(report: &ShutdownReport) -> Option<String> {
    let drain = report.endpoint_drain.filter(|drain| !drain.is_zero())?;
    report.groups.iter().flat_map(|group| &group.pods).find(|pod| pod.asked.is_some())?;
    let drain = in_seconds(drain);
    Some(format!("Pods were not ready for {drain} before the first SIGTERM."))
}

/// What left the pods less time than they ask for.
pub(super) fn shortage(report: &ShutdownReport) -> String {
    let budget = &report.budget;
    let (requested, given) = (in_seconds(budget.requested), in_seconds(budget.pods));
    let left = match (&report.notice, budget.delay) {
        (Some(notice), _) if is_the_limit(notice, budget) => {
            format!("the notice leaves only {}", in_seconds(notice.deadline))
        }
        (_, Some(delay)) => {
            let by = budget.delay_set_by.as_deref().map(clean);
            let by = by.map_or(String::new(), |file| format!(" (set by {file})"));
            let (who, delay) = (budget.delayed_by.text(), in_seconds(delay));
            // Anyone else may have begun to wait long after the start: logind after a notice.
            let waits_from_start = matches!(
                (budget.delayed_by, report.trigger),
                (DelayedBy::LoginManager, Trigger::LoginManager | Trigger::Drill)
                    | (DelayedBy::ServiceManager, Trigger::UnitStop)
            );
            match waits_from_start {
                true => format!("{who} waits only {delay}{by}"),
                false => format!("{who} waits only until {delay} after the start{by}"),
            }
        }
        (_, None) => return format!("The groups ask for {requested}, the pods got {given}."),
    };
    let reserve = match budget.reserve {
        Duration::ZERO => String::new(),
        reserve => format!(", and {} are in reserve", in_seconds(reserve)),
    };
    format!("The groups ask for {requested}, but {left}{reserve}: the pods got {given}.")
}

/// Whether the pods' time and the reserve end when the node goes down by `notice`, to the millisecond.
fn is_the_limit(notice: &NoticeReport, budget: &BudgetReport) -> bool {
    notice.deadline.saturating_sub(budget.pods + budget.reserve) < Duration::from_millis(1)
}

/// A group's name, or its priority.
pub(super) fn group(group: &GroupReport) -> String {
    group_title(group.name.as_deref().filter(|name| !name.is_empty()), group.priority)
}

/// The groups that have pods, in the order in which they were stopped.
pub(super) fn groups(report: &ShutdownReport) -> impl Iterator<Item = &GroupReport> {
    report.groups.iter().filter(|group| !group.pods.is_empty())
}

/// Seconds since the signal.
pub(super) fn offset(at: Option<Duration>) -> String {
    at.map_or("-".into(), |at| format!("{:.3}", at.as_secs_f64()))
}

/// Shorter durations are not mentioned.
const SHORTEST_MENTIONED: Duration = Duration::from_millis(100);

/// The longest pod name in a group's heading, in columns; headings are not wrapped in pictures.
const LONGEST_NAME: usize = 63;

/// The pod that delayed its group, and for how long after all others had stopped; none if no pod stands out.
pub(super) fn held_by(group: &GroupReport) -> Option<(&PodReport, Duration)> {
    let (started, ended) = group.started.zip(group.ended)?;
    let asked = group.pods.iter().filter(|pod| pod.asked.is_some());
    // A pod that was not seen to stop delayed the group until its time was over.
    let mut ends: Vec<_> = asked.map(|pod| (pod.exit.unwrap_or(ended).min(ended), pod)).collect();
    ends.sort_by_key(|(at, _)| *at);
    let (last, pod) = ends.pop()?;
    let (before, _) = ends.pop()?;
    let alone = last.saturating_sub(before.max(started));
    (alone >= SHORTEST_MENTIONED).then_some((pod, alone))
}

/// The grace period that a pod got, with its own if that is longer.
pub(super) fn grace(pod: &PodReport) -> String {
    let got = length(pod.grace);
    pod.wanted_grace.map_or(got.clone(), |wanted| format!("{got} of {}", in_seconds(wanted)))
}

/// The length of a grace period: "none" if SIGKILL comes at once.
pub(super) fn length(grace: Duration) -> String {
    if grace.is_zero() { "none".to_owned() } else { in_seconds(grace) }
}

/// The time between the request and the first SIGTERM, which the pod's preStop hooks take.
pub(super) fn before_sigterm(pod: &PodReport) -> Option<String> {
    let span = pod.sigterm?.saturating_sub(pod.asked?);
    (span >= SHORTEST_MENTIONED).then(|| format!("SIGTERM after {}", in_seconds(span)))
}

/// Groups with more pods than this are folded.
const FOLD_FROM_PODS: usize = 24;

/// The number of pods that are shown of such a group.
const SHOWN_PODS: usize = 12;

/// Splits the pods of a group, sorted by severity, into those that are shown and those that a list folds away: in a
/// large group all but the slowest, and never one that had a problem.
pub(super) fn fold(group: &GroupReport) -> (Vec<&PodReport>, Vec<&PodReport>) {
    let mut pods: Vec<&PodReport> = group.pods.iter().collect();
    pods.sort_by_key(|pod| severity(pod));
    if pods.len() <= FOLD_FROM_PODS {
        return (pods, Vec::new());
    }
    let wrong = pods.partition_point(|pod| severity(pod) < PodEnd::FINE);
    if let Some(well) = pods.get_mut(wrong..) {
        well.sort_by_key(|pod| Reverse(pod.exit));
    }
    let folded = pods.split_off(wrong.max(SHOWN_PODS).min(pods.len()));
    (pods, folded)
}

/// The number of pods that are folded away, and how they stopped.
pub(super) fn folded(pods: &[&PodReport]) -> (String, String) {
    let spared = pods.iter().filter(|pod| pod.end == PodEnd::Spared).count();
    let [spared_text, exited] = [PodEnd::Spared, PodEnd::Exited].map(|end| end.text().several);
    let among = match spared {
        0 => String::new(),
        _ => format!(", {spared} of them {spared_text}"),
    };
    let how = pods
        .iter()
        .filter_map(|pod| pod.exit)
        .max()
        .map_or_else(|| spared_text.to_owned(), |last| format!("{exited} by {}", in_seconds(last)));
    (format!("{} more{among}", pods.len()), how)
}

/// The severity of a pod's outcome; the worst is 0.
pub(super) fn severity(pod: &PodReport) -> u8 {
    let severity = pod.end.text().severity;
    if pod.mounts.is_empty() { severity } else { severity.min(2) }
}

/// The tone of the remark about a pod; none if nothing is to be noticed.
pub(super) fn tone(pod: &PodReport) -> Option<Tone> {
    match pod.end.text().tone {
        Some(Tone::Good) | None => (!pod.mounts.is_empty()).then_some(Tone::Warn),
        tone => tone,
    }
}

/// The facts about a group, shown next to its name.
pub(super) fn group_facts(group: &GroupReport) -> String {
    let mut said = pod_count(group.pods.len());
    match (group.started, group.ended) {
        (Some(started), Some(ended)) => {
            let took = ended.saturating_sub(started);
            let had = group.latest_end.saturating_sub(started);
            said.push_str(&format!(" · took {} of {}", in_seconds(took), in_seconds(had)));
            if let Some((pod, alone)) = held_by(group) {
                let (name, alone) = (pod.full_name(), in_seconds(alone));
                let pod = crate::fit(&name, LONGEST_NAME);
                said.push_str(&format!(" · held by {pod} for the last {alone}"));
            }
        }
        (Some(_), None) => said.push_str(" · not finished"),
        (None, _) if group.pods.iter().all(|pod| pod.end == PodEnd::Survives) => {
            said.push_str(&format!(" · {}", PodEnd::Survives.text().several));
        }
        (None, _) if group.is_spared() => {
            said.push_str(&format!(" · {}", PodEnd::Spared.text().several));
        }
        (None, _) => said.push_str(" · not asked to terminate"),
    }
    said
}

/// The remark about a pod; empty if it exited by itself and left nothing behind.
pub(super) fn remark(pod: &PodReport) -> String {
    let containers = pod.containers.iter().map(|name| clean(name)).collect::<Vec<_>>();
    let containers = match containers.is_empty() {
        true => String::new(),
        false => format!(": {}", containers.join(", ")),
    };
    let PodEndText { word, detail, .. } = pod.end.text();
    let end = match (detail, pod.error.as_deref().map(clean)) {
        (EndDetail::Duration, _) => String::new(),
        (EndDetail::Reason, Some(why)) => why.into_owned(),
        (EndDetail::ContainersOrError, error) if containers.is_empty() => {
            format!("{word}? {}", error.unwrap_or("unknown".into()))
        }
        (EndDetail::Containers | EndDetail::ContainersOrError, _) => format!("{word}{containers}"),
        (EndDetail::Nothing, _) | (EndDetail::Reason, None) => word.into(),
    };
    let earlier =
        pod.prior_reason.as_deref().map(|by| format!("was already terminating ({})", clean(by)));
    let remark = pod.remark.as_deref().map(|remark| clean(remark).into_owned());
    let mounts = (!pod.mounts.is_empty()).then(|| mounts(pod));
    let end = (!end.is_empty()).then_some(end);
    let stays = pod.stays_on_reboot.then(|| "starts again here".to_owned());
    let said = [earlier, end, stays, remark, mounts, before_sigterm(pod)].into_iter().flatten();
    said.collect::<Vec<_>>().join("; ")
}

/// The number of resources (mounts, devices, …) that a pod left behind.
pub(super) fn mounts(pod: &PodReport) -> String {
    match pod.mounts.len() {
        1 => "1 resource not released".to_owned(),
        held => format!("{held} resources not released"),
    }
}
