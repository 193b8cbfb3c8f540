//! A row per pod: its name, its bar, and how it ended. Rows fold where the screen is narrow.

use std::time::Duration;

use winddown_shared::display::in_seconds;
use winddown_shutdown::{GroupReport, PodEnd, PodReport, ShutdownReport};

use super::legend::PATTERNS;
use super::marks::{self, Times};
use super::milestones::{self, Milestone};
use super::scale::{Reach, Scale};
use super::{Canvas, Escaped, legend, sentences};

/// Height of a bar.
const BAR: f64 = 12.0;

/// Letters of milestones stand on this many lines, so that neighbours do not run together.
const LANES: usize = 3;
const LANE: f64 = 13.0;

/// Writes the section.
pub(super) fn draw(report: &ShutdownReport, out: &mut Canvas) {
    let reach = Reach::of(report);
    // Percent: the browser knows how wide a bar can be.
    let scale = Scale::new(0.0, 100.0, reach.end());
    let milestones = milestones::of(report, &scale);
    let mut timeline = Timeline { report, scale, milestones, out, rows: 0 };
    super::open(timeline.out, "timeline", "Timeline");
    timeline.keys(reach);
    for group in super::groups(report) {
        timeline.group(group);
    }
    timeline.out.markup(format_args!("</section>"));
}

struct Timeline<'a> {
    report: &'a ShutdownReport,
    scale: Scale,
    milestones: Vec<Milestone>,
    out: &'a mut Canvas,
    /// Rows so far; each has names that others refer to.
    rows: usize,
}

// === impl Timeline ===

impl Timeline<'_> {
    /// What the marks and the lines mean.
    fn keys(&mut self, reach: Reach) {
        self.out.markup(format_args!(
            "<svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\">{PATTERNS}</svg>"
        ));
        self.out.markup(format_args!(
            "<p class=\"dim\">Times count from the signal. The thin bar is a pod's grace.</p>"
        ));
        if reach.is_magnified() {
            let (used, limit) = (in_seconds(reach.used), in_seconds(reach.limit));
            self.out.markup(format_args!(
                "<p>Only {used} of {limit} were used; what follows shows that part.</p>"
            ));
        }
        self.out.markup(format_args!("<ul class=\"key\" aria-label=\"Marks\">"));
        for (text, draw) in legend::entries(self.report) {
            let mut mark = Canvas::default();
            draw(&mut mark, 1.0, 8.0);
            self.out.markup(format_args!(
                "<li><svg width=\"26\" height=\"16\" aria-hidden=\"true\">{}</svg> {text}</li>",
                mark.into_string()
            ));
        }
        self.out.markup(format_args!("</ul>"));
        if self.milestones.is_empty() {
            return;
        }
        self.out.markup(format_args!("<ul class=\"key\" aria-label=\"Lines\">"));
        for (number, milestone) in self.milestones.iter().enumerate() {
            let (class, letter) = (milestone.class, letter(number));
            self.out.markup(format_args!(
                "<li><svg width=\"10\" height=\"16\" aria-hidden=\"true\"><line class=\"{class}\" \
                 x1=\"5\" y1=\"0\" x2=\"5\" y2=\"16\"/></svg> <b>{letter}</b> {}</li>",
                Escaped(&milestone.label)
            ));
        }
        self.out.markup(format_args!("</ul>"));
    }

    fn group(&mut self, group: &GroupReport) {
        let (name, facts) = (sentences::group(group), sentences::group_facts(group));
        let (name, facts) = (Escaped(&name), Escaped(&facts));
        self.out.markup(format_args!("<h3>{name} <span class=\"dim\">{facts}</span></h3>"));
        if group.started.is_none() {
            return;
        }
        self.ruler();
        self.out.markup(format_args!("<ol class=\"rows\">"));
        for pod in marks::by_time(group) {
            self.row(group, pod);
        }
        self.out.markup(format_args!("</ol>"));
    }

    /// The times, and the letters of the lines.
    fn ruler(&mut self) {
        let lanes = self.milestones.len().min(LANES);
        let height = px(lanes) * LANE + 16.0;
        self.out.markup(format_args!(
            "<div class=\"row ruler\" aria-hidden=\"true\"><svg width=\"100%\" height=\"{height}\">"
        ));
        for (number, milestone) in self.milestones.iter().enumerate() {
            let (x, class) = (Percent(self.scale.x(milestone.at)), milestone.class);
            let base = px(number % LANES) * LANE + 10.0;
            let top = base + 2.0;
            self.out.markup(format_args!(
                "<line class=\"{class}\" x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{height}\"/>\
                 <text class=\"letter\" x=\"{x}\" y=\"{base}\">{}</text>",
                letter(number)
            ));
        }
        for (number, (at, label)) in self.scale.ticks().into_iter().enumerate() {
            let x = Percent(self.scale.x(at));
            let class = match number {
                0 => "tick first",
                odd if odd % 2 == 1 => "tick odd",
                _ => "tick",
            };
            let y = height - 4.0;
            self.out
                .markup(format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{label}</text>"));
        }
        self.out.markup(format_args!("</svg></div>"));
    }

    fn row(&mut self, group: &GroupReport, pod: &PodReport) {
        self.rows += 1;
        let row = self.rows;
        let name = pod.full_name();
        let (said, class) = marks::remark(pod);
        let facts = marks::facts(pod).join(". ");
        let title = match pod.end {
            PodEnd::Exited if !said.is_empty() => format!("{name}: ended by itself, {said}"),
            _ => format!("{name}: {said}"),
        };
        let (title, name, said) = (Escaped(&title), Escaped(&name), Escaped(&said));
        // What is seen beside the bar is in the bar's own name; heard once is enough.
        self.out.markup(format_args!(
            "<li class=\"row\"><span class=\"pod\" aria-hidden=\"true\"><bdi>{name}</bdi></span>\
             <svg class=\"lane\" role=\"img\" aria-labelledby=\"t{row}\" \
             aria-describedby=\"d{row}\"><title id=\"t{row}\">{title}</title>\
             <desc id=\"d{row}\">{}</desc>",
            Escaped(&facts)
        ));
        self.behind(group);
        if let Some(times) = Times::of(pod, self.report.took) {
            // Around the middle of the row, which is as high as the name needs.
            self.out.markup(format_args!("<svg class=\"mark\" y=\"50%\" height=\"1\">"));
            self.bar(pod, &times);
            self.out.markup(format_args!("</svg>"));
        }
        self.out.markup(format_args!(
            "</svg><span class=\"said {class}\" aria-hidden=\"true\">{said}</span></li>"
        ));
    }

    /// The group's time, and the lines that go through all rows.
    fn behind(&mut self, group: &GroupReport) {
        let budget = &self.report.budget;
        let mut spans = vec![("reserve", budget.pods, budget.pods.saturating_add(budget.reserve))];
        if let Some(drain) = self.report.endpoint_drain {
            spans.push(("duck", Duration::ZERO, drain));
        }
        if let Some(started) = group.started {
            spans.push(("span", started, group.ended.unwrap_or(self.report.took).max(started)));
        }
        for (class, from, to) in spans {
            self.rect(class, from, to, ("0", "100%"));
        }
        for milestone in &self.milestones {
            let (x, class) = (Percent(self.scale.x(milestone.at)), milestone.class);
            self.out.markup(format_args!(
                "<line class=\"{class}\" x1=\"{x}\" y1=\"0\" x2=\"{x}\" y2=\"100%\"/>"
            ));
        }
        if self.scale.shows(group.latest_end) && group.latest_end != budget.pods {
            let x = Percent(self.scale.x(group.latest_end));
            self.out.markup(format_args!(
                "<line class=\"latest\" x1=\"{x}\" y1=\"0\" x2=\"{x}\" y2=\"100%\"/>"
            ));
        }
    }

    fn bar(&mut self, pod: &PodReport, times: &Times) {
        let bar = (&*(-BAR / 2.0).to_string(), &*BAR.to_string());
        let grace_end = times.asked.saturating_add(pod.grace);
        self.rect("grace", times.asked, grace_end, ("-2", "4"));
        let x = |at| Percent(self.scale.x(at));
        let (asked, term) = (x(times.asked), x(times.term));
        if times.term > times.asked {
            self.out.markup(format_args!(
                "<line class=\"wait\" x1=\"{asked}\" y1=\"0\" x2=\"{term}\" y2=\"0\"/>"
            ));
        }
        let solid = if pod.end == PodEnd::Left { "open" } else { "bar" };
        let turn = times.kill.unwrap_or(times.end);
        self.rect(solid, times.term, turn, bar);
        if times.kill.is_some() {
            self.rect("late", turn, times.end, bar);
        }
        let below = BAR / 2.0 + 1.0;
        self.out.markup(format_args!(
            "<line class=\"asked\" x1=\"{asked}\" y1=\"-{below}\" x2=\"{asked}\" y2=\"{below}\"/>"
        ));
        if pod.sigterm.is_some() {
            self.mark(times.term, |mark| mark.triangle("term", (0.0, 0.0), 6.5, 4.8));
        }
        match pod.end {
            PodEnd::Left => {
                self.mark(times.end, |mark| mark.triangle("arrow", (0.0, 0.0), 8.0, 6.0));
            }
            PodEnd::Ending => {
                self.mark(times.end, |mark| mark.triangle("soft", (0.0, 0.0), 8.0, 6.0));
            }
            _ => self.mark(times.end, |mark| mark.dot("exit", (0.0, 0.0), 4.3)),
        }
        if let Some(kill) = times.kill {
            self.mark(kill, |mark| mark.cross((0.0, 0.0), 4.3));
        }
    }

    /// A bar between two times. What ended at once is still seen to have been there.
    fn rect(&mut self, class: &str, from: Duration, to: Duration, (y, height): (&str, &str)) {
        let (from, to) = (self.scale.x(from), self.scale.x(to));
        let (x, width) = (Percent(from), Percent((to - from).max(0.0)));
        self.out.markup(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }

    /// A mark that keeps its shape however wide the bar is.
    fn mark(&mut self, at: Duration, draw: impl FnOnce(&mut Canvas)) {
        let mut mark = Canvas::default();
        draw(&mut mark);
        let (x, mark) = (Percent(self.scale.x(at)), mark.into_string());
        self.out.markup(format_args!(
            "<svg class=\"mark\" x=\"{x}\" width=\"1\" height=\"1\">{mark}</svg>"
        ));
    }
}

/// A place between the edges.
#[derive(Clone, Copy)]
struct Percent(f64);

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Adding zero turns a negative zero into a plain one.
        write!(f, "{}%", (self.0 * 1000.0).round() / 1000.0 + 0.0)
    }
}

/// A, B, C and so on; there are a handful, but a report from elsewhere may say more.
fn letter(number: usize) -> String {
    let letter = u8::try_from(number).ok().filter(|number| *number < 26);
    letter.map_or_else(|| (number + 1).to_string(), |number| char::from(b'A' + number).to_string())
}

#[expect(clippy::cast_precision_loss, reason = "a handful of lines")]
fn px(lines: usize) -> f64 {
    lines as f64
}
