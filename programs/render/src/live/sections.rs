//! The sections below the first lines, and how the room is divided among them.

use anstyle::Style;
use winddown_shared::display::clean;

use super::Page;
use crate::eviction::{amount, kind};
use crate::group_state::GroupState;
use crate::line::{Line, span};
use crate::paint::{BAD, DIM, GOOD, PLAIN, WARN};
use crate::rows::run;
use crate::status::problems::{self, StatusProblem};
use crate::{Column, Table, group_title, wrap};
use winddown_control::api::{GroupProgress, Status, ThresholdStatus};

/// The minimum height of a section: its blank line, its heading and one line.
const MIN_SECTION_ROWS: usize = 3;

impl Page<'_> {
    /// Adds the whole node. Returns the number of visible pods and of those above them.
    pub(super) fn node(&mut self, status: &Status, rows: usize) -> (usize, usize) {
        self.head(status, rows);
        let room = rows.saturating_sub(self.lines.len() + self.foot_rows(rows));
        let groups = self.groups(status);
        let short = self.short(status);
        let problems = self.problems(status);
        let decisions = self.decisions(status);
        let parts = [groups.len(), short.len(), problems.len(), decisions.len()];
        let rooms = divide(room, self.chosen(status).len().max(1) + 2, parts);
        let [groups_room, short_room, problems_room, decisions_room] = rooms;
        self.part(groups, groups_room);
        self.part(short, short_room);
        let room = room - rooms.iter().sum::<usize>();
        let mut shown = (0, 0);
        if room > 2 {
            self.blank();
            shown = self.pods(status, room - 1);
        }
        self.part(problems, problems_room);
        self.part_end(decisions, decisions_room);
        shown
    }

    /// Adds the first `room` lines of a section.
    fn part(&mut self, mut lines: Vec<Line>, room: usize) {
        lines.truncate(room);
        self.lines.append(&mut lines);
    }

    /// Adds the blank line and heading of a section, then its newest lines.
    fn part_end(&mut self, mut lines: Vec<Line>, room: usize) {
        if room >= MIN_SECTION_ROWS {
            let over = lines.len().saturating_sub(room);
            lines.drain(2..2 + over);
            self.lines.append(&mut lines);
        }
    }

    /// The groups of a shutdown or a drain with their progress.
    fn groups(&self, status: &Status) -> Vec<Line> {
        let shutdown = run(status);
        let mut groups = shutdown.groups.iter().filter(|group| group.pods > 0).peekable();
        if !shutdown.phase.is_under_way() || groups.peek().is_none() {
            return Vec::new();
        }
        let mut table = Table::new([
            Column::words("GROUP"),
            Column::numbers("TERMINATED"),
            Column::words(""),
            Column::words(""),
        ]);
        for group in groups {
            table.row(self.group(group));
        }
        self.titled(&table)
    }

    /// A table after a blank line.
    fn titled(&self, table: &Table) -> Vec<Line> {
        let mut lines = vec![Line::new()];
        lines.extend(table.on_screen(self.columns));
        lines
    }

    fn group(&self, group: &GroupProgress) -> [(String, Option<Style>); 4] {
        let state = GroupState::of(group);
        let style = match state {
            GroupState::Done => GOOD,
            GroupState::TimeIsOver => BAD,
            GroupState::Ending => WARN,
            GroupState::Waits => DIM,
        };
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let width = if self.columns < 60 { 8 } else { 20 };
        [
            (group_title(group.name.as_deref(), group.priority), None),
            (format!("{}/{}", group.terminated, group.pods), None),
            (self.bar(count(group.terminated), count(group.pods), width), Some(style)),
            (state.as_str().to_owned(), Some(style)),
        ]
    }

    /// The thresholds that are met.
    fn short(&self, status: &Status) -> Vec<Line> {
        let Some(pressure) = &status.pressure else { return Vec::new() };
        let met: Vec<&ThresholdStatus> =
            pressure.thresholds.iter().filter(|one| one.met_for_seconds.is_some()).collect();
        if met.is_empty() {
            return Vec::new();
        }
        let mut table = Table::new([
            Column::words("SIGNAL"),
            Column::numbers("AVAILABLE"),
            Column::numbers("THRESHOLD"),
            Column::words("KIND"),
        ]);
        for one in met {
            table.row([
                (one.signal.clone(), Some(BAD)),
                (amount(&one.signal, &one.available), Some(BAD)),
                (amount(&one.signal, &one.threshold), None),
                (kind(one), None),
            ]);
        }
        self.titled(&table)
    }

    /// The problems and what to do about them, as in `winddown status`.
    fn problems(&self, status: &Status) -> Vec<Line> {
        let found = problems::of(status, false);
        if found.is_empty() {
            return Vec::new();
        }
        let mut part = Page { lines: Vec::new(), ..*self };
        part.blank();
        part.heading(&match found.len() {
            1 => "1 PROBLEM".to_owned(),
            many => format!("{many} PROBLEMS"),
        });
        for StatusProblem { text, next } in found {
            for (n, line) in wrap(&self.typed(&text), Some(self.columns), 2).iter().enumerate() {
                let lead = if n == 0 { span(BAD, "! ") } else { span(PLAIN, "  ") };
                part.two(vec![lead, span(PLAIN, line)], vec![]);
            }
            let next = wrap(&self.typed(&next), Some(self.columns), 4);
            for line in next.iter().filter(|line| !line.is_empty()) {
                part.two(vec![span(DIM, format!("    {line}"))], vec![]);
            }
        }
        part.lines
    }

    /// The latest decisions, one per line, newest last.
    fn decisions(&self, status: &Status) -> Vec<Line> {
        if status.decisions.is_empty() {
            return Vec::new();
        }
        let times = self.times(status);
        let mut part = Page { lines: Vec::new(), ..*self };
        part.blank();
        part.heading("LAST DECISIONS");
        for decision in &status.decisions {
            let when = decision.time.map(|then| times.clock(then)).unwrap_or_default();
            let when = span(DIM, format!("{when:>8}  "));
            part.two(vec![when, span(PLAIN, clean(&decision.text))], vec![]);
        }
        part.lines
    }
}

/// Divides `room` lines among the sections, which need `parts` lines; the pods get the rest and need `pods`. The pods
/// never get everything, because users look for terminating pods, problems and decisions, but no line is left unused.
fn divide(room: usize, pods: usize, parts: [usize; 4]) -> [usize; 4] {
    let most = [room / 2, room / 3, room / 4, room / 3];
    let mut given = [0; 4];
    // A heading and a few pods always fit.
    let mut left = room.saturating_sub(pods.min(6));
    for ((given, wanted), most) in given.iter_mut().zip(parts).zip(most) {
        *given = wanted.min(most).min(left);
        left -= *given;
    }
    let mut spare = left.saturating_sub(pods.saturating_sub(6));
    for (given, wanted) in given.iter_mut().zip(parts) {
        let more = (wanted - *given).min(spare);
        *given += more;
        spare -= more;
    }
    given.map(|lines| if lines < MIN_SECTION_ROWS { 0 } else { lines })
}
