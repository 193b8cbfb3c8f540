//! Rate limiting: no line is logged more than once a minute.
//!
//! # Behaviour
//! The first occurrence of a line is written at once. Repetitions within a minute are held back and counted, and the
//! last one is written when the minute is over, with the count. So the log never ends with a line that is no longer
//! true. Nor does it end with a loss whose return is held back, or the other way round: of lines about the same state
//! ([`LineKind::about`](super::LineKind)), one that says something else than the last one is written at once, up to ten
//! in a minute.
//! For a pod that keeps failing, the interval doubles up to sixteen minutes: with a hundred pods on a dead
//! runtime, one line a minute for each would still be a flood.
//!
//! Two lines are the same if they come from the same place in the program, have the same text and concern the same
//! object: their fields are equal, except for numbers, times and errors, which differ between attempts.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use super::line::Line;

/// How long a repetition is held back at first.
pub(super) const FIRST_WINDOW: Duration = Duration::from_secs(60);

/// The longest such time, for a pod that keeps failing.
const MAX_WINDOW: Duration = Duration::from_secs(16 * 60);

/// How many lines about the same state are written in such a time if each says something else than the one before.
const MAX_CHANGED_LINES: u32 = 10;

/// The number of remembered lines at which expired ones are removed.
const PRUNE_AT: usize = 512;

/// The shortest time between two searches for expired lines, so that a flood does not cause one per line.
const PRUNE_EVERY: Duration = Duration::from_secs(1);

/// The maximum number of remembered lines; further lines are written but not remembered.
const MAX_REMEMBERED_LINES: usize = 4096;

/// Fields whose values differ between attempts.
const CHANGING: [&str; 12] = [
    "after",
    "again_in",
    "attempt",
    "delay",
    "error",
    "given",
    "late",
    "problem",
    "still_running",
    "wait",
    "wanted",
    "why",
];

/// The lines that were logged recently.
#[derive(Debug, Default)]
pub(super) struct RateLimiter {
    said: HashMap<u64, Written>,
    /// When expired lines were last removed.
    pruned: Option<Instant>,
}

#[derive(Debug)]
struct Written {
    written: Instant,
    window: Duration,
    /// What was written last, and how many lines have said something else than the one before since `written`.
    last: u64,
    changes: u32,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    line: Line,
    times: u32,
    last: Instant,
}

#[derive(Debug)]
pub(super) enum LineVerdict {
    Write(Line),
    /// The line is held back until the time that [`RateLimiter::due`] returns.
    Held,
}

impl RateLimiter {
    /// Decides about a line that was just logged.
    pub(super) fn judge(&mut self, line: Line, now: Instant) -> LineVerdict {
        // Debug lines are always written, and so is a change of state, which is new each time.
        let always = line.kind.map_or(line.level() > Level::INFO, |kind| !kind.repeats);
        let about = line.kind.and_then(|kind| kind.about);
        if always && about.is_none() {
            return LineVerdict::Write(line);
        }
        self.prune(now);
        let known = self.said.len();
        let last = key(&line);
        match self.said.entry(about.map_or(last, state)) {
            std::collections::hash_map::Entry::Vacant(free) => {
                if known < MAX_REMEMBERED_LINES {
                    let (window, changes, held) = (FIRST_WINDOW, 0, None);
                    free.insert(Written { written: now, window, last, changes, held });
                }
                LineVerdict::Write(line)
            }
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                let said = entry.get_mut();
                if said.is_over(now) {
                    let same = said.held.take().filter(|held| key(&held.line) == last);
                    let before = same.map_or(0, |held| held.times);
                    said.write(&line, before > 0, now);
                    return LineVerdict::Write(counted(line, before, None));
                }
                let is_change = said.last != last;
                if always || (is_change && said.changes < MAX_CHANGED_LINES) {
                    // What was held back is no longer true.
                    (said.held, said.last) = (None, last);
                    said.changes += u32::from(is_change);
                    let is_last = is_change && !always && said.changes == MAX_CHANGED_LINES;
                    return LineVerdict::Write(if is_last { flapping(line) } else { line });
                }
                let times = said.held.as_ref().map_or(1, |held| held.times.saturating_add(1));
                said.held = Some(Held { line, times, last: now });
                LineVerdict::Held
            }
        }
    }

    /// Returns when the next held-back line must be written.
    pub(super) fn due(&self) -> Option<Instant> {
        let held = self.said.values().filter(|said| said.held.is_some());
        held.map(|said| said.written + said.window).min()
    }

    /// Takes the held-back lines that are due, in the order in which they were last logged.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Line> {
        self.take(now, |said| said.is_over(now))
    }

    /// Takes all held-back lines, because the agent is stopping.
    pub(super) fn take_all(&mut self, now: Instant) -> Vec<Line> {
        self.take(now, |_| true)
    }

    /// Returns the number of remembered lines.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.said.len()
    }

    fn take(&mut self, now: Instant, which: impl Fn(&Written) -> bool) -> Vec<Line> {
        let mut due: Vec<Held> = Vec::new();
        for said in self.said.values_mut().filter(|said| which(said)) {
            if let Some(held) = said.held.take() {
                said.write(&held.line, true, now);
                due.push(held);
            }
        }
        due.sort_by_key(|held| held.last);
        due.into_iter().map(|held| held.into_line(now)).collect()
    }

    fn prune(&mut self, now: Instant) {
        let just_done = self.pruned.is_some_and(|last| now.duration_since(last) < PRUNE_EVERY);
        if self.said.len() < PRUNE_AT || just_done {
            return;
        }
        self.said.retain(|_, said| said.held.is_some() || !said.is_over(now));
        self.pruned = Some(now);
    }
}

// === impl Written ===

impl Written {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.written) >= self.window
    }

    /// Records that `line` is written. `again` says whether it was repeated in the meantime.
    fn write(&mut self, line: &Line, again: bool, now: Instant) {
        self.written = now;
        (self.last, self.changes) = (key(line), 0);
        let of_a_pod = line.kind.is_some() && line.field("uid").is_some();
        self.window =
            if again && of_a_pod { (self.window * 2).min(MAX_WINDOW) } else { FIRST_WINDOW };
    }
}

// === impl Held ===

impl Held {
    fn into_line(self, now: Instant) -> Line {
        let ago = now.duration_since(self.last);
        counted(self.line, self.times.saturating_sub(1), Some(ago))
    }
}

/// Adds to the line how often it was repeated before and, if it was held back, how long ago it was logged.
fn counted(mut line: Line, before: u32, ago: Option<Duration>) -> Line {
    line.repeated = before;
    let more = |n: u32| format!("{n} {} before", if n == 1 { "time" } else { "times" });
    let note = match (before, ago.map(|ago| ago.as_secs())) {
        (0, None) => return line,
        (0, Some(0)) => " (again)".to_owned(),
        (0, Some(ago)) => format!(" (again, {ago}s ago)"),
        (n, None) => format!(" (and {})", more(n)),
        (n, Some(ago)) => format!(" (again, {ago}s ago, and {})", more(n)),
    };
    line.text.push_str(&note);
    line
}

/// Adds to the line that it may soon be no longer true without a word.
fn flapping(mut line: Line) -> Line {
    line.text.push_str(" (changes often: its next state follows within a minute)");
    line
}

fn state(about: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    about.hash(&mut hasher);
    hasher.finish()
}

fn key(line: &Line) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.place.callsite().hash(&mut hasher);
    let about = |name: &str| line.field(name).unwrap_or_default().to_owned();
    match line.kind {
        // All decisions come from the same place, and their text has changing parts.
        Some(kind) if !about("uid").is_empty() || !about("signal").is_empty() => {
            (kind.name, about("uid"), about("signal"), about("reason")).hash(&mut hasher);
        }
        _ => {
            line.text.hash(&mut hasher);
            let lasting = |(name, value): &&(&'static str, String)| {
                !CHANGING.contains(name) && value.parse::<f64>().is_err()
            };
            line.fields.iter().filter(lasting).for_each(|field| field.hash(&mut hasher));
        }
    }
    hasher.finish()
}
