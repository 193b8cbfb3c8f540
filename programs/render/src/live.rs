//! `winddown status --watch` on a terminal: one screen of any size.
//!
//! Past times are shown as clock times, because ages would become stale while nothing changes; only future times are
//! counted down.

use std::borrow::Cow;
use std::time::Duration;

use anstyle::Style;
use winddown_shared::WallTime;
use winddown_shared::display::clean;

use super::line::{Line, cut, span, width};
use super::paint::{BAD, DIM, HEAD, PLAIN};
use super::rows::run;
use super::times::Times;
use super::{by_path, wrap};
use winddown_control::api::{Phase, PodState, Status};

mod foot;
mod head;
mod help;
mod pods;
mod sections;
#[cfg(test)]
mod tests;

pub use pods::PodOrder;

/// The content of the screen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scene<'a> {
    /// The last status of the node; none before the first.
    pub status: Option<&'a Status>,
    /// The age of that status.
    pub older: Duration,
    /// Why the agent does not answer, and what to do next; none while it answers.
    pub gone: Option<(&'a str, &'a str)>,
    /// This program as a shell finds it, if not by its name: see [`by_path`](crate::by_path).
    pub program: Option<&'a str>,
    /// Whether bars may be drawn with block characters.
    pub blocks: bool,
    /// Only pods with this text in `namespace/name` are shown.
    pub filter: &'a str,
    /// Whether the user is typing the filter.
    pub typing: bool,
    /// The order of the pods.
    pub order: PodOrder,
    /// Whether the keys and symbols are explained in place of the node.
    pub help: bool,
    /// The number of pods that the user scrolled past.
    pub skipped: usize,
}

/// A screen, ready to be drawn.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// The lines: no more than the screen has rows, and none wider than the screen.
    pub lines: Vec<Line>,
    /// The number of pods that are visible at once.
    pub page: usize,
    /// The number of pods that are scrolled past. It is limited so that no rows stay empty below the last pod.
    pub skipped: usize,
}

/// Draws `scene` on a screen of `columns` and `rows`. On a small screen, the most important lines stay.
pub fn live(scene: &Scene<'_>, columns: usize, rows: usize) -> Screen {
    let mut page = Page { scene, columns, lines: Vec::new() };
    let (mut pods, mut skipped) = (0, 0);
    match scene.status {
        _ if scene.help => page.help(),
        None => page.no_agent(),
        Some(status) => (pods, skipped) = page.node(status, rows),
    }
    page.foot(rows);
    page.lines.truncate(rows);
    Screen { lines: page.lines, page: pods, skipped }
}

/// Whether the status, which is `older` by now, has something to count down.
pub fn counts_down(status: &Status, older: Duration) -> bool {
    let now = now(status, older);
    let shutdown = run(status);
    let ahead = |then: Option<WallTime>| then.is_some_and(|then| then > now);
    let pods = status.pods.iter().filter(|pod| pod.state == PodState::Terminating);
    let mut holding = status.guard.iter().flat_map(|guard| &guard.pods);
    (shutdown.phase == Phase::Running && ahead(shutdown.deadline))
        || status.notices.iter().any(|notice| ahead(notice.deadline))
        || status.start.iter().any(|start| ahead(start.until))
        || holding.any(|pod| ahead(pod.until))
        || pods.filter_map(|pod| pod.grace_left_seconds).any(|left| left > older.as_secs())
}

/// The current time by the agent's clock, estimated from the status and its age.
fn now(status: &Status, older: Duration) -> WallTime {
    status.time.saturating_add(older).unwrap_or(status.time)
}

struct Page<'a> {
    scene: &'a Scene<'a>,
    columns: usize,
    lines: Vec<Line>,
}

impl Page<'_> {
    /// The screen before the first answer of an agent.
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

    /// The time format for a screen that is not redrawn while nothing changes.
    fn times<'s>(&self, status: &'s Status) -> Times<'s> {
        let now = now(status, self.scene.older);
        Times { status, now, clock: true, brief: self.columns < 60 }
    }

    fn blank(&mut self) {
        self.lines.push(Line::new());
    }

    fn heading(&mut self, text: &str) {
        self.two(vec![span(HEAD, text)], vec![]);
    }

    /// The text with the commands in it as they can be typed.
    fn typed<'t>(&self, text: &'t str) -> Cow<'t, str> {
        by_path(text, self.scene.program)
    }

    /// Adds the text, wrapped to as many lines as it needs.
    fn text(&mut self, style: Style, text: &str) {
        for line in wrap(&clean(&self.typed(text)), Some(self.columns.max(16)), 0) {
            self.two(vec![span(style, line)], vec![]);
        }
    }

    /// Adds a line with one part at the left and one at the right. The right part is dropped if both do not fit.
    fn two(&mut self, left: Line, right: Line) {
        let mut line = cut(left, self.columns);
        let room = self.columns.saturating_sub(width(&line));
        if room > width(&right) {
            line.push(span(PLAIN, " ".repeat(room - width(&right))));
            line.extend(right);
        }
        self.lines.push(line);
    }

    /// A bar of `width` columns for `done` of `all`. It is full only when everything is done.
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
