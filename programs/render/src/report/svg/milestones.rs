//! Milestones of the whole run: its limits, its end, and restarts of the agent.

use std::time::Duration;

use winddown_shared::display::in_seconds;
use winddown_shutdown::ShutdownReport;

use super::canvas::Canvas;
use super::scale::Scale;
use super::sizes::width;

const FONT: f64 = 13.0;

/// The height of a line of labels.
const LANE: f64 = 17.0;

/// A line through all rows, with its label above them.
#[derive(Debug)]
pub(super) struct Milestone {
    pub(super) at: Duration,
    class: &'static str,
    pub(super) label: String,
    /// The number of label lines between this label and the rows.
    pub(super) lane: usize,
}

/// The milestones of `report` that are within `scale`, sorted by time.
pub(super) fn of(report: &ShutdownReport, scale: &Scale) -> Vec<Milestone> {
    let budget = &report.budget;
    let mut all = Vec::new();
    let mut add = |at: Duration, class, what: &str| {
        let label = format!("{what} {}", in_seconds(at));
        if scale.shows(at) {
            all.push(Milestone { at, class, label, lane: 0 });
        }
    };
    if let Some(drain) = report.endpoint_drain.filter(|drain| !drain.is_zero()) {
        add(drain, "limit", "endpoint drain ends");
    }
    for at in &report.resumed {
        add(*at, "again", "agent restarted");
    }
    add(budget.pods, "limit", "pods' time ends");
    if let Some(delay) = budget.delay {
        add(delay, "limit", "logind's limit");
    }
    if let Some(notice) = &report.notice {
        add(notice.deadline, "limit", "notice: node ends");
    }
    add(report.took, "over", report.end_of_run());
    all.sort_by_key(|milestone| milestone.at);
    stack(&mut all, scale);
    all
}

/// The total height of the labels.
pub(super) fn height(milestones: &[Milestone]) -> f64 {
    let lanes = milestones.iter().map(|milestone| milestone.lane + 1).max().unwrap_or(0);
    lane_height(lanes)
}

/// Draws the lines down to `bottom`; the rows start at `top`.
pub(super) fn draw(
    milestones: &[Milestone],
    scale: &Scale,
    (top, bottom): (f64, f64),
    out: &mut Canvas,
) {
    for Milestone { at, class, label, lane } in milestones {
        let x = scale.x(*at);
        let begin = top - lane_height(*lane) - LANE + 2.0;
        out.line(class, (x, begin), (x, bottom));
        out.text("", FONT, (x + 4.0, begin + 12.0), label);
    }
}

/// Draws the shaded spans below the rows.
pub(super) fn shade(
    report: &ShutdownReport,
    scale: &Scale,
    (top, bottom): (f64, f64),
    out: &mut Canvas,
) {
    let mut span = |class, from: Duration, to: Duration| {
        let (left, right) = (scale.x(from), scale.x(to));
        out.rect(class, left, top, right - left, bottom - top);
    };
    if let Some(drain) = report.endpoint_drain {
        span("duck", Duration::ZERO, drain);
    }
    let budget = &report.budget;
    span("reserve", budget.pods, budget.pods.saturating_add(budget.reserve));
}

/// Moves a label to a higher line if it would overlap the next one. Labels stand to the right of their lines, so the
/// earlier one moves up: then no line crosses a label.
fn stack(milestones: &mut [Milestone], scale: &Scale) {
    for index in (0..milestones.len()).rev() {
        let (earlier, later) = milestones.split_at_mut(index + 1);
        let Some(this) = earlier.last_mut() else { return };
        let end = scale.x(this.at) + 4.0 + width(&this.label, FONT) + 6.0;
        let under = later.iter().filter(|other| scale.x(other.at) < end);
        this.lane = under.map(|other| other.lane + 1).max().unwrap_or(0);
    }
}

fn lane_height(lanes: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a handful of lines")]
    let lanes = lanes as f64;
    lanes * LANE
}
