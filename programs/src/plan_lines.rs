//! `winddown plan shutdown -f FILE|-` for cases.

use std::io::BufRead;
use std::path::Path;

use serde::Deserialize;

use super::{CommandError, Exit, Output, OutputFormat, cases};
use winddown_control::api::{PlannedGroup, PlannedPod};
use winddown_shutdown::plan_json_line;

/// Plans the cases one by one, so that an endless input gives an endless output.
pub(super) fn run(
    file: &Path,
    input: impl BufRead,
    form: OutputFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let key = cases::CaseKey("\"pods\"");
    let plan = |case: &str| plan_json_line(case).map_err(CommandError::failure);
    cases::answer_each((file, input), key, out, plan, |planned, out| print(planned, form, out))
}

#[derive(Deserialize)]
struct Planned {
    #[serde(default)]
    id: serde_json::Value,
    groups: Vec<PlannedGroup>,
    #[serde(default, rename = "notProtected")]
    not_protected: Vec<PlannedPod>,
}

fn print(planned: &str, form: OutputFormat, out: &mut Output) -> Result<(), CommandError> {
    if form == OutputFormat::Json {
        return out.line(planned.trim_end());
    }
    let read: Planned = serde_json::from_str(planned).map_err(anyhow::Error::new)?;
    if form == OutputFormat::Yaml {
        return cases::document(planned, out);
    }
    out.line(&format!("{}:", cases::title(&read.id)))?;
    for line in winddown_render::groups(&read.groups, &read.not_protected) {
        out.line(&format!("  {line}"))?;
    }
    Ok(())
}
