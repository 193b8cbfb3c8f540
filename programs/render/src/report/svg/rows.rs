//! One row per pod, one band per group.

use std::time::Duration;

use winddown_shutdown::{GroupReport, PodEnd, PodReport, ShutdownReport};

use super::super::marks::{self, BarTimes};
use super::super::sentences;
use super::canvas::Canvas;
use super::milestones::Milestone;
use super::scale::Scale;
use super::sizes::{self, MARGIN, Sizes, WIDTH};

/// The height of a group's heading, and its font size.
const HEADING: (f64, f64) = (26.0, 15.0);

/// The space above a group.
pub(super) const GAP: f64 = 8.0;

/// The font size and height of the time labels between rows.
pub(super) const RULER: (f64, f64) = (13.0, 18.0);

/// Draws groups and pods from `y` downwards, each at its position in time.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    report: &'a ShutdownReport,
    scale: &'a Scale,
    sizes: Sizes,
    /// The positions of the lines that cross all rows.
    lines: Vec<f64>,
    /// The bands, drawn below everything else.
    pub(super) under: Canvas,
    /// The bars and texts.
    pub(super) over: Canvas,
    /// The top of the next row.
    pub(super) y: f64,
    /// Whether no group was drawn yet.
    first: bool,
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        report: &'a ShutdownReport,
        scale: &'a Scale,
        sizes: Sizes,
        y: f64,
        milestones: &[Milestone],
    ) -> Self {
        let (under, over) = (Canvas::default(), Canvas::default());
        let lines = milestones.iter().map(|one| scale.x(one.at)).collect();
        Self { report, scale, sizes, lines, under, over, y, first: true }
    }

    /// Draws all groups that have pods.
    pub(super) fn draw(&mut self) {
        for group in sentences::groups(self.report) {
            self.group(group);
        }
    }

    /// Writes the time labels.
    pub(super) fn ruler(&mut self) {
        for (at, label) in self.scale.ticks() {
            let x = self.scale.x(at);
            let wide = sizes::width(&label, RULER.0) + 2.0;
            // A milestone's line would make the label unreadable, and has a label of its own.
            if self.lines.iter().any(|line| (line - x).abs() < wide / 2.0) {
                continue;
            }
            self.over.rect("paper", x - wide / 2.0, self.y + 1.0, wide, RULER.0 + 1.0);
            self.over.text("dim mid", RULER.0, (x, self.y + RULER.0), &label);
        }
        self.y += RULER.1;
    }

    fn group(&mut self, group: &GroupReport) {
        self.y += GAP;
        let (line, font) = HEADING;
        let (name, facts) = (sentences::group(group), sentences::group_facts(group));
        let room = WIDTH - 2.0 * MARGIN - 12.0;
        let fits = sizes::width(&format!("{name}  {facts}"), font) <= room;
        let height = if fits { line } else { line + font + 5.0 };
        let top = self.y;
        // Covers the lines that cross all rows: they must not cross text.
        self.over.rect("strip", MARGIN, top, WIDTH - 2.0 * MARGIN, height);
        let baseline = top + line / 2.0 + font / 2.8;
        let at = (MARGIN + 6.0, baseline);
        if fits {
            self.over.heading(font, at, &name, &facts);
        } else {
            self.over.text("head", font, at, &sizes::fit_end(&name, font, room));
            let facts = sizes::fit_end(&facts, font - 2.0, room);
            self.over.text("dim", font - 2.0, (at.0, baseline + font + 4.0), &facts);
        }
        self.y += height;
        if group.started.is_none() {
            return;
        }
        if self.sizes.ruler > 0 && !self.first {
            self.ruler();
        }
        self.first = false;
        let (mut shown, folded) = sentences::fold(group);
        // Sorted by time, so that the rows show the course of the group.
        shown.sort_by_key(|pod| (sentences::severity(pod), pod.exit, &pod.namespace, &pod.name));
        let held = sentences::held_by(group);
        for (number, pod) in shown.into_iter().enumerate() {
            if number > 0 && self.sizes.ruler > 0 && number % self.sizes.ruler == 0 {
                self.ruler();
            }
            let alone =
                held.filter(|(holder, _)| std::ptr::eq(*holder, pod)).map(|(_, alone)| alone);
            self.pod(pod, alone);
        }
        if !folded.is_empty() {
            self.folded(&folded);
        }
        self.span(group, top + height);
    }

    /// Draws the time in which the group was stopping, and its latest end.
    fn span(&mut self, group: &GroupReport, top: f64) {
        let Some(started) = group.started else { return };
        let ended = group.ended.unwrap_or(self.report.took).max(started);
        let (left, right) = (self.scale.x(started), self.scale.x(ended));
        self.under.rect("span", left, top, right - left, self.y - top);
        let limit = group.latest_end;
        if self.scale.shows(limit) && limit != self.report.budget.pods {
            let x = self.scale.x(limit);
            self.under.line("latest", (x, top), (x, self.y));
        }
    }

    /// Draws one row for `pods`: how many of them still ran at each time.
    fn folded(&mut self, pods: &[&PodReport]) {
        let (height, font) = HEADING;
        let (scale, baseline) = (*self.scale, self.y + height - 6.0);
        let mut exits: Vec<f64> = pods.iter().filter_map(|pod| Some(scale.x(pod.exit?))).collect();
        exits.sort_by(f64::total_cmp);
        if let Some(asked) = pods.iter().filter_map(|pod| pod.asked).min() {
            let from = (scale.x(asked), self.y + height - 2.0);
            self.over.staircase("folded", from, height - 4.0, &exits);
        }
        let (more, how) = sentences::folded(pods);
        self.over.text(
            "dim end",
            font - 1.5,
            (scale.left() - 10.0, baseline),
            &format!("… {more}"),
        );
        self.over.text("dim", font - 1.5, (scale.right() + 12.0, baseline), &how);
        self.y += height;
    }

    /// Draws a row. During the time `alone`, the group waited for this pod only.
    fn pod(&mut self, pod: &PodReport, alone: Option<Duration>) {
        let Sizes { row, font, .. } = self.sizes;
        let middle = self.y + row / 2.0;
        let baseline = middle + font / 2.8;
        let name = pod.full_name();
        let shown = sizes::fit(&name, self.sizes.name);
        let said = marks::remark(pod);
        let scale = *self.scale;
        let sizes = self.sizes;
        let times = BarTimes::of(pod, self.report.took);
        self.over.titled(&marks::hover(pod, &name), |out| {
            // An invisible target for the tooltip, as wide as the row.
            out.markup(format_args!(
                r#"<rect x="{MARGIN}" y="{}" width="{}" height="{row}" fill-opacity="0"/>"#,
                middle - row / 2.0,
                WIDTH - 2.0 * MARGIN,
            ));
            out.text("mono end", font, (scale.left() - 10.0, baseline), &shown);
            if let Some(times) = times {
                bar(pod, &times, &scale, sizes, middle, out);
                if let Some(alone) = alone {
                    let from = scale.x(times.end.saturating_sub(alone));
                    let y = middle + sizes.bar / 2.0 + 2.0;
                    out.line("held", (from, y), (scale.x(times.end), y));
                }
            }
            let font = font - 1.5;
            let said = sizes::fit_remark(&said, font);
            out.text(marks::class(pod), font, (scale.right() + 12.0, baseline), &said);
        });
        self.y += row;
    }
}

fn bar(
    pod: &PodReport,
    times: &BarTimes,
    scale: &Scale,
    Sizes { bar, .. }: Sizes,
    middle: f64,
    out: &mut Canvas,
) {
    let x = |at| scale.x(at);
    let (asked, term, end) = (x(times.asked), x(times.term), x(times.end));
    let top = middle - bar / 2.0;
    let grace_end = x(times.asked.saturating_add(pod.grace));
    out.rect("grace", asked, middle - bar / 6.0, grace_end - asked, bar / 3.0);
    if let Some(wanted) = pod.wanted_grace {
        let wanted = x(times.asked.saturating_add(wanted));
        out.line("own", (grace_end, middle), (wanted, middle));
    }
    out.rect("hook", asked, middle - bar / 3.0, term - asked, bar / 1.5);
    let kill = times.kill.map(x);
    let solid = if pod.end == PodEnd::Left { "open" } else { "bar" };
    let turn = kill.unwrap_or(end);
    // A pod that exited at once is still visible.
    out.rect(solid, term, top, (turn - term).max(1.0), bar);
    if kill.is_some() {
        out.rect("late", turn, top, end - turn, bar);
    }
    out.line("asked", (asked, top - 1.0), (asked, top + bar + 1.0));
    if pod.sigterm.is_some() {
        out.triangle("term", (term, middle), bar * 0.55, bar * 0.4);
    }
    let radius = (bar * 0.36).max(2.6);
    match pod.end {
        PodEnd::Left => out.triangle("arrow", (end, middle), bar * 0.7, bar / 2.0),
        PodEnd::Ending => out.triangle("soft", (end, middle), bar * 0.7, bar / 2.0),
        PodEnd::Killed if end - turn < 3.0 * radius => {}
        PodEnd::Exited if pod.exit.is_none() => {}
        _ => out.dot("exit", (end, middle), radius),
    }
    if let Some(kill) = kill {
        out.cross((kill, middle), (bar * 0.36).max(2.8));
    }
}
