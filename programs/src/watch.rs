//! `winddown status --watch`.

use std::time::Duration;

use tokio::time::sleep;

use super::{CommandError, Exit, Output, OutputFormat};
use winddown_control::api::{Envelope, Status};
use winddown_control::{AnswerLines, Client, ClientError};

pub(super) mod feed;
mod keys;
mod live;
mod terminal;
#[cfg(test)]
mod tests;

/// The pause before connecting again to an agent that went away.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Shows every change until the reader closes the output or the process is terminated.
///
/// On a terminal it uses the whole screen, and waits for an agent that does not run. Elsewhere it
/// prints a line per change; it reconnects to an agent that restarts, but one that does not run at
/// first is an error.
pub(super) async fn run(
    client: &Client,
    form: OutputFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let text = matches!(form, OutputFormat::Text | OutputFormat::Wide);
    if text && out.draws {
        return live::run(client, out).await;
    }
    out.while_read(async |out| lines(client, form, out).await).await
}

async fn lines(
    client: &Client,
    form: OutputFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let mut printer = Printer { form, last: None };
    let mut lines = client.watch().await?;
    loop {
        let gone = match lines.next::<Status>().await {
            Ok(Some(status)) => {
                printer.print(status, out)?;
                continue;
            }
            Ok(None) => None,
            Err(error) if error.may_come_back() => Some(error),
            Err(error) => return Err(error.into()),
        };
        out.progress(&winddown_render::notice(
            gone.as_ref().map_or("the agent closed the watch".into(), ToString::to_string).as_str(),
            "waiting for it to come back, Ctrl-C stops this",
            out.error_color,
        ));
        lines = reconnect(client).await?;
    }
}

async fn reconnect(client: &Client) -> Result<AnswerLines, ClientError> {
    loop {
        sleep(RECONNECT_DELAY).await;
        match client.watch().await {
            Err(error) if error.may_come_back() => {}
            other => return other,
        }
    }
}

/// Prints changes, and remembers the last status.
struct Printer {
    form: OutputFormat,
    last: Option<Status>,
}

impl Printer {
    fn print(&mut self, status: Status, out: &mut Output) -> Result<(), CommandError> {
        match self.form {
            OutputFormat::Json => out.json_line(&Envelope::new(&status))?,
            OutputFormat::Yaml => out.yaml_document(&Envelope::new(&status))?,
            OutputFormat::Text | OutputFormat::Wide => {
                for line in winddown_render::changes(self.last.as_ref(), &status) {
                    out.line(&line)?;
                }
            }
        }
        self.last = Some(status);
        Ok(())
    }
}
