//! `winddown status`.

use super::{CommandError, Exit, GlobalArgs, Output, OutputFormat, StatusArgs, ask, watch};
use winddown_control::Client;
use winddown_control::api::{ApiAnswer, Envelope};
use winddown_render::View;

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
    print(&status, args.output, winddown_render::status, out)?;
    Ok(Exit::Success)
}

/// Prints an answer of the agent in any form.
pub(super) fn print<A: ApiAnswer + serde::Serialize>(
    answer: &A,
    form: OutputFormat,
    text: impl FnOnce(&A, &View) -> String,
    out: &mut Output,
) -> Result<(), CommandError> {
    match form {
        OutputFormat::Json => out.json(&Envelope::new(answer)),
        OutputFormat::Yaml => out.yaml(&Envelope::new(answer)),
        OutputFormat::Text | OutputFormat::Wide => out.text(&text(answer, &view(form, out))),
    }
}

pub(super) fn view(form: OutputFormat, out: &Output) -> View {
    let wide = form == OutputFormat::Wide;
    View { width: out.size().map(|(columns, _)| columns), color: out.color, wide }
}
