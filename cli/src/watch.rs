//! `winddown status --watch`.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{CommandError, Exit, Output, OutputFormat};
use winddown_control::api::Status;
use winddown_control::{Client, ClientError, Lines};

mod feed;
mod live;
mod terminal;
#[cfg(test)]
mod tests;

/// How long to wait before an agent that went away is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Shows every change until the reader goes away or the process is ended.
///
/// On a terminal it takes the whole screen and waits for an agent that is not there. Elsewhere every
/// change is a line; an agent that is restarted meanwhile is found again, and one that was never
/// there is an error.
pub(super) async fn run(
    client: &Client,
    form: OutputFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let text = matches!(form, OutputFormat::Text | OutputFormat::Wide);
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if text && out.terminal && !dumb {
        return live::run(client, out).await;
    }
    // On a node where nothing happens nothing is written, and a write is how one hears of it else.
    tokio::select! {
        done = lines(client, form, out) => done,
        () = reader_gone() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
    }
}

/// Resolves when standard output is a pipe whose reader is gone. Cancel-safe.
async fn reader_gone() {
    let (printer, gone) = oneshot::channel();
    // A thread of its own, asleep until then, that the end does not wait for. Of files and the like
    // nothing is ever told.
    std::thread::spawn(move || {
        let output = io::stdout();
        let mut output = [PollFd::new(&output, PollFlags::empty())];
        loop {
            match poll(&mut output, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
                Ok(_) => break,
            }
        }
        let _ = printer.send(());
    });
    if gone.await.is_err() {
        std::future::pending::<()>().await;
    }
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
            gone.as_ref().map_or("the agent ended the watch".into(), ToString::to_string).as_str(),
            "waiting for it to come back, Ctrl-C ends this",
            out.error_color,
        ));
        lines = reconnect(client).await?;
    }
}

async fn reconnect(client: &Client) -> Result<Lines, ClientError> {
    loop {
        sleep(RETRY).await;
        match client.watch().await {
            Err(error) if error.may_come_back() => {}
            other => return other,
        }
    }
}

/// What the reader was told.
struct Printer {
    form: OutputFormat,
    last: Option<Status>,
}

impl Printer {
    fn print(&mut self, status: Status, out: &mut Output) -> Result<(), CommandError> {
        match self.form {
            OutputFormat::Json => out.json_line(&status)?,
            OutputFormat::Yaml => {
                out.line("---")?;
                out.yaml(&status)?;
            }
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
