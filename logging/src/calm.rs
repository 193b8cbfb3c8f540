//! Nothing is said more than once a minute.
//!
//! # Behaviour
//! The first line of a kind is written at once. The same line within a minute of it is held back and
//! counted, and the last of those is written when the minute is over, with how often it was said. So
//! the log never ends with a line that is no longer true. What keeps failing for one pod is said less
//! and less often, down to once in sixteen minutes: with a hundred pods on a dead runtime, once a
//! minute for each is still a flood.
//!
//! Two lines are the same if they come from the same place in the program, have the same text and
//! are about the same thing: their fields agree, apart from numbers, times and errors, which
//! differ from one attempt to the next.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use super::line::Line;

/// How long the same is not said again.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// How long that may grow for a pod that keeps failing.
const LONGEST: Duration = Duration::from_secs(16 * 60);

/// So many different lines are remembered before those are looked for whose minute is over.
const PRUNE_AT: usize = 512;

/// How often those are looked for at most: not for each line of a flood.
const PRUNE_EVERY: Duration = Duration::from_secs(1);

/// So many different lines are remembered at all; a line beyond them is written and not remembered.
const MOST: usize = 4096;

/// Fields that differ from one attempt to the next.
const CHANGING: [&str; 12] = [
    "after", "again_in", "attempt", "delay", "error", "given", "late", "left", "problem", "wait",
    "wanted", "why",
];

/// What was said a short time ago.
#[derive(Debug, Default)]
pub(super) struct Calm {
    said: HashMap<u64, Written>,
    /// When lines whose minute is over were last looked for.
    pruned: Option<Instant>,
}

#[derive(Debug)]
struct Written {
    written: Instant,
    window: Duration,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    line: Line,
    times: u32,
    last: Instant,
}

/// What to do with a line.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Write it now.
    Write(Line),
    /// It is held back until the time that [`Calm::due`] says.
    Held,
}

impl Calm {
    /// Judges a line that was said now.
    pub(super) fn judge(&mut self, line: Line, now: Instant) -> Verdict {
        // Who asks for details wants them all; a decision that changes the state is news each time.
        let always = line.kind.map_or(line.level() > Level::INFO, |kind| !kind.repeats);
        if always {
            return Verdict::Write(line);
        }
        self.prune(now);
        let known = self.said.len();
        match self.said.entry(key(&line)) {
            std::collections::hash_map::Entry::Vacant(free) => {
                if known < MOST {
                    free.insert(Written { written: now, window: WINDOW, held: None });
                }
                Verdict::Write(line)
            }
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                let said = entry.get_mut();
                if said.is_over(now) {
                    let before = said.held.take().map_or(0, |held| held.times);
                    said.write(&line, before > 0, now);
                    return Verdict::Write(counted(line, before, None));
                }
                let times = said.held.as_ref().map_or(1, |held| held.times.saturating_add(1));
                said.held = Some(Held { line, times, last: now });
                Verdict::Held
            }
        }
    }

    /// When the next line that is held back is to be written.
    pub(super) fn due(&self) -> Option<Instant> {
        let held = self.said.values().filter(|said| said.held.is_some());
        held.map(|said| said.written + said.window).min()
    }

    /// The lines whose minute is over, in the order in which they were last said.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Line> {
        self.take(now, |said| said.is_over(now))
    }

    /// All lines that are held back: the agent ends.
    pub(super) fn take_all(&mut self, now: Instant) -> Vec<Line> {
        self.take(now, |_| true)
    }

    /// How many lines are remembered.
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

    /// Notes that `line` is written, for something that was said meanwhile (`again`) or was quiet.
    fn write(&mut self, line: &Line, again: bool, now: Instant) {
        self.written = now;
        let of_a_pod = line.kind.is_some() && line.field("uid").is_some();
        self.window = if again && of_a_pod { (self.window * 2).min(LONGEST) } else { WINDOW };
    }
}

// === impl Held ===

impl Held {
    fn into_line(self, now: Instant) -> Line {
        let ago = now.duration_since(self.last);
        counted(self.line, self.times.saturating_sub(1), Some(ago))
    }
}

/// The line, with how often the same was said before it, and how long ago this one was said if it
/// was held back.
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

fn key(line: &Line) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.place.callsite().hash(&mut hasher);
    let about = |name: &str| line.field(name).unwrap_or_default().to_owned();
    match line.kind {
        // All decisions come from one place, and their text holds what changes.
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
