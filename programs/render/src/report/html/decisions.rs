//! The decisions with their times, as far as they are in the report.

use std::time::Duration;

use winddown_shared::display::{in_seconds, pod_count};
use winddown_shutdown::{GroupReport, PodEnd, PodReport, ShutdownReport};

use super::super::marks::BarTimes;
use super::{Escaped, Markup, sentences};

struct Decision {
    at: Duration,
    text: String,
    class: &'static str,
}

pub(super) fn write(report: &ShutdownReport, out: &mut Markup) {
    super::open(out, "decisions", "Decisions");
    out.line(format_args!(
        "<p class=\"dim\">What was decided, and when: since the signal, and in UTC.</p>\n<ol \
         class=\"decisions\">"
    ));
    for Decision { at, text, class } in of(report) {
        let after = format!("{:.3}", at.as_secs_f64());
        let clock = report.started_at.checked_add(at).ok();
        let clock = clock.map(|clock| clock.strftime("%H:%M:%S.%3f").to_string());
        out.line(format_args!(
            "<li><time datetime=\"PT{after}S\">{after} s</time> <span class=\"clock dim\">{}</span> \
             <span class=\"{class}\">{}</span></li>",
            clock.unwrap_or_default(),
            Escaped(&text)
        ));
    }
    out.line(format_args!("</ol>\n</section>"));
}

fn of(report: &ShutdownReport) -> Vec<Decision> {
    let mut all = Vec::new();
    let mut add = |at, class, text: String| all.push(Decision { at, text, class });
    add(Duration::ZERO, "", beginning(report));
    let said = [sentences::requested_by, sentences::notice, sentences::drain];
    for said in said.iter().filter_map(|of| of(report)) {
        add(Duration::ZERO, "", said);
    }
    if report.budget.is_short() {
        add(Duration::ZERO, "warn", sentences::shortage(report));
    }
    for at in &report.resumed {
        add(*at, "warn", "The agent was restarted in the middle and continued".to_owned());
    }
    for group in sentences::groups(report) {
        of_group(report, group, &mut add);
    }
    add(report.took, "", capital(report.end_of_run()));
    // The sort is stable: decisions made at the same time stay in the order of the groups.
    all.sort_by_key(|decision| decision.at);
    all
}

fn beginning(report: &ShutdownReport) -> String {
    let (who, budget) = (report.trigger.text().sentence, &report.budget);
    format!(
        "{who}: {} for the pods, {} in reserve",
        in_seconds(budget.pods),
        in_seconds(budget.reserve)
    )
}

fn of_group(
    report: &ShutdownReport,
    group: &GroupReport,
    add: &mut impl FnMut(Duration, &'static str, String),
) {
    let name = sentences::group(group);
    let Some(started) = group.started else {
        let spared = PodEnd::Spared.text().several;
        add(report.took, "", format!("{name}: {spared}, {}", pod_count(group.pods.len())));
        return;
    };
    // What earlier groups, or the notice, have left beyond the group's own time is its time too.
    let allowed = in_seconds(group.latest_end.saturating_sub(started));
    let count = pod_count(group.pods.len());
    let mut asked = format!("{name}: {count} asked to terminate within {allowed}");
    let short = group.pods.iter().filter(|pod| pod.wanted_grace.is_some()).count();
    if short > 0 {
        let whose = if short == 1 { "its" } else { "their" };
        asked.push_str(&format!("; less than {whose} own grace for {}", pod_count(short)));
    }
    add(started, "", asked);
    for pod in &group.pods {
        if let Some((at, text)) = killed(pod) {
            add(at, "warn", text);
        }
    }
    let Some(ended) = group.ended else { return };
    let left: Vec<&PodReport> =
        group.pods.iter().filter(|pod| pod.end == PodEnd::StillRunning).collect();
    let over = group.pods.iter().filter(|pod| pod.end.is_over()).count();
    if left.is_empty() {
        let spare = group.latest_end.saturating_sub(ended);
        let spare = match spare.is_zero() {
            true => String::new(),
            false => format!(", {} to spare", in_seconds(spare)),
        };
        let took = in_seconds(ended.saturating_sub(started));
        let over = pod_count(over);
        add(ended, "", format!("{name}: {over} terminated in {took}{spare}"));
        return;
    }
    let names: Vec<String> = left.iter().map(|pod| pod.full_name()).collect();
    let names = names.join(", ");
    let unseen = PodEnd::StillRunning.text().several;
    add(ended, "bad", format!("{name}: time is over, {over} terminated, {unseen}: {names}"));
}

/// When a pod was killed. The report does not contain the time of SIGKILL, but it is sent when the grace is over.
fn killed(pod: &PodReport) -> Option<(Duration, String)> {
    let times = BarTimes::of(pod, Duration::ZERO)?;
    let name = pod.full_name();
    let grace = in_seconds(pod.grace);
    let said = sentences::remark(pod);
    Some((times.kill?, format!("{name}: its grace of {grace} is over, {said}")))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + chars.as_str()
}
