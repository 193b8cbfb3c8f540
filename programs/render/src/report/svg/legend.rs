//! The legend.

use winddown_shutdown::{PodEnd, PodReport, ShutdownReport};

use super::super::sentences;
use super::canvas::Canvas;
use super::sizes::{MARGIN, WIDTH, width};

/// The hatch patterns. Their colours come from the theme.
pub(super) const PATTERNS: &str = concat!(
    "<defs>",
    r#"<pattern id="late" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">"#,
    r#"<rect class="late-a" width="5" height="5"/><path class="late-b" d="M1 0v5"/></pattern>"#,
    r#"<pattern id="open" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">"#,
    r#"<rect class="open-a" width="5" height="5"/><path class="open-b" d="M1 0v5"/></pattern>"#,
    r#"<pattern id="reserve" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">"#,
    r#"<path class="reserve-b" d="M1 0v7"/></pattern>"#,
    r#"<pattern id="duck" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">"#,
    r#"<rect class="duck-a" width="8" height="8"/><path class="duck-b" d="M1 0v8"/></pattern>"#,
    "</defs>",
);

const FONT: f64 = 14.0;

/// The width of a mark, and the space after an entry.
const MARK: f64 = 26.0;
const GAP: f64 = 14.0;

/// The height of the bars in the legend.
const BAR: f64 = 10.0;

pub(super) type Mark = fn(&mut Canvas, f64, f64);

/// Draws the legend for the marks in `report`, on one line or more.
pub(super) fn draw(report: &ShutdownReport, y: &mut f64, out: &mut Canvas) {
    let mut x = MARGIN;
    let mut middle = *y + 8.0;
    for (text, mark) in entries(report) {
        let wide = MARK + width(text, FONT) + GAP;
        if x + wide > WIDTH - MARGIN {
            x = MARGIN;
            middle += 21.0;
        }
        mark(out, x, middle);
        out.text("dim", FONT, (x + MARK, middle + 4.0), text);
        x += wide;
    }
    *y = middle + 20.0;
}

/// The marks in `report`: the text of each, and the function that draws it, given its left edge and middle.
pub(super) fn entries(report: &ShutdownReport) -> Vec<(&'static str, Mark)> {
    let any = |end: PodEnd| report.count(end) > 0;
    let mut entries: Vec<(&'static str, Mark)> = vec![
        ("asked to end", |out, x, y| {
            out.line("asked", (x + 12.0, y - 6.0), (x + 12.0, y + 6.0));
        }),
        ("SIGTERM", |out, x, y| out.triangle("term", (x + 8.0, y), 6.0, 4.5)),
        ("ending", |out, x, y| out.rect("bar", x, y - BAR / 2.0, 20.0, BAR)),
        ("exit of the last container", |out, x, y| out.dot("exit", (x + 12.0, y), 4.0)),
        ("its grace", |out, x, y| out.rect("grace", x, y - 2.0, 20.0, 4.0)),
    ];
    let any_pod = |has: fn(&PodReport) -> bool| report.pods().any(|(_, pod)| has(pod));
    if any_pod(|pod| pod.wanted_grace.is_some()) {
        entries.push(("its own grace, cut", |out, x, y| out.line("own", (x, y), (x + 20.0, y))));
    }
    if any_pod(|pod| sentences::before_sigterm(pod).is_some()) {
        entries.push(("before SIGTERM (preStop hook)", |out, x, y| {
            out.rect("hook", x, y - 4.0, 20.0, 8.0);
        }));
    }
    if report.groups.iter().any(|group| sentences::held_by(group).is_some()) {
        entries.push(("the group waits for this pod alone", |out, x, y| {
            out.line("held", (x, y), (x + 20.0, y));
        }));
    }
    if any(PodEnd::Killed) {
        entries.push(("SIGKILL, its grace was over", |out, x, y| out.cross((x + 12.0, y), 4.0)));
    }
    if any(PodEnd::Left) {
        entries.push(("not seen to end", |out, x, y| {
            out.rect("open", x, y - BAR / 2.0, 16.0, BAR);
            out.triangle("arrow", (x + 16.0, y), 7.0, 5.0);
        }));
    }
    if any(PodEnd::Ending) {
        entries.push(("still ending", |out, x, y| {
            out.rect("bar", x, y - BAR / 2.0, 16.0, BAR);
            out.triangle("soft", (x + 16.0, y), 7.0, 5.0);
        }));
    }
    if report.endpoint_drain.is_some_and(|drain| !drain.is_zero()) {
        entries.push(("not ready, before SIGTERM", |out, x, y| {
            out.rect("duck", x, y - BAR / 2.0, 20.0, BAR);
        }));
    }
    entries.push(("the group's time", |out, x, y| {
        out.rect("span", x, y - BAR / 2.0, 14.0, BAR);
        out.line("latest", (x + 18.0, y - 6.0), (x + 18.0, y + 6.0));
    }));
    entries.push(("reserve at the end", |out, x, y| {
        out.rect("reserve", x, y - BAR / 2.0, 20.0, BAR);
    }));
    entries
}
