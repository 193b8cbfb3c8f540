//! The live view: draws the agent's status on the whole screen, and handles keys.

use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::feed::{self, FeedEvent};
use super::keys::{Act, LiveControls};
use super::terminal::Terminal;
use crate::end_signals::EndSignals;
use crate::{CommandError, Exit, Output};
use winddown_control::Client;
use winddown_control::api::Status;
use winddown_render::{Scene, counts_down, live};

const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the node until the user types `q` or Ctrl-C, or a signal requests the process to stop.
/// Nothing is drawn while nothing changes and nothing counts down.
pub(super) async fn run(client: &Client, out: &Output) -> Result<Exit, CommandError> {
    let first = client.watch().await;
    // Report an error that a retry cannot fix before taking over the screen.
    let first = match first {
        Err(error) if !error.may_come_back() => return Err(error.into()),
        other => other,
    };
    let mut heard = feed::listen(client, first);
    // Take the terminal first: a background job stops there until it is brought to the foreground, and with these handlers
    // no signal could end it before.
    let mut terminal = Terminal::take(out.color)?;
    let mut ends = EndSignals::all()?;
    let mut resized = signal(SignalKind::window_change())?;
    let mut keys = Some(EventStream::new());
    let mut view = View::new(out.program().map(str::to_owned));
    loop {
        view.draw(&mut terminal)?;
        let act = tokio::select! {
            () = ends.next() => Act::Quit,
            printer = heard.recv() => view.handle(printer)?,
            typed = next_key(&mut keys) => view.key(&typed),
            _ = resized.recv() => Act::Draw,
            () = view.second() => Act::Draw,
        };
        match act {
            Act::Draw => {}
            Act::Stop => terminal.stop_here()?,
            Act::Quit => return Ok(view.exit()),
        }
        // Draw only the latest of the statuses that arrived in the meantime.
        while let Ok(printer) = heard.try_recv() {
            view.handle(Some(printer))?;
        }
    }
}

/// Returns the next event; never resolves without a terminal for input.
async fn next_key(keys: &mut Option<EventStream>) -> Event {
    loop {
        let Some(stream) = keys else { return std::future::pending().await };
        match stream.next().await {
            Some(Ok(event)) => return event,
            Some(Err(_)) | None => *keys = None,
        }
    }
}

/// The state of the screen.
struct View {
    /// See [`Scene::program`].
    program: Option<String>,
    blocks: bool,
    status: Option<Status>,
    /// When `status` was received.
    at: Instant,
    /// Why the agent does not answer, the hint, and since when.
    gone: Option<(String, String, Instant)>,
    controls: LiveControls,
}

impl View {
    fn new(program: Option<String>) -> Self {
        let (status, gone, at) = (None, None, Instant::now());
        Self { program, blocks: speaks_utf8(), status, at, gone, controls: LiveControls::default() }
    }

    fn handle(&mut self, printer: Option<FeedEvent>) -> Result<Act, CommandError> {
        match printer {
            Some(FeedEvent::Status(status)) => {
                (self.status, self.gone, self.at) = (Some(*status), None, Instant::now());
            }
            Some(FeedEvent::Gone(error)) => {
                let since = self.gone.take().map_or_else(Instant::now, |(.., since)| since);
                self.gone = Some((error.to_string(), error.hint(), since));
            }
            Some(FeedEvent::Failed(error)) => return Err(error.into()),
            None => return Ok(Act::Quit),
        }
        Ok(Act::Draw)
    }

    fn key(&mut self, event: &Event) -> Act {
        match event {
            Event::Key(key) => self.controls.press(*key),
            _ => Act::Draw,
        }
    }

    fn draw(&mut self, terminal: &mut Terminal) -> std::io::Result<()> {
        terminal.draw(|columns, rows| {
            let scene = Scene {
                status: self.status.as_ref(),
                older: self.older(),
                gone: self.gone.as_ref().map(|(why, next, _)| (&**why, &**next)),
                program: self.program.as_deref(),
                blocks: self.blocks,
                filter: &self.controls.filter,
                typing: self.controls.typing,
                order: self.controls.order,
                help: self.controls.help,
                skipped: self.controls.skipped,
            };
            let screen = live(&scene, columns, rows);
            (self.controls.skipped, self.controls.page) = (screen.skipped, screen.page);
            screen.lines
        })
    }

    /// Returns the age of the status. It stops growing when the agent goes away, because its later state is unknown.
    fn older(&self) -> Duration {
        match &self.gone {
            Some((.., since)) => since.saturating_duration_since(self.at),
            None => self.at.elapsed(),
        }
    }

    /// Resolves at the next change of a countdown; never without one.
    async fn second(&self) {
        let older = self.older();
        let counting = self.status.as_ref().is_some_and(|status| counts_down(status, older));
        if !counting || self.gone.is_some() {
            return std::future::pending().await;
        }
        sleep_until(self.at + Duration::from_secs(older.as_secs()) + REDRAW_INTERVAL).await;
    }

    /// Returns the exit code, which is an error if the agent never answered.
    fn exit(&self) -> Exit {
        if self.status.is_some() { Exit::Success } else { Exit::AgentUnreachable }
    }
}

/// Whether the locale says that the terminal supports UTF-8.
fn speaks_utf8() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
    let first = set.into_iter().find(|value| !value.is_empty());
    first.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
