//! What stands under the first lines, and how much room each part gets.

use ratatui::text::{Line, Span};

use winddown_shared::display::{clean, seconds};

use super::columns::{Cell, Column};
use super::{Look, Page, clock, now};
use crate::group_state::GroupState;
use crate::status::problems::{self, Problem};
use crate::{group_title, wrap};
use winddown_control::api::{GroupProgress, Phase, Status, ThresholdStatus};

/// A part shows its blank line, its heading and a line, or nothing.
const LEAST: usize = 3;

impl Page<'_> {
    /// The whole node; how many pods are seen, and how many are above those.
    pub(super) fn node(&mut self, status: &Status, rows: usize) -> (usize, usize) {
        self.head(status, rows);
        let foot = usize::from(rows >= 8);
        let room = rows.saturating_sub(self.lines.len() + foot);
        let groups = self.groups(status);
        let short = self.short(status);
        let problems = self.problems(status);
        let decisions = self.decisions(status);
        let parts = [groups.len(), short.len(), problems.len(), decisions.len()];
        let rooms = divide(room, status.pods.len().max(1) + 2, parts);
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

    /// The first `room` lines of a part.
    fn part(&mut self, mut lines: Vec<Line<'static>>, room: usize) {
        lines.truncate(room);
        self.lines.append(&mut lines);
    }

    /// Blank line and heading of a part, then its newest lines.
    fn part_end(&mut self, mut lines: Vec<Line<'static>>, room: usize) {
        if room >= LEAST {
            let over = lines.len().saturating_sub(room);
            lines.drain(2..2 + over);
            self.lines.append(&mut lines);
        }
    }

    /// The groups of a shutdown, how far each is.
    fn groups(&self, status: &Status) -> Vec<Line<'static>> {
        let shutdown = &status.shutdown;
        if shutdown.phase == Phase::Idle || shutdown.groups.is_empty() {
            return Vec::new();
        }
        let columns = [
            Column { name: "GROUP", right: false },
            Column { name: "ENDED", right: true },
            Column { name: "", right: false },
            Column { name: "", right: false },
        ];
        let bar = if self.columns < 60 { 8 } else { 20 };
        let rows: Vec<Vec<Cell>> =
            shutdown.groups.iter().map(|group| self.group(group, shutdown.phase, bar)).collect();
        let table = self.table(&columns, &rows);
        let mut lines = vec![Line::default(), self.table_head(&table)];
        lines.extend(rows.iter().map(|row| self.table_row(&table, row)));
        lines
    }

    fn group(&self, group: &GroupProgress, phase: Phase, bar: usize) -> Vec<Cell> {
        let state = GroupState::of(group, phase);
        let look = match state {
            GroupState::Done => Look::Good,
            GroupState::TimeIsOver => Look::Bad,
            GroupState::Ending | GroupState::CalledOff => Look::Warn,
            GroupState::Waits | GroupState::Spared => Look::Dim,
        };
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let title = group_title(group.name.as_deref(), group.priority);
        vec![
            (clean(&title).into_owned(), Look::Plain),
            (format!("{}/{}", group.ended, group.pods), Look::Plain),
            (self.bar(count(group.ended), count(group.pods), bar), look),
            (state.as_str().to_owned(), look),
        ]
    }

    /// The thresholds that are crossed.
    fn short(&self, status: &Status) -> Vec<Line<'static>> {
        let Some(pressure) = &status.pressure else { return Vec::new() };
        let met: Vec<&ThresholdStatus> =
            pressure.thresholds.iter().filter(|one| one.met_seconds.is_some()).collect();
        if met.is_empty() {
            return Vec::new();
        }
        let columns = [
            Column { name: "SHORT OF", right: false },
            Column { name: "LEFT", right: true },
            Column { name: "LEAST", right: true },
            Column { name: "KIND", right: false },
        ];
        let amount = |text: &Option<String>| clean(text.as_deref().unwrap_or("-")).into_owned();
        let rows: Vec<Vec<Cell>> = met
            .iter()
            .map(|one| {
                let kind = match one.hard {
                    true => "hard".to_owned(),
                    false => format!("soft, {}", seconds(one.grace_seconds)),
                };
                vec![
                    (clean(&one.signal).into_owned(), Look::Bad),
                    (amount(&one.available), Look::Bad),
                    (amount(&one.threshold), Look::Plain),
                    (kind, Look::Plain),
                ]
            })
            .collect();
        let table = self.table(&columns, &rows);
        let mut lines = vec![Line::default(), self.table_head(&table)];
        lines.extend(rows.iter().map(|row| self.table_row(&table, row)));
        lines
    }

    /// What is wrong and what to do about it, as `winddown status` says it.
    fn problems(&self, status: &Status) -> Vec<Line<'static>> {
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
        for Problem { text, next } in found {
            for (n, line) in wrap(&text, Some(self.columns), 2).iter().enumerate() {
                let lead = if n == 0 { self.span(Look::Bad, "! ") } else { Span::raw("  ") };
                part.two(vec![lead, self.span(Look::Plain, line)], vec![]);
            }
            for line in wrap(&next, Some(self.columns), 4).iter().filter(|line| !line.is_empty()) {
                part.two(vec![self.span(Look::Dim, &format!("    {line}"))], vec![]);
            }
        }
        part.lines
    }

    /// The last decisions, a line each, the newest last.
    fn decisions(&self, status: &Status) -> Vec<Line<'static>> {
        if status.decisions.is_empty() {
            return Vec::new();
        }
        let now = now(status, self.scene.older);
        let mut part = Page { lines: Vec::new(), ..*self };
        part.blank();
        part.heading("LAST DECISIONS");
        for decision in &status.decisions {
            let when = decision.time.map(|then| clock(now, then)).unwrap_or_default();
            let when = self.span(Look::Dim, &format!("{when:>8}  "));
            part.two(vec![when, self.span(Look::Plain, &clean(&decision.text))], vec![]);
        }
        part.lines
    }
}

/// The lines of `room` that each part gets, which wants so many; the pods get what is left and want
/// `pods`. They never get all, nor do they leave anything unused: what is ending, what is wrong and
/// what was just decided is why one looks.
fn divide(room: usize, pods: usize, parts: [usize; 4]) -> [usize; 4] {
    let most = [room / 2, room / 3, room / 4, room / 3];
    let mut given = [0; 4];
    // A heading and a few pods are always there.
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
    given.map(|lines| if lines < LEAST { 0 } else { lines })
}
