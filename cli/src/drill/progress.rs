//! Shows the progress of the run: a bar per group on a terminal, a line per step elsewhere.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use winddown_shared::display::{duration, pod_count};
use winddown_shutdown::{GroupProgress, Progress, ProgressPhase};
use winddown_systemd::stand_in::ShutdownOutcome;

use super::DrillError;
use crate::Output;
use winddown_render::group_title;

/// The columns of a bar.
const WIDTH: usize = 24;

/// How often the bars are redrawn while nothing happens, to update their clock.
const REDRAW: Duration = Duration::from_millis(250);

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
            () = tokio::time::sleep(REDRAW), if say && out.terminal => {}
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
        if out.terminal { self.draw(progress, out) } else { self.print_changes(progress, out) }
    }

    fn draw(&mut self, progress: &Progress, out: &mut Output) -> Result<(), DrillError> {
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        let groups = progress.groups.iter().filter(|group| group.pods > 0);
        self.drawn = 0;
        for group in groups {
            self.drawn += 1;
            text.push_str(&bar(group, out.color));
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
                out.line(&format!("{}: {} asked to end", title(group), pod_count(group.pods)))?;
            }
            if group.finished.is_some() && !*ended {
                *ended = true;
                out.line(&format!("{}: {}", title(group), result(group)))?;
            }
        }
        Ok(())
    }
}

fn bar(group: &GroupProgress, color: bool) -> String {
    let done = group.ended + group.failed;
    let filled = (WIDTH * done).checked_div(group.pods).unwrap_or(WIDTH).min(WIDTH);
    let (paint, plain) = match (color, group.started, group.forced + group.failed) {
        (false, ..) => ("", ""),
        (true, None, _) => ("\x1b[2m", "\x1b[0m"),
        (true, Some(_), 0) => ("\x1b[32m", "\x1b[0m"),
        (true, Some(_), _) => ("\x1b[33m", "\x1b[0m"),
    };
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled));
    format!("  {:>29}  {paint}{bar}{plain}  {}", title(group), result(group))
}

fn title(group: &GroupProgress) -> String {
    group_title(group.name.as_deref(), group.priority)
}

/// Describes the progress of a group.
fn result(group: &GroupProgress) -> String {
    let Some(started) = group.started else { return format!("{} waiting", pod_count(group.pods)) };
    let took = group.finished.unwrap_or_else(Instant::now).duration_since(started);
    let mut text = format!("{} of {} ended, {}", group.ended, group.pods, duration(took));
    if group.forced > 0 {
        text.push_str(&format!(", {} by SIGKILL", group.forced));
    }
    if group.failed > 0 {
        text.push_str(&format!(", {} left", group.failed));
    }
    text
}
