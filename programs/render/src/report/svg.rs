//! The report as an SVG picture: a timeline with one bar per pod.

pub(super) mod canvas;
pub(super) mod evictions;
mod legend;
mod milestones;
mod rows;
mod scale;
mod sizes;
#[cfg(test)]
mod tests;

use winddown_shared::display::in_seconds;
use winddown_shutdown::{Outcome, ShutdownReport};

use super::sentences::{self, occasion, shortage};
use canvas::Canvas;
use milestones::Milestone;
use rows::Rows;
use scale::{Reach, Scale};
use sizes::{MARGIN, Sizes, WIDTH};

/// Colours for light and for dark surroundings. Nothing is conveyed by colour alone.
pub(super) const THEME: &str = include_str!("svg/theme.css");

/// The font size of sentences.
const TEXT: f64 = 15.0;

/// The number of warnings that are shown.
const SHOWN_WARNINGS: usize = 8;

/// The report as a self-contained SVG 1.1 document, without scripts, fonts or links to external resources. It follows
/// the viewer's light or dark scheme. The same report produces the same bytes.
///
/// It has one bar per pod from SIGTERM to its exit, grouped in the order in which the pods were stopped, over one time
/// axis that starts with the signal. If the limits lie far behind the last event, the axis ends soon after the event,
/// and a strip above it shows how little of the time was used. Rows become lower if there are many pods. Names are
/// shown without control characters.
pub fn svg(report: &ShutdownReport) -> String {
    let mut page = Page { report, out: Canvas::default(), y: MARGIN };
    page.head();
    if report.pods().next().is_some() {
        page.chart();
    }
    page.warnings();
    let style = format!("<style>\n{THEME}</style>");
    page.finish(&style).into_string().trim_start().to_owned()
}

/// The timeline alone, for a page that includes the [`THEME`] and has its own text.
pub(super) fn timeline(report: &ShutdownReport) -> Canvas {
    let mut page = Page { report, out: Canvas::default(), y: 4.0 };
    page.chart();
    page.finish("")
}

struct Page<'a> {
    report: &'a ShutdownReport,
    out: Canvas,
    y: f64,
}

impl Page<'_> {
    fn head(&mut self) {
        let class = match self.report.outcome {
            Outcome::Clean => "head good",
            Outcome::Left | Outcome::Interrupted | Outcome::CutOff => "head bad",
            Outcome::Forced | Outcome::Cancelled => "head warn",
        };
        for line in sizes::wrap(&self.report.headline(), 20.0, 3) {
            self.line(class, 20.0, &line);
        }
        for line in sizes::wrap(&occasion(self.report), TEXT, 2) {
            self.line("dim", TEXT, &line);
        }
        let origin = sentences::origin(self.report).into_iter().map(|said| ("", said));
        let short = self.report.budget.is_short().then(|| ("warn", shortage(self.report)));
        for (class, said) in origin.chain(short) {
            for line in sizes::wrap(&said, TEXT, 3) {
                self.line(class, TEXT, &line);
            }
        }
        self.y += 8.0;
    }

    fn chart(&mut self) {
        let report = self.report;
        let sizes = Sizes::of(report);
        let reach = Reach::of(report);
        let scale = Scale::new(sizes.left(), sizes.right(), reach.end());
        legend::draw(report, &mut self.y, &mut self.out);
        if reach.is_magnified() {
            self.strip(&sizes, reach);
        }
        let milestones = milestones::of(report, &scale);
        self.y += milestones::height(&milestones) + 4.0;
        self.rows(&scale, sizes, &milestones);
    }

    /// Draws how much of the whole time was used.
    fn strip(&mut self, sizes: &Sizes, reach: Reach) {
        let whole = Scale::new(sizes.left(), sizes.right(), reach.limit);
        let budget = &self.report.budget;
        let (y, height) = (self.y, 8.0);
        let out = &mut self.out;
        out.text("dim end", 13.0, (whole.left() - 10.0, y + height), "time used");
        out.rect("strip", whole.left(), y, whole.right() - whole.left(), height);
        let (from, to) =
            (whole.x(budget.pods), whole.x(budget.pods.saturating_add(budget.reserve)));
        out.rect("reserve", from, y, to - from, height);
        let used = whole.x(reach.used);
        out.rect("bar", whole.left(), y, (used - whole.left()).max(1.0), height);
        out.rect("frame", whole.left(), y, whole.right() - whole.left(), height);
        let said = format!("{} of {}, enlarged", in_seconds(reach.used), in_seconds(reach.limit));
        out.text("dim", 13.0, (whole.right() + 12.0, y + height), &said);
        self.y += height + 10.0;
    }

    fn rows(&mut self, scale: &Scale, sizes: Sizes, milestones: &[Milestone]) {
        let top = self.y;
        let mut rows = Rows::new(self.report, scale, sizes, top, milestones);
        rows.ruler();
        rows.draw();
        rows.y += 4.0;
        let bottom = rows.y;
        rows.ruler();
        self.y = rows.y + 4.0;
        let under = top + rows::RULER.1 + rows::GAP;
        milestones::shade(self.report, scale, (under, bottom), &mut self.out);
        self.out.append(&rows.under);
        for (at, _) in scale.ticks() {
            let x = scale.x(at);
            self.out.line("grid", (x, top + rows::RULER.1), (x, bottom));
        }
        milestones::draw(milestones, scale, (top, bottom), &mut self.out);
        self.out.append(&rows.over);
    }

    fn warnings(&mut self) {
        let warnings = sentences::warnings(self.report);
        if warnings.is_empty() {
            return;
        }
        self.y += 8.0;
        for warning in warnings.iter().take(SHOWN_WARNINGS) {
            for line in sizes::wrap(warning, TEXT, 3) {
                self.line("warn", TEXT, &line);
            }
        }
        if let Some(more) = warnings.len().checked_sub(SHOWN_WARNINGS).filter(|more| *more > 0) {
            self.line("dim", TEXT, &format!("and {more} more"));
        }
    }

    fn line(&mut self, class: &str, size: f64, text: &str) {
        self.y += size;
        self.out.text(class, size, (MARGIN, self.y), text);
        self.y += (size * 0.5).round();
    }

    fn finish(self, style: &str) -> Canvas {
        let height = (self.y + MARGIN - 8.0).ceil();
        let mut page = Canvas::default();
        page.markup(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="what how">"#
        ));
        page.element("title", "what", &self.report.headline());
        page.element("desc", "how", &described(self.report));
        page.markup(format_args!("{style}{}", legend::PATTERNS));
        page.rect("paper", 0.0, 0.0, WIDTH, height);
        page.append(&self.out);
        page.markup(format_args!("</svg>\n"));
        page
    }
}

/// The picture in words, for screen readers.
fn described(report: &ShutdownReport) -> String {
    let mut said = vec![occasion(report)];
    for group in sentences::groups(report) {
        said.push(format!("{}: {}", sentences::group(group), sentences::group_facts(group)));
    }
    said.join(". ")
}
