//! The table of pods, with as many rows as fit.

use std::cmp::Ordering;
use std::time::Duration;

use anstyle::Style;

use super::Page;
use crate::line::Line;
use crate::paint::{BAD, DIM, PLAIN, WARN};
use crate::priority_of;
use crate::status::{pod_state, ready, state_style};
use crate::times::Times;
use crate::{Column, PODS_UNKNOWN, Table};
use winddown_control::api::{PodState, PodStatus, Status};

/// The screen width from which the less important columns are shown.
const WIDE_SCREEN_COLUMNS: usize = 110;

/// The order of the pods in the live view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodOrder {
    /// Terminating pods by the grace that is left, then pods with problems, then the others.
    #[default]
    Urgency,
    /// By namespace and name.
    Name,
    /// Those that restarted most often first.
    Restarts,
    /// Those that started last first.
    Newest,
}

impl Page<'_> {
    /// The pods that the filter shows.
    pub(super) fn chosen<'s>(&self, status: &'s Status) -> Vec<&'s PodStatus> {
        let filter = self.scene.filter;
        let shows = |pod: &&PodStatus| named(pod).contains(filter);
        status.pods.iter().filter(shows).collect()
    }

    /// Adds at most `room` lines, including the heading. Returns the number of visible pods and of those above them.
    pub(super) fn pods(&mut self, status: &Status, room: usize) -> (usize, usize) {
        let mut pods = self.chosen(status);
        pods.sort_by(|a, b| self.scene.order.compare(a, b));
        if pods.is_empty() {
            self.text(PLAIN, &none(status));
            return (0, 0);
        }
        let ending = pods.iter().any(|pod| pod.grace_left_seconds.is_some());
        let wide = self.columns >= WIDE_SCREEN_COLUMNS;
        let mut columns = vec![Column::words("POD"), Column::words("STATE")];
        if ending {
            columns.push(Column::numbers(if self.columns < 60 { "LEFT" } else { "GRACE LEFT" }));
        }
        columns.extend(["READY", "PRIORITY", "RESTARTS", "SINCE"].map(Column::numbers));
        if wide {
            columns.extend(["QOS", "SOURCE"].map(Column::words));
        }
        let (times, older) = (self.times(status), self.scene.older);
        let mut table = Table::new(columns);
        for pod in &pods {
            table.row(row(pod, times, older, ending, wide));
        }
        // Computed from all rows, so that scrolling moves nothing sideways.
        let mut lines = table.on_screen(self.columns).into_iter();
        self.lines.extend(lines.next());
        let rows: Vec<Line> = lines.collect();
        let left = room.saturating_sub(1);
        // If not all fit, the last line says so.
        let shown = if rows.len() <= left { rows.len() } else { left.saturating_sub(1) };
        let skipped = self.scene.skipped.min(rows.len() - shown.min(rows.len()));
        self.lines.extend(rows.iter().skip(skipped).take(shown).cloned());
        if shown < rows.len() && left > 0 {
            let below = rows.len() - shown - skipped;
            let said = match (skipped, below) {
                (0, below) => format!("{below} more below"),
                (above, 0) => format!("{above} more above"),
                (above, below) => format!("{above} more above, {below} below"),
            };
            let terminates = |pod: &&&PodStatus| pod.state == PodState::Terminating;
            let seen = pods.iter().skip(skipped).take(shown).filter(terminates).count();
            match pods.iter().filter(terminates).count() - seen {
                0 => self.text(DIM, &said),
                hidden => self.text(WARN, &format!("{said}; {hidden} of them terminating")),
            }
        }
        (shown, skipped)
    }
}

// === impl PodOrder ===

impl PodOrder {
    /// The orders, in that in which a key goes through them.
    pub const ALL: [Self; 4] = [Self::Urgency, Self::Name, Self::Restarts, Self::Newest];

    /// The order after this one; the first after the last.
    pub fn next(self) -> Self {
        match self {
            Self::Urgency => Self::Name,
            Self::Name => Self::Restarts,
            Self::Restarts => Self::Newest,
            Self::Newest => Self::Urgency,
        }
    }

    /// The order in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Urgency => "most urgent first",
            Self::Name => "by name",
            Self::Restarts => "most restarts first",
            Self::Newest => "newest first",
        }
    }

    fn compare(self, a: &PodStatus, b: &PodStatus) -> Ordering {
        let first = match self {
            Self::Urgency => (rank(a), a.grace_left_seconds).cmp(&(rank(b), b.grace_left_seconds)),
            Self::Name => Ordering::Equal,
            Self::Restarts => b.restarts.cmp(&a.restarts),
            Self::Newest => b.started_at.cmp(&a.started_at),
        };
        first.then_with(|| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)))
    }
}

/// The sort rank of a pod: terminating pods first, then pods with problems, then the others.
fn rank(pod: &PodStatus) -> u8 {
    match (pod.state, state_style(&pod_state(pod))) {
        (PodState::Terminating, _) => 0,
        (PodState::Terminated | PodState::Finished, _) => 4,
        (_, BAD) => 1,
        (_, WARN) => 2,
        _ => 3,
    }
}

fn row(
    pod: &PodStatus,
    times: Times<'_>,
    older: Duration,
    ending: bool,
    wide: bool,
) -> Vec<(String, Option<Style>)> {
    let state = pod_state(pod);
    let style = state_style(&state);
    let mut row = vec![(named(pod), None), (state, Some(style))];
    if ending {
        let left = pod.grace_left_seconds.map(|left| left.saturating_sub(older.as_secs()));
        row.push(match left {
            None => ("-".to_owned(), None),
            Some(0) => ("over".to_owned(), Some(BAD)),
            Some(left) => (format!("{left}s"), Some(WARN)),
        });
    }
    let since = pod.started_at.map_or_else(|| "-".to_owned(), |then| times.clock(then));
    let numbers = [ready(pod), priority_of(pod), pod.restarts.to_string(), since];
    row.extend(numbers.map(|text| (text, None)));
    if wide {
        row.extend([pod.qos.clone(), pod.source.clone()].map(|text| (text, None)));
    }
    row
}

fn named(pod: &PodStatus) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

fn none(status: &Status) -> String {
    match status.manifests.directory.as_str() {
        _ if !status.pods.is_empty() => "no pod with this text in namespace/name".to_owned(),
        _ if status.pods_unknown => PODS_UNKNOWN.to_owned(),
        _ if status.admission_closed => "no pods".to_owned(),
        "" => "no pods".to_owned(),
        directory => format!("no pods; put a pod's manifest into {directory} to run it"),
    }
}
