//! The timeline of a run as an SVG fragment: one bar per pod.

pub(super) mod canvas;
mod legend;
mod milestones;
mod rows;
mod scale;
mod sizes;
#[cfg(test)]
mod tests;

use winddown_shared::display::in_seconds;
use winddown_shutdown::ShutdownReport;

use super::sentences::{self, occasion};
use canvas::Canvas;
use milestones::Milestone;
use rows::Rows;
use scale::{Reach, Scale};
use sizes::{MARGIN, Sizes, WIDTH};

/// Colours for light and for dark surroundings. Nothing is conveyed by colour alone.
pub(super) const THEME: &str = include_str!("svg/theme.css");

/// The timeline, for a page that includes the [`THEME`] and has its own text. The same report produces the same bytes.
///
/// It has one bar per pod from SIGTERM to its exit, grouped in the order in which the pods were stopped, over one time
/// axis that starts with the signal. If the limits lie far behind the last event, the axis ends soon after the event,
/// and a strip above it shows how little of the time was used. Rows become lower if there are many pods. Names are
/// shown without control characters.
pub(super) fn timeline(report: &ShutdownReport) -> Canvas {
    let mut picture = Picture { report, out: Canvas::default(), y: 4.0 };
    picture.chart();
    picture.finish()
}

struct Picture<'a> {
    report: &'a ShutdownReport,
    out: Canvas,
    y: f64,
}

impl Picture<'_> {
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

    fn finish(self) -> Canvas {
        let height = (self.y + MARGIN - 8.0).ceil();
        let mut page = Canvas::default();
        page.markup(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="what how">"#
        ));
        page.element("title", "what", &self.report.headline());
        page.element("desc", "how", &described(self.report));
        page.markup(format_args!("{}", legend::PATTERNS));
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
