//! `winddown status --watch`.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{CommandError, Exit, Output, OutputFormat, status};
use crate::api::Status;
use crate::control::{Client, ClientError};
use crate::render;

/// Ages on a terminal grow old without any change; this often they are drawn anew.
const REDRAW: Duration = Duration::from_secs(5);

/// How long to wait before an agent that went away is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Shows every change until the reader goes away or the process is ended. An agent that is
/// restarted meanwhile is found again; one that was never there is an error.
pub(super) async fn run(
    client: &Client,
    form: OutputFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let mut shown = Shown { form, last: None, cleared: false };
    let mut lines = client.watch().await?;
    loop {
        let redraw_at = Instant::now() + REDRAW;
        let gone = tokio::select! {
            line = lines.next::<Status>() => match line {
                Ok(Some(status)) => {
                    shown.show(status, out)?;
                    continue;
                }
                Ok(None) => None,
                Err(error) if error.is_gone() => Some(error),
                Err(error) => return Err(error.into()),
            },
            () = sleep_until(redraw_at), if shown.redraws(out) => {
                shown.draw(REDRAW, out)?;
                continue;
            }
        };
        out.progress(&render::notice(
            gone.as_ref().map_or("the agent ended the watch".into(), ToString::to_string).as_str(),
            "waiting for it to come back, Ctrl-C ends this",
            out.error_color,
        ));
        lines = reconnect(client).await?;
        shown.cleared = false;
    }
}

async fn reconnect(client: &Client) -> Result<crate::control::Lines, ClientError> {
    loop {
        sleep(RETRY).await;
        match client.watch().await {
            Err(error) if error.is_gone() => {}
            other => return other,
        }
    }
}

/// What the reader has seen.
struct Shown {
    form: OutputFormat,
    last: Option<Status>,
    cleared: bool,
}

impl Shown {
    fn redraws(&self, out: &Output) -> bool {
        out.terminal && self.last.is_some() && self.is_text()
    }

    fn is_text(&self) -> bool {
        matches!(self.form, OutputFormat::Text | OutputFormat::Wide)
    }

    fn show(&mut self, status: Status, out: &mut Output) -> Result<(), CommandError> {
        match self.form {
            OutputFormat::Json => out.json_line(&status)?,
            OutputFormat::Yaml => {
                out.line("---")?;
                out.yaml(&status)?;
            }
            _ if out.terminal => {}
            _ => {
                for line in render::changes(self.last.as_ref(), &status) {
                    out.line(&line)?;
                }
            }
        }
        self.last = Some(status);
        if self.redraws(out) { self.draw(Duration::ZERO, out) } else { Ok(()) }
    }

    /// Draws over the last picture, which has grown older by `older`, without flicker.
    fn draw(&mut self, older: Duration, out: &mut Output) -> Result<(), CommandError> {
        let Some(status) = &mut self.last else { return Ok(()) };
        status.time = status.time.saturating_add(older).unwrap_or(status.time);
        let text = render::status(status, &status::view(self.form, out));
        let rows = out.size().map_or(usize::MAX, |(_, rows)| rows);
        let mut picture = String::from(if self.cleared { "\x1b[H" } else { "\x1b[2J\x1b[H" });
        let lines: Vec<&str> = text.lines().collect();
        let fits = lines.len() < rows;
        let keep = if fits { lines.len() } else { rows.saturating_sub(2) };
        for line in lines.iter().take(keep) {
            picture.push_str(line);
            picture.push_str("\x1b[K\n");
        }
        if !fits {
            picture.push_str(&format!("({} more lines)\x1b[K\n", lines.len() - keep));
        }
        picture.push_str("\x1b[J");
        self.cleared = true;
        out.text(&picture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NodeStatus;
    use crate::cli::tests::Sink;

    fn picture(revision: u64) -> Status {
        let node = NodeStatus { name: format!("edge-{revision}"), ..NodeStatus::default() };
        Status::new("2026-11-20T12:00:00Z".parse().unwrap(), node)
    }

    fn watch(form: OutputFormat, terminal: bool) -> String {
        let sink = Sink::default();
        let mut out = Output::plain(sink.clone(), std::io::sink());
        out.terminal = terminal;
        let mut shown = Shown { form, last: None, cleared: false };
        for revision in 1..=2 {
            shown.show(picture(revision), &mut out).unwrap();
        }
        sink.text()
    }

    #[test]
    fn a_terminal_is_cleared_once_and_then_drawn_over() {
        let text = watch(OutputFormat::Text, true);
        assert!(text.starts_with("\x1b[2J\x1b[Hnode       edge-1,"), "{text:?}");
        assert_eq!(text.matches("\x1b[2J").count(), 1, "{text:?}");
        assert!(text.contains("\x1b[J\x1b[Hnode       edge-2,"), "{text:?}");
        assert!(text.ends_with("\x1b[K\n\x1b[J"), "{text:?}");
    }

    #[test]
    fn a_pipe_gets_one_json_object_per_line_or_one_yaml_document_per_change() {
        let text = watch(OutputFormat::Json, false);
        let read: Vec<Status> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read, [picture(1), picture(2)]);
        let text = watch(OutputFormat::Yaml, false);
        assert_eq!(text.matches("---\n").count(), 2, "{text}");
        let text = watch(OutputFormat::Text, false);
        assert!(!text.contains('\x1b'), "{text:?}");
    }
}
