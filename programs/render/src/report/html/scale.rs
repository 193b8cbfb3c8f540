//! Maps times to positions in the timeline.

use std::time::Duration;

use winddown_shared::display::in_seconds;
use winddown_shutdown::ShutdownReport;

/// The maximum number of ticks.
const MAX_TICKS: u128 = 7;

/// The factor by which a magnified axis extends beyond the last event.
const AXIS_HEADROOM: f64 = 1.12;

/// Limits that are more than this many times as late as the last event are left out, because the events would be
/// indistinguishable.
const MAX_LIMIT_FACTOR: u32 = 4;

/// A linear scale for the times from the signal to its end, which must not be zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale(pub(super) Duration);

/// The times that the picture has to show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// The time of the last event.
    pub(super) used: Duration,
    /// The latest limit.
    pub(super) limit: Duration,
}

// === impl Reach ===

impl Reach {
    pub(super) fn of(report: &ShutdownReport) -> Self {
        let budget = &report.budget;
        let happened = report
            .pods()
            .flat_map(|(_, pod)| [pod.asked, pod.sigterm, pod.exit])
            .chain(report.groups.iter().map(|group| group.ended))
            .flatten();
        let used = happened.chain(report.resumed.iter().copied()).fold(report.took, Duration::max);
        let limits = [budget.delay, report.notice.as_ref().map(|notice| notice.deadline)];
        let limit = limits.into_iter().flatten();
        let limit = limit.fold(budget.pods.saturating_add(budget.reserve), Duration::max);
        Self { used: used.max(Duration::from_millis(10)), limit }
    }

    /// Whether the limits are so late that only the used part is shown.
    pub(super) fn is_magnified(self) -> bool {
        self.limit > self.used.saturating_mul(MAX_LIMIT_FACTOR)
    }

    pub(super) fn end(self) -> Duration {
        let end = if self.is_magnified() {
            self.used.as_secs_f64() * AXIS_HEADROOM
        } else {
            self.used.max(self.limit).as_secs_f64() * 1.02
        };
        Duration::try_from_secs_f64(end).unwrap_or(Duration::MAX)
    }
}

// === impl Scale ===

impl Scale {
    /// The position of `at` in percent of the width; times after the end are at the right edge.
    pub(super) fn percent(self, at: Duration) -> f64 {
        let share = (at.as_secs_f64() / self.0.as_secs_f64()).min(1.0);
        (share * 10_000.0).round() / 100.0
    }

    /// Whether `at` is within the picture.
    pub(super) fn shows(self, at: Duration) -> bool {
        at <= self.0
    }

    /// Round times with their labels, starting at zero.
    pub(super) fn ticks(self) -> Vec<(Duration, String)> {
        let step = step(self.0.as_millis().max(1));
        (0..=MAX_TICKS)
            .map_while(|number| {
                let at = u64::try_from(step.saturating_mul(number)).ok()?;
                let at = Duration::from_millis(at);
                self.shows(at).then(|| (at, label(at, step)))
            })
            .collect()
    }
}

/// The interval of ticks, in milliseconds: a round number of milliseconds, seconds, minutes or hours.
fn step(end: u128) -> u128 {
    const MINUTE: u128 = 60_000;
    let seconds =
        [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 4000, 5000, 10_000, 15_000, 30_000];
    let minutes = [1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440].map(|minutes| minutes * MINUTE);
    let fits = |step: &u128| end / step < MAX_TICKS;
    let known = seconds.into_iter().chain(minutes).find(fits);
    known.unwrap_or_else(|| {
        let days = 1440 * MINUTE;
        (end / MAX_TICKS / days + 1) * days
    })
}

fn label(at: Duration, step: u128) -> String {
    let millis = at.as_millis();
    let seconds = at.as_secs();
    match step {
        _ if millis == 0 => "0".to_owned(),
        60_000.. => match (seconds / 3600, seconds / 60 % 60) {
            (0, minutes) => format!("{minutes} min"),
            (hours, minutes) => format!("{hours} h {minutes:02}"),
        },
        1000.. if seconds >= 60 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        1000.. => format!("{seconds} s"),
        100.. => format!("{:.1} s", at.as_secs_f64()),
        10.. if millis >= 1000 => format!("{:.2} s", at.as_secs_f64()),
        _ => in_seconds(at),
    }
}
