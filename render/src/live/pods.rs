//! The pods, as many as there is room for.

use std::time::Duration;

use winddown_shared::display::clean;
use winddown_shared::{WAITING_FOR_PREEMPTION, WallTime};

use super::columns::{Cell, Column};
use super::{Look, Page, clock, now};
use crate::PODS_UNKNOWN;
use crate::status::{pod_state, ready};
use winddown_control::api::{PodState, PodStatus, Status};

/// Screens at least this wide show what is seldom asked for.
const WIDE: usize = 110;

impl Page<'_> {
    /// At most `room` lines, the headings included; how many pods they show, and how many are above.
    pub(super) fn pods(&mut self, status: &Status, room: usize) -> (usize, usize) {
        let mut pods: Vec<&PodStatus> = status.pods.iter().collect();
        pods.sort_by(|a, b| {
            (rank(a), a.grace_left_seconds, &a.namespace, &a.name).cmp(&(
                rank(b),
                b.grace_left_seconds,
                &b.namespace,
                &b.name,
            ))
        });
        if pods.is_empty() {
            self.text(Look::Plain, &none(status));
            return (0, 0);
        }
        let ending = pods.iter().any(|pod| pod.grace_left_seconds.is_some());
        let wide = self.columns >= WIDE;
        let mut columns = vec![column("POD", false), column("STATE", false)];
        if ending {
            columns.push(column(if self.columns < 60 { "LEFT" } else { "GRACE LEFT" }, true));
        }
        columns.extend([column("READY", true), column("PRIORITY", true)]);
        columns.extend([column("RESTARTS", true), column("SINCE", true)]);
        if wide {
            columns.extend([column("QOS", false), column("SOURCE", false)]);
        }
        let now = now(status, self.scene.older);
        let rows: Vec<Vec<Cell>> =
            pods.iter().map(|pod| row(pod, now, self.scene.older, ending, wide)).collect();
        let table = self.table(&columns, &rows);
        self.lines.push(self.table_head(&table));
        let left = room.saturating_sub(1);
        // Where not all fit, the last line says so.
        let shown = if rows.len() <= left { rows.len() } else { left.saturating_sub(1) };
        let skipped = self.scene.skipped.min(rows.len() - shown.min(rows.len()));
        for row in rows.iter().skip(skipped).take(shown) {
            self.lines.push(self.table_row(&table, row));
        }
        if shown < rows.len() && left > 0 {
            let below = rows.len() - shown - skipped;
            let said = match (skipped, below) {
                (0, below) => format!("{below} more below"),
                (above, 0) => format!("{above} more above"),
                (above, below) => format!("{above} more above, {below} below"),
            };
            self.text(Look::Dim, &said);
        }
        (shown, skipped)
    }
}

fn column(name: &'static str, right: bool) -> Column {
    Column { name, right }
}

/// Those that are ending first, then those that do not run as they should, then the others.
fn rank(pod: &PodStatus) -> u8 {
    match (pod.state, look(&pod_state(pod))) {
        (PodState::Terminating, _) => 0,
        (PodState::Terminated | PodState::Finished, _) => 4,
        (_, Look::Bad) => 1,
        (_, Look::Warn) => 2,
        _ => 3,
    }
}

fn look(state: &str) -> Look {
    match state {
        "Running" | "Completed" => Look::Plain,
        "Terminating" | "Terminated" | "Waiting" | "Pending" | "Ended" | WAITING_FOR_PREEMPTION => {
            Look::Warn
        }
        _ => Look::Bad,
    }
}

fn row(pod: &PodStatus, now: WallTime, older: Duration, ending: bool, wide: bool) -> Vec<Cell> {
    let plain = |text: String| (clean(&text).into_owned(), Look::Plain);
    let state = pod_state(pod);
    let look = look(&state);
    let mut row = vec![plain(format!("{}/{}", pod.namespace, pod.name))];
    row.push((clean(&state).into_owned(), look));
    if ending {
        let left = pod.grace_left_seconds.map(|left| left.saturating_sub(older.as_secs()));
        row.push(match left {
            None => plain("-".to_owned()),
            Some(0) => ("over".to_owned(), Look::Bad),
            Some(left) => (format!("{left}s"), Look::Warn),
        });
    }
    let since = pod.started_at.map_or_else(|| "-".to_owned(), |then| clock(now, then));
    row.extend([ready(pod), pod.priority.to_string(), pod.restarts.to_string(), since].map(plain));
    if wide {
        row.extend([pod.qos.clone(), pod.source.clone()].map(plain));
    }
    row
}

fn none(status: &Status) -> String {
    match status.manifests.directory.as_str() {
        _ if status.pods_unknown => PODS_UNKNOWN.to_owned(),
        "" => "no pods".to_owned(),
        directory => format!("no pods; put a pod's manifest into {directory} to run it"),
    }
}
