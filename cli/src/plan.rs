//! `winddown plan`.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::args::TextFormat;
use super::lines::LONGEST;
use super::{
    CommandError, Exit, GlobalArgs, Offline, Output, OutputFormat, PlanShutdownArgs, ask,
    plan_lines, status,
};
use winddown_control::Client;
use winddown_control::api::ShutdownPlan;

pub(super) fn run(
    global: &GlobalArgs,
    args: &PlanShutdownArgs,
    offline: &impl Offline,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let Some(file) = args.file.as_deref() else {
        let client = Client::new(&global.socket);
        return ask::block_on(async {
            let asked = client.shutdown_plan();
            let plan = ask::patiently(out, status::WAITING, asked).await?;
            print(&plan, args.output, out)?;
            Ok(Exit::Success)
        });
    };
    if let Some(lines) = json_lines(file)? {
        return plan_lines::run(lines, args.output, offline, out);
    }
    print(&offline.plan(global, file)?, args.output, out)?;
    Ok(Exit::Success)
}

fn print(plan: &ShutdownPlan, form: OutputFormat, out: &mut Output) -> Result<(), CommandError> {
    match form {
        OutputFormat::Json => out.json(plan),
        OutputFormat::Yaml => out.yaml(plan),
        OutputFormat::Text | OutputFormat::Wide => {
            let text = winddown_render::plan(plan, &status::view(form, out));
            out.text(&text)
        }
    }
}

/// Prints what the agent answered about preemption or eviction; `explain` shows the pods that stay too.
pub(super) fn show<P: serde::Serialize>(
    plan: &P,
    form: TextFormat,
    explain: bool,
    text: impl FnOnce(&P, &winddown_render::View) -> String,
    out: &mut Output,
) -> Result<(), CommandError> {
    match form {
        TextFormat::Json => out.json(plan),
        TextFormat::Text => {
            let view = status::view(OutputFormat::Text, out);
            out.text(&text(plan, &winddown_render::View { wide: explain, ..view }))
        }
    }
}

/// Opens `file` if it holds JSON lines, which standard input always does; none for manifests.
fn json_lines(file: &Path) -> Result<Option<Box<dyn BufRead>>, CommandError> {
    if file == Path::new("-") {
        return Ok(Some(Box::new(std::io::stdin().lock())));
    }
    let unreadable = |error| CommandError::unreadable(file, error);
    if std::fs::metadata(file).map_err(unreadable)?.is_dir() {
        return Ok(None);
    }
    let mut reader = BufReader::new(std::fs::File::open(file).map_err(unreadable)?);
    let mut first = Vec::new();
    let most = u64::try_from(LONGEST).unwrap_or(u64::MAX);
    reader.by_ref().take(most).read_until(b'\n', &mut first).map_err(unreadable)?;
    let is_case = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&first)
        .is_ok_and(|object| object.contains_key("pods"));
    if !is_case {
        return Ok(None);
    }
    Ok(Some(Box::new(BufReader::new(std::io::Cursor::new(first).chain(reader)))))
}
