//! `winddown doctor`.

use std::path::Path;
use std::time::Duration;

use super::ask::LAST_THREADS;
use super::status::view;
use super::{CommandError, DoctorArgs, Exit, GlobalArgs, Output, OutputFormat, TextFormat};
use winddown_doctor::{Diagnosis, Place, Severity};

/// How long each look of the doctor may take.
const LOOK: Duration = Duration::from_secs(3);

/// Looks at the node, or at an image of one, and judges what is seen. What hangs is a finding.
pub(super) fn run(
    global: &GlobalArgs,
    args: &DoctorArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let root = std::fs::metadata(&args.root);
    if !root.map_err(|error| CommandError::unreadable(&args.root, error))?.is_dir() {
        let what = format!("{}: not a directory", args.root.display());
        return Err(CommandError::message(Exit::Failure, what));
    }
    let place = Place {
        live: winddown_install::same_directory(&args.root, Path::new("/")),
        root: args.root.clone(),
        config: global.config.clone(),
        socket: global.socket.clone(),
        bus: winddown_systemd::Bus::System,
        patience: LOOK,
        wall: winddown_machine::host::wall_clock(),
    };
    // One look each needs no second thread; what hangs has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let facts = runtime.block_on(winddown_doctor::collect(&place));
    runtime.shutdown_timeout(LAST_THREADS);
    print(&Diagnosis::new(facts.node.clone(), winddown_doctor::findings(&facts)), args.output, out)
}

/// Shows what was found; the worst of it decides the exit code.
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
