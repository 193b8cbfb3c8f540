//! `winddown status`.

use super::{CommandError, Exit, GlobalArgs, Output, OutputFormat, StatusArgs, ask, watch};
use winddown_control::Client;
use winddown_control::api::Status;
use winddown_render::{self, View};

/// The message while the agent does not answer.
pub(super) const WAITING: &str = "waiting for the agent's answer";

pub(super) async fn run(
    global: &GlobalArgs,
    args: &StatusArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    if args.watch {
        return watch::run(&client, args.output, out).await;
    }
    let status = ask::patiently(out, WAITING, client.status()).await?;
    print(&status, args.output, out)?;
    Ok(Exit::Success)
}

pub(super) fn print(
    status: &Status,
    form: OutputFormat,
    out: &mut Output,
) -> Result<(), CommandError> {
    match form {
        OutputFormat::Json => out.json(status),
        OutputFormat::Yaml => out.yaml(status),
        OutputFormat::Text | OutputFormat::Wide => {
            let text = winddown_render::status(status, &view(form, out));
            out.text(&text)
        }
    }
}

pub(super) fn view(form: OutputFormat, out: &Output) -> View {
    let wide = form == OutputFormat::Wide;
    View { width: out.size().map(|(columns, _)| columns), color: out.color, wide }
}
