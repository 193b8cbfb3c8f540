//! Shows the progress of the run: a bar per group on a terminal, a line per step elsewhere.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr;
use winddown_shared::display::{duration, pod_count};
use winddown_shutdown::{GroupProgress, Progress, ProgressPhase};
use winddown_systemd::stand_in::ShutdownOutcome;

use super::DrillError;
use crate::Output;
use winddown_render::{fit, group_title};

const BAR_COLUMNS: usize = 24;

/// How often the bars are redrawn while nothing happens, to update their clock.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Shows the run until the stand-in's shutdown is over, and returns its outcome.
pub(super) async fn follow(
    mut progress: watch::Receiver<Progress>,
    mut shutdown: JoinHandle<ShutdownOutcome>,
    say: bool,
    out: &mut Output,
) -> Result<Option<ShutdownOutcome>, DrillError> {
    let mut screen = Screen::default();
    loop {
        let now = progress.borrow_and_update().clone();
        if say {
            screen.show(&now, out)?;
        }
        tokio::select! {
            outcome = &mut shutdown => {
                let last = progress.borrow_and_update().clone();
                if say {
                    screen.show(&last, out)?;
                }
                return Ok(outcome.ok());
            }
            Ok(()) = progress.changed() => {}
            () = tokio::time::sleep(REDRAW_INTERVAL), if say && out.draws => {}
        }
    }
}

#[derive(Default)]
struct Screen {
    /// The lines that the next redraw overwrites.
    drawn: usize,
    /// Whether the start and the end of each group were printed; used without bars.
    printed: Vec<(bool, bool)>,
}

impl Screen {
    fn show(&mut self, progress: &Progress, out: &mut Output) -> Result<(), DrillError> {
        if progress.phase == ProgressPhase::Idle {
            return Ok(());
        }
        let size = out.size();
        let bars = progress.groups.iter().filter(|group| group.pods > 0).count();
        // Lines that have left the screen cannot be overwritten.
        if !out.draws || size.is_some_and(|(_, rows)| bars >= rows) {
            return self.print_changes(progress, out);
        }
        self.draw(progress, size.map(|(columns, _)| columns), out)
    }

    fn draw(
        &mut self,
        progress: &Progress,
        columns: Option<usize>,
        out: &mut Output,
    ) -> Result<(), DrillError> {
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        let groups = progress.groups.iter().filter(|group| group.pods > 0);
        self.drawn = 0;
        for group in groups {
            self.drawn += 1;
            text.push_str(&bar(group, columns, out.color));
            text.push_str("\x1b[K\n");
        }
        out.text(&text)?;
        Ok(())
    }

    fn print_changes(&mut self, progress: &Progress, out: &mut Output) -> Result<(), DrillError> {
        self.printed.resize(progress.groups.len(), (false, false));
        for (group, (started, ended)) in progress.groups.iter().zip(&mut self.printed) {
            if group.pods == 0 {
                continue;
            }
            if group.started.is_some() && !*started {
                *started = true;
                out.line(&format!(
                    "{}: {} asked to terminate",
                    title(group),
                    pod_count(group.pods)
                ))?;
            }
            if group.finished.is_some() && !*ended {
                *ended = true;
                out.line(&format!("{}: {}", title(group), result(group)))?;
            }
        }
        Ok(())
    }
}

/// Draws a group in one line that does not wrap, because only then can it be overwritten.
fn bar(group: &GroupProgress, columns: Option<usize>, color: bool) -> String {
    let done = group.ended + group.failed;
    let filled =
        (BAR_COLUMNS * done).checked_div(group.pods).unwrap_or(BAR_COLUMNS).min(BAR_COLUMNS);
    let (paint, plain) = match (color, group.started, group.forced + group.failed) {
        (false, ..) => ("", ""),
        (true, None, _) => ("\x1b[2m", "\x1b[0m"),
        (true, Some(_), 0) => ("\x1b[32m", "\x1b[0m"),
        (true, Some(_), _) => ("\x1b[33m", "\x1b[0m"),
    };
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR_COLUMNS - filled));
    let mut room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(1));
    let parts = [format!("  {:>29}  ", title(group)), bar, format!("  {}", result(group))];
    let [title, bar, result] = parts.map(|part| {
        let part = fit(&part, room).into_owned();
        room = room.saturating_sub(part.width());
        part
    });
    format!("{title}{paint}{bar}{plain}{result}")
}

fn title(group: &GroupProgress) -> String {
    group_title(group.name.as_deref(), group.priority)
}

fn result(group: &GroupProgress) -> String {
    let Some(started) = group.started else { return format!("{} waiting", pod_count(group.pods)) };
    let took = group.finished.unwrap_or_else(Instant::now).duration_since(started);
    let mut text = format!("{} of {} terminated, {}", group.ended, group.pods, duration(took));
    if group.forced > 0 {
        text.push_str(&format!(", {} by SIGKILL", group.forced));
    }
    if group.failed > 0 {
        text.push_str(&format!(", {} left", group.failed));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_narrower_than_the_terminal_so_that_the_next_one_overwrites_it() {
        let now = Some(Instant::now());
        let group = GroupProgress {
            priority: 2_000_000_000,
            name: None,
            pods: 12,
            ended: 11,
            forced: 10,
            failed: 1,
            started: now,
            finished: now,
        };
        for columns in [1, 20, 57, 80, 200] {
            let line = bar(&group, Some(columns), false);
            assert!(line.width() < columns, "{columns}: {line}");
        }
        let whole = bar(&group, None, false);
        assert!(whole.ends_with("  11 of 12 terminated, 0s, 10 by SIGKILL, 1 left"), "{whole}");
    }
}
