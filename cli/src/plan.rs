//! `winddown plan`.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use super::args::TextFormat;
use super::{
    CommandError, Exit, GlobalArgs, Offline, Output, OutputFormat, PlanShutdownArgs, ask,
    plan_lines, status,
};
use winddown_control::Client;
use winddown_control::api::ShutdownPlan;
use winddown_shared::display::duration;

pub(super) fn run(
    global: &GlobalArgs,
    args: &PlanShutdownArgs,
    offline: &impl Offline,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    if let Some(stray) = &args.stray {
        let stray = stray.display();
        let what = format!("{stray}: what is planned for stands behind -f");
        return Err(CommandError::message(Exit::Usage, what)
            .with_hint(format!("winddown plan shutdown -f {stray}")));
    }
    let Some(file) = args.file.as_deref() else {
        let client = Client::new(&global.socket);
        return ask::block_on(async {
            let asked = client.shutdown_plan(args.deadline);
            let mut plan = ask::patiently(out, status::WAITING, asked).await?;
            if let Some((cloud, time)) = notice(global, args, offline) {
                warn(&mut plan, cloud, time, &client.shutdown_plan(Some(time)).await?);
            }
            print(&plan, args.output, out)?;
            Ok(Exit::Success)
        });
    };
    if let Input::Cases(lines) = input(file)? {
        return plan_lines::run(lines, args.output, offline, out);
    }
    let mut plan = offline.plan(global, file, args.deadline)?;
    if let Some((cloud, time)) = notice(global, args, offline) {
        warn(&mut plan, cloud, time, &offline.plan(global, file, Some(time))?);
    }
    print(&plan, args.output, out)?;
    Ok(Exit::Success)
}

/// The notice that the configuration counts on, if no other time is asked for.
fn notice(
    global: &GlobalArgs,
    args: &PlanShutdownArgs,
    offline: &impl Offline,
) -> Option<(&'static str, Duration)> {
    offline.notice(global).filter(|_| args.deadline.is_none())
}

/// Says what a notice of the cloud leaves undone that a shutdown does not.
fn warn(plan: &mut ShutdownPlan, cloud: &str, time: Duration, short: &ShutdownPlan) {
    let more: Vec<String> = short
        .warnings
        .iter()
        .filter(|warning| !plan.warnings.contains(warning))
        .map(|warning| format!("after a notice of {cloud}, {}: {warning}", duration(time)))
        .collect();
    plan.warnings.extend(more);
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
        TextFormat::Yaml => out.yaml(plan),
        TextFormat::Text => {
            let view = status::view(OutputFormat::Text, out);
            out.text(&text(plan, &winddown_render::View { wide: explain, ..view }))
        }
    }
}

/// What stands behind `-f`.
pub(super) enum Input {
    /// A manifest, or a directory of some.
    Manifests,
    /// Cases in JSON, which standard input always holds.
    Cases(Box<dyn BufRead>),
}

/// What of a file tells manifests from cases.
const HEAD: u64 = 64 * 1024;

/// Opens `file`, and tells by its beginning what it holds: cases are JSON objects, each with its pods.
pub(super) fn input(file: &Path) -> Result<Input, CommandError> {
    if file == Path::new("-") {
        return Ok(Input::Cases(Box::new(std::io::stdin().lock())));
    }
    let unreadable = |error| CommandError::unreadable(file, error);
    if std::fs::metadata(file).map_err(unreadable)?.is_dir() {
        return Ok(Input::Manifests);
    }
    let mut reader = BufReader::new(std::fs::File::open(file).map_err(unreadable)?);
    let mut head = Vec::new();
    reader.by_ref().take(HEAD).read_to_end(&mut head).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&head);
    let has = |key: &str| text.contains(key);
    let is_object = text.trim_start().starts_with('{');
    Ok(match is_object && (has("\"pods\"") || !has("\"kind\"")) {
        true => Input::Cases(Box::new(BufReader::new(std::io::Cursor::new(head).chain(reader)))),
        false => Input::Manifests,
    })
}
