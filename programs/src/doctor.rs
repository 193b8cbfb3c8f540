//! `winddown doctor`.

use std::path::Path;
use std::time::Duration;

use super::ask::LAST_THREADS;
use super::output::program_without_name;
use super::status::view;
use super::{CommandError, DoctorArgs, Exit, GlobalArgs, Output, OutputFormat, TextFormat};
use winddown_doctor::{Diagnosis, ObservedNode, Severity};

pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Checks the node, or an image of one, and prints the diagnosis. A check that hangs is a finding.
pub(super) fn run(
    global: &GlobalArgs,
    args: &DoctorArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let root = std::fs::metadata(&args.root);
    if !root.map_err(|error| CommandError::unreadable(&args.root, error))?.is_dir() {
        let what = format!("{}: not a directory", args.root.display());
        let hint = "name the directory that is to become the root, such as a mounted image";
        return Err(CommandError::message(Exit::Failure, what).with_hint(hint));
    }
    let place = ObservedNode {
        live: winddown_install::same_directory(&args.root, Path::new("/")),
        root: args.root.clone(),
        config: global.config.clone(),
        socket: global.socket.clone(),
        ..ObservedNode::this_machine(CHECK_TIMEOUT)
    };
    // The checks need no second thread; those that may hang run on threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let facts = runtime.block_on(winddown_doctor::collect(&place));
    runtime.shutdown_timeout(LAST_THREADS);
    let diagnosis = winddown_doctor::diagnose(&facts);
    let diagnosis = match place.live.then(program_without_name).flatten() {
        Some(program) => diagnosis.typed_by_path(&program),
        None => diagnosis,
    };
    print(&diagnosis, args.output, out)
}

/// Prints the findings; the worst one decides the exit code.
pub(super) fn print(
    diagnosis: &Diagnosis,
    form: TextFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    match form {
        TextFormat::Json => out.json(diagnosis)?,
        TextFormat::Yaml => out.yaml(diagnosis)?,
        TextFormat::Text => {
            let text = winddown_doctor::render(diagnosis, &view(OutputFormat::Text, out));
            out.text(&text)?;
        }
    }
    Ok(match diagnosis.severity {
        Severity::Ok | Severity::Info => Exit::Success,
        Severity::Warning => Exit::Warnings,
        Severity::Problem => Exit::Problems,
    })
}
