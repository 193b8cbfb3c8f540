//! The timeline: one bar per pod from SIGTERM to its exit, grouped in the order in which the pods were stopped, over one
//! time axis that starts with the signal.
//!
//! Everything is placed by percentages of the axis, so that it follows the width of the screen. If the limits lie far
//! behind the last event, the axis ends soon after the event, and a row above it shows how little of the time was used.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::time::Duration;

use winddown_shared::display::in_seconds;
use winddown_shutdown::{GroupReport, PodEnd, PodReport, ShutdownReport};

use super::super::marks::{self, BarTimes};
use super::scale::{Reach, Scale};
use super::{Escaped, Markup, sentences};

/// The height of the label of a milestone, in rem.
const LABEL_HEIGHT: f64 = 1.25;

/// Writes the timeline of a report with pods.
pub(super) fn write(report: &ShutdownReport, out: &mut Markup) {
    let reach = Reach::of(report);
    let timeline = Timeline { report, scale: Scale(reach.end()) };
    legend(report, out);
    let described = format!("{} {}", report.headline(), described(report));
    let described = Escaped(&described);
    out.line(format_args!(r#"<div class="chart" role="img" aria-label="{described}">"#));
    if reach.is_magnified() {
        timeline.used(reach, out);
    }
    timeline.axis(out);
    timeline.rows(out);
    out.line(format_args!("</div>"));
}

/// The timeline in words, for screen readers.
fn described(report: &ShutdownReport) -> String {
    let mut said = vec![sentences::occasion(report)];
    for group in sentences::groups(report) {
        said.push(format!("{}: {}", sentences::group(group), sentences::group_facts(group)));
    }
    said.join(". ")
}

/// Writes the marks that are in the timeline, each with its meaning.
fn legend(report: &ShutdownReport, out: &mut Markup) {
    let any = |end: PodEnd| report.count(end) > 0;
    let any_pod = |has: fn(&PodReport) -> bool| report.pods().any(|(_, pod)| has(pod));
    let held = report.groups.iter().any(|group| sentences::held_by(group).is_some());
    let drained = report.endpoint_drain.is_some_and(|drain| !drain.is_zero());
    // Pods that were spared have no bar.
    let cut = any_pod(|pod| pod.wanted_grace.is_some() && pod.asked.is_some());
    let hooked = any_pod(|pod| sentences::before_sigterm(pod).is_some());
    out.line(format_args!(r#"<ul class="legend dim" aria-hidden="true">"#));
    for (class, meaning, _) in [
        ("asked", "asked to terminate", true),
        ("term", "SIGTERM", true),
        ("bar", "terminating", true),
        ("exit", "exit of the last container", true),
        ("grace", "its grace", true),
        ("own", "its own grace, cut", cut),
        ("hook", "before SIGTERM (preStop hook)", hooked),
        ("held", "the group waits for this pod alone", held),
        ("kill", "SIGKILL, its grace was over", any(PodEnd::Killed)),
        ("open", PodEnd::StillRunning.text().several, any(PodEnd::StillRunning)),
        ("soft", PodEnd::Terminating.text().several, any(PodEnd::Terminating)),
        ("duck", "not ready, before SIGTERM", drained),
        ("span", "the group's time", true),
        ("latest", "its deadline", true),
        ("reserve", "reserve for the report", true),
    ]
    .into_iter()
    .filter(|(.., shown)| *shown)
    {
        let meaning = Escaped(meaning);
        out.line(format_args!(r#"<li><i class="{class}"></i>{meaning}</li>"#));
    }
    out.line(format_args!("</ul>"));
}

struct Timeline<'a> {
    report: &'a ShutdownReport,
    scale: Scale,
}

impl Timeline<'_> {
    /// Writes how much of the whole time was used.
    fn used(&self, reach: Reach, out: &mut Markup) {
        let whole = Track::new(Scale(reach.limit));
        let budget = &self.report.budget;
        let limit = budget.pods.saturating_add(budget.reserve);
        let track =
            whole.span("reserve", budget.pods, limit).bar("bar", Duration::ZERO, reach.used);
        let said = format!("{} of {}, enlarged", in_seconds(reach.used), in_seconds(reach.limit));
        row(out, "used", "", ("time used", &track.0), ("dim", &said));
    }

    fn axis(&self, out: &mut Markup) {
        let mut track = String::new();
        for (at, label) in self.scale.ticks() {
            let left = self.scale.percent(at);
            // Writing to a String cannot fail.
            let _ = write!(track, r#"<span class="dim" style="left:{left}%">{label}</span>"#);
        }
        row(out, "axis", "", ("", &track), ("", ""));
    }

    fn rows(&self, out: &mut Markup) {
        let milestones = self.milestones();
        #[expect(clippy::cast_precision_loss, reason = "a handful of labels")]
        let height = |labels: usize| LABEL_HEIGHT * labels as f64;
        let all = height(milestones.len());
        out.line(format_args!(r#"<div class="rows" style="padding-top:{all}rem">"#));
        out.line(format_args!(r#"<div class="lines">"#));
        let budget = &self.report.budget;
        let shades = Track::new(self.scale)
            .span("duck", Duration::ZERO, self.report.endpoint_drain.unwrap_or_default())
            .span("reserve", budget.pods, budget.pods.saturating_add(budget.reserve));
        out.line(format_args!("{}", shades.0));
        for (at, _) in self.scale.ticks() {
            let left = self.scale.percent(at);
            out.line(format_args!(r#"<i class="tick" style="left:{left}%"></i>"#));
        }
        for (number, (at, class, label)) in milestones.into_iter().enumerate() {
            let (left, top) = (self.scale.percent(at), height(number));
            let side = if left > 50.0 { " flip" } else { "" };
            let label = Escaped(&label);
            out.line(format_args!(
                r#"<i class="{class}{side}" style="left:{left}%;top:{top}rem"><span>{label}</span></i>"#
            ));
        }
        out.line(format_args!("</div>"));
        sentences::groups(self.report).for_each(|group| self.group(group, out));
        out.line(format_args!("</div>"));
    }

    /// The limits of the whole run, its end, and restarts of the agent, by their time. Labels stand one below the other,
    /// to the right of their lines, so no line crosses the label of an earlier one.
    fn milestones(&self) -> Vec<(Duration, &'static str, String)> {
        let (report, budget) = (self.report, &self.report.budget);
        let drain = report.endpoint_drain.filter(|drain| !drain.is_zero());
        let notice = report.notice.as_ref().map(|notice| notice.deadline);
        let mut all: Vec<_> = [
            (drain, "limit", "endpoint drain is over"),
            (Some(budget.pods), "limit", "pods' time is over"),
            (budget.delay, "limit", budget.delayed_by.limit()),
            (notice, "limit", "notice: node goes down"),
            (Some(report.took), "over", report.end_of_run()),
        ]
        .into_iter()
        .chain(report.resumed.iter().map(|at| (Some(*at), "again", "agent restarted")))
        .filter_map(|(at, class, what)| Some((at?, class, what)))
        .filter(|(at, ..)| self.scale.shows(*at))
        .map(|(at, class, what)| (at, class, format!("{what} {}", in_seconds(at))))
        .collect();
        all.sort_by_key(|(at, ..)| *at);
        all
    }

    fn group(&self, group: &GroupReport, out: &mut Markup) {
        let (name, facts) = (sentences::group(group), sentences::group_facts(group));
        let (name, facts) = (Escaped(&name), Escaped(&facts));
        out.line(format_args!(
            r#"<p class="head"><b>{name}</b> <span class="dim">{facts}</span></p>"#
        ));
        let Some(started) = group.started else { return };
        out.line(format_args!(r#"<div class="pods">"#));
        let ended = group.ended.unwrap_or(self.report.took).max(started);
        let mut time = Track::new(self.scale).span("span", started, ended);
        let limit = group.latest_end;
        if self.scale.shows(limit) && limit != self.report.budget.pods {
            time = time.mark("latest", limit);
        }
        out.line(format_args!(r#"<div class="lines">{}</div>"#, time.0));
        let (mut shown, folded) = sentences::fold(group);
        // Sorted by time, so that the rows show the course of the group.
        shown.sort_by_key(|pod| (sentences::severity(pod), pod.exit, &pod.namespace, &pod.name));
        let held = sentences::held_by(group);
        for pod in shown {
            let alone =
                held.filter(|(holder, _)| std::ptr::eq(*holder, pod)).map(|(_, alone)| alone);
            let (name, said) = (pod.full_name(), marks::remark(pod));
            let track = self.bar(pod, alone);
            let of = (marks::class(pod), &*said);
            row(out, "pod", &marks::hover(pod, &name), (&name, &track), of);
        }
        if !folded.is_empty() {
            let (more, how) = sentences::folded(&folded);
            row(out, "rest", "", (&format!("… {more}"), &self.folded(&folded)), ("dim", &how));
        }
        out.line(format_args!("</div>"));
    }

    /// The bar of a pod. During the time `alone`, the group waited for this pod only.
    fn bar(&self, pod: &PodReport, alone: Option<Duration>) -> String {
        let Some(times) = BarTimes::of(pod, self.report.took) else { return String::new() };
        let BarTimes { asked, term, kill, end } = times;
        let grace_end = asked.saturating_add(pod.grace);
        let turn = kill.unwrap_or(end);
        let mut track = Track::new(self.scale).span("grace", asked, grace_end);
        if let Some(wanted) = pod.wanted_grace {
            track = track.span("own", grace_end, asked.saturating_add(wanted));
        }
        let solid = if pod.end == PodEnd::StillRunning { "open" } else { "bar" };
        track = track.span("hook", asked, term).bar(solid, term, turn).span("late", turn, end);
        if let Some(alone) = alone {
            track = track.span("held", end.saturating_sub(alone), end);
        }
        track = track.mark("asked", asked);
        if pod.sigterm.is_some() {
            track = track.mark("term", term);
        }
        track = match pod.end {
            PodEnd::StillRunning => track.mark("arrow", end),
            PodEnd::Terminating => track.mark("soft", end),
            PodEnd::Exited
            | PodEnd::NotRunning
            | PodEnd::Killed
            | PodEnd::Gone
            | PodEnd::Spared
            | PodEnd::Survives
            | PodEnd::NotDrainable => match pod.exit {
                Some(_) => track.mark("exit", end),
                None => track,
            },
        };
        if let Some(kill) = kill {
            track = track.mark("kill", kill);
        }
        track.0
    }

    /// How many of `pods` still ran at each time, as the area under a staircase.
    fn folded(&self, pods: &[&PodReport]) -> String {
        let Some(asked) = pods.iter().filter_map(|pod| pod.asked).min() else {
            return String::new();
        };
        let mut exits: Vec<f64> =
            pods.iter().filter_map(|pod| Some(self.scale.percent(pod.exit?))).collect();
        exits.sort_by(f64::total_cmp);
        let left = self.scale.percent(asked);
        let mut steps = format!("{left}% 100%,{left}% 0");
        for (done, at) in (1..).zip(&exits) {
            // A step that is no wider than a line is merged with the next.
            if exits.get(done).is_none_or(|next| *next >= at + 0.2) {
                let above = 100 * (done - 1) / exits.len();
                let below = 100 * done / exits.len();
                // Writing to a String cannot fail.
                let _ = write!(steps, ",{at}% {above}%,{at}% {below}%");
            }
        }
        format!(r#"<i class="folded" style="clip-path:polygon({steps})"></i>"#)
    }
}

/// Writes a row: a name, what is drawn over the time, and a remark.
fn row(
    out: &mut Markup,
    class: &str,
    hover: &str,
    (name, track): (&str, &str),
    (tone, said): (&str, &str),
) {
    let (hover, name, said) = (Escaped(hover), Escaped(name), Escaped(said));
    let title = if hover.0.is_empty() { String::new() } else { format!(r#" title="{hover}""#) };
    out.line(format_args!(
        r#"<div class="row {class}"{title}><bdi>{name}</bdi><div class="track">{track}</div><span class="{tone}">{said}</span></div>"#
    ));
}

/// What is drawn in one row.
struct Track(String, Scale);

impl Track {
    fn new(scale: Scale) -> Self {
        Self(String::new(), scale)
    }

    /// Adds what goes from one time to another, unless it is too short to be seen.
    fn span(self, class: &str, from: Duration, to: Duration) -> Self {
        if self.1.percent(from) < self.1.percent(to) { self.bar(class, from, to) } else { self }
    }

    /// The same; a bar of a pod that exited at once is still visible.
    fn bar(mut self, class: &str, from: Duration, to: Duration) -> Self {
        let (left, right) = (self.1.percent(from), self.1.percent(to));
        let width = ((right - left).max(0.0) * 100.0).round() / 100.0;
        // Writing to a String cannot fail.
        let _ = write!(self.0, r#"<i class="{class}" style="left:{left}%;width:{width}%"></i>"#);
        self
    }

    /// Adds a mark of one moment.
    fn mark(mut self, class: &str, at: Duration) -> Self {
        let left = self.1.percent(at);
        // Writing to a String cannot fail.
        let _ = write!(self.0, r#"<i class="{class}" style="left:{left}%"></i>"#);
        self
    }
}
