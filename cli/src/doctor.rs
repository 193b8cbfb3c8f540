//! `winddown doctor`.

use super::status::view;
use super::{
    CommandError, DoctorArgs, Exit, GlobalArgs, Offline, Output, OutputFormat, TextFormat,
};
use winddown_doctor::Severity;

pub(super) fn run(
    global: &GlobalArgs,
    args: &DoctorArgs,
    offline: &impl Offline,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let diagnosis = offline.diagnose(global, args)?;
    match args.output {
        TextFormat::Json => out.json(&diagnosis)?,
        TextFormat::Yaml => out.yaml(&diagnosis)?,
        TextFormat::Text => {
            let text = winddown_doctor::render(&diagnosis, &view(OutputFormat::Text, out));
            out.text(&text)?;
        }
    }
    Ok(match diagnosis.severity {
        Severity::Ok | Severity::Info => Exit::Success,
        Severity::Warning => Exit::Warnings,
        Severity::Problem => Exit::Problems,
    })
}
