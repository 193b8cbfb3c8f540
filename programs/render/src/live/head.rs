//! The first lines: node, shutdown, lock, pressure.

use winddown_shared::display::clean;

use super::Page;
use crate::fit;
use crate::line::span;
use crate::paint::{BAD, DIM, HEAD, WARN};
use crate::rows::{Row, rows, run};
use winddown_control::api::{Phase, Status};

/// The width of the labels at the left, in columns.
const LABEL_COLUMNS: usize = 10;

/// The screen height below which only the most important lines are shown.
const LOW_SCREEN_ROWS: usize = 14;

/// The rows of `winddown status` that are shown here, most important first: all that have a label, except the node,
/// which is the title, and the configuration's file.
const SHOWN: [&str; 15] = [
    "shutdown",
    "drain",
    "notice",
    "lock",
    "protected",
    "guard",
    "admission",
    "start",
    "cluster",
    "after",
    "pressure",
    "plan",
    "reboot",
    "plug-in",
    "last boot",
];
const ALWAYS_SHOWN: usize = 5;

impl Page<'_> {
    pub(super) fn head(&mut self, status: &Status, height: usize) {
        let rows = rows(status, self.times(status));
        self.title(status, &rows);
        for (number, label) in SHOWN.into_iter().enumerate() {
            for row in rows.iter().filter(|row| row.label == label) {
                // On a small screen, the other rows are shown only if something is wrong.
                let wrong = row.style == BAD || row.style == WARN;
                let wanted = match label {
                    "last boot" => wrong && height >= LOW_SCREEN_ROWS,
                    // The lock's row says that all is well.
                    "protected" => wrong,
                    "plan" => height >= LOW_SCREEN_ROWS,
                    // A shutdown's own row says enough.
                    "admission" => {
                        height >= LOW_SCREEN_ROWS || !status.shutdown.phase.is_under_way()
                    }
                    _ => number < ALWAYS_SHOWN || height >= LOW_SCREEN_ROWS || wrong,
                };
                if wanted {
                    self.row(row, status);
                }
            }
        }
    }

    fn title(&mut self, status: &Status, rows: &[Row]) {
        let name = clean(&status.node.name);
        let about = rows.first().and_then(|row| row.text.strip_prefix(&*name)).unwrap_or_default();
        let about = match self.scene.gone {
            Some((why, _)) => {
                let when = status.time.strftime("%H:%M:%S UTC");
                span(BAD, format!("  NO ANSWER since {when}: {}", clean(why)))
            }
            None => span(DIM, about),
        };
        self.two(vec![span(HEAD, name), about], vec![]);
    }

    fn row(&mut self, row: &Row, status: &Status) {
        let mut text = row.text.clone();
        let shutdown = run(status);
        let room = self.columns.saturating_sub(LABEL_COLUMNS + text.len() + 2).min(30);
        let label = match status.shutdown.phase.is_under_way() {
            false => "drain",
            true => "shutdown",
        };
        if let (true, Phase::Running, Some(since), Some(deadline), 8..) =
            (row.label == label, shutdown.phase, shutdown.since, shutdown.deadline, room)
        {
            let now = self.times(status).now;
            let millis = |to: winddown_shared::WallTime| {
                u64::try_from(to.duration_since(since).as_millis()).unwrap_or(0)
            };
            text.push_str(&format!("  {}", self.bar(millis(now), millis(deadline), room)));
        }
        let text = fit(&text, self.columns.saturating_sub(LABEL_COLUMNS));
        let label = span(HEAD, format!("{:<LABEL_COLUMNS$}", row.label));
        self.two(vec![label, span(row.style, text)], vec![]);
    }
}
