//! `winddown status --watch` on a terminal: one screen, whatever its size.
//!
//! Ages would grow old while nothing happens, so the past is shown by the clock; only
//! what comes to an end is counted down.

use std::time::Duration;

use anstyle::Style;
use winddown_shared::WallTime;
use winddown_shared::display::clean;

use super::line::{Line, cut, span, width};
use super::paint::{BAD, DIM, HEAD, PLAIN};
use super::times::Times;
use super::wrap;
use winddown_control::api::{Phase, PodState, Status};

mod head;
mod pods;
mod sections;
#[cfg(test)]
mod tests;

/// What is to be seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scene<'a> {
    /// The last picture of the node; none before the first.
    pub status: Option<&'a Status>,
    /// How long ago that picture was taken.
    pub older: Duration,
    /// Why the agent does not answer, and what to do next; none while it does.
    pub gone: Option<(&'a str, &'a str)>,
    /// Bars may be drawn with blocks.
    pub blocks: bool,
    /// Pods that were scrolled past.
    pub skipped: usize,
}

/// A screen as it is to be drawn.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// At most as many as there are rows, none wider than the screen.
    pub lines: Vec<Line>,
    /// Pods that can be seen at once.
    pub page: usize,
    /// Pods that are really scrolled past: never so many that room is left under the last one.
    pub skipped: usize,
}

/// Draws `scene` into `columns` and `rows`. Where there is little room, what says most stays.
pub fn live(scene: &Scene<'_>, columns: usize, rows: usize) -> Screen {
    let mut page = Page { scene, columns, lines: Vec::new() };
    let (mut pods, mut skipped) = (0, 0);
    match scene.status {
        None => page.no_agent(),
        Some(status) => (pods, skipped) = page.node(status, rows),
    }
    page.foot(rows);
    page.lines.truncate(rows);
    Screen { lines: page.lines, page: pods, skipped }
}

/// Whether something in the picture, `older` by now, comes nearer to its end every second.
pub fn counts_down(status: &Status, older: Duration) -> bool {
    let now = now(status, older);
    let shutdown = &status.shutdown;
    let ahead = |then: Option<WallTime>| then.is_some_and(|then| then > now);
    let pods = status.pods.iter().filter(|pod| pod.state == PodState::Terminating);
    (shutdown.phase == Phase::Running && ahead(shutdown.deadline))
        || status.notices.iter().any(|notice| ahead(notice.deadline))
        || pods.filter_map(|pod| pod.grace_left_seconds).any(|left| left > older.as_secs())
}

/// The agent's clock, as far as is known.
fn now(status: &Status, older: Duration) -> WallTime {
    status.time.saturating_add(older).unwrap_or(status.time)
}

struct Page<'a> {
    scene: &'a Scene<'a>,
    columns: usize,
    lines: Vec<Line>,
}

impl Page<'_> {
    /// Nothing was heard of an agent yet.
    fn no_agent(&mut self) {
        let (why, next) = self.scene.gone.unwrap_or(("", ""));
        self.two(vec![span(HEAD, "winddown")], vec![]);
        if why.is_empty() {
            self.text(DIM, "waiting for the agent's answer");
            return;
        }
        self.text(BAD, "NO ANSWER");
        self.text(PLAIN, why);
        if !next.is_empty() {
            self.blank();
            self.text(PLAIN, next);
        }
        self.blank();
        self.text(DIM, "It is asked again every second.");
    }

    /// The last line, where there is room for one.
    fn foot(&mut self, rows: usize) {
        if rows < 8 {
            return;
        }
        self.lines.truncate(rows - 1);
        while self.lines.len() < rows - 1 {
            self.blank();
        }
        let keys =
            if self.columns < 50 { "q quit" } else { "q quit   up/down, page up/down: pods" };
        let answer = match (self.scene.gone, self.scene.status) {
            (None, Some(status)) => format!("as of {}", status.time.strftime("%H:%M:%S UTC")),
            _ => String::new(),
        };
        let keys = vec![span(DIM, keys)];
        let answer = vec![span(DIM, answer)];
        self.two(keys, answer);
    }

    /// Times as a screen tells them that is not drawn again while nothing happens.
    fn times(&self, status: &Status) -> Times {
        let now = now(status, self.scene.older);
        Times { now, clock: true, brief: self.columns < 60 }
    }

    fn blank(&mut self) {
        self.lines.push(Line::new());
    }

    fn heading(&mut self, text: &str) {
        self.two(vec![span(HEAD, text)], vec![]);
    }

    /// As many lines as the text needs.
    fn text(&mut self, style: Style, text: &str) {
        for line in wrap(&clean(text), Some(self.columns.max(16)), 0) {
            self.two(vec![span(style, line)], vec![]);
        }
    }

    /// One part at the left, one at the right; the right one goes where there is no room for both.
    fn two(&mut self, left: Line, right: Line) {
        let mut line = cut(left, self.columns);
        let room = self.columns.saturating_sub(width(&line));
        if room > width(&right) {
            line.push(span(PLAIN, " ".repeat(room - width(&right))));
            line.extend(right);
        }
        self.lines.push(line);
    }

    /// `done` of `all`, as a bar of `width` columns. Nothing is full before all is done.
    fn bar(&self, done: u64, all: u64, width: usize) -> String {
        let (full, empty) = if self.scene.blocks { ("█", "░") } else { ("#", "-") };
        let wide = u64::try_from(width).unwrap_or(0);
        let filled = match done.saturating_mul(wide).checked_div(all) {
            None => 0,
            Some(filled) => usize::try_from(filled.min(wide)).unwrap_or(width),
        };
        format!("{}{}", full.repeat(filled), empty.repeat(width - filled))
    }
}
