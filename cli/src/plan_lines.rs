//! `winddown plan shutdown -f FILE|-` with one case per line.

use std::io::BufRead;

use serde::Deserialize;

use super::lines::Lines;
use super::{CommandError, Exit, Offline, Output, OutputFormat, cases};
use winddown_control::api::PlannedGroup;

/// Plans line by line, so that an endless input gives an endless output. A line that cannot be
/// planned is reported with its number; the others are planned.
pub(super) fn run(
    input: impl BufRead,
    form: OutputFormat,
    offline: &impl Offline,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let mut failed = 0;
    let mut lines = Lines::new(input);
    while let Some(line) = lines.next_line()? {
        let planned = match line {
            Ok(line) if line.trim().is_empty() => continue,
            Ok(line) => offline.plan_line(line.trim()),
            Err(error) => Err(CommandError::new(Exit::Failure, error)),
        };
        match planned {
            Ok(planned) => print(&planned, form, out)?,
            Err(error) => {
                failed += 1;
                let error = error.error.context(format!("line {}", lines.number()));
                out.progress(&winddown_render::error(&error, "", out.error_color));
            }
        }
    }
    if failed == 0 {
        return Ok(Exit::Success);
    }
    Err(CommandError::message(Exit::Failure, format!("lines that could not be planned: {failed}")))
}

#[derive(Deserialize)]
struct Planned {
    #[serde(default)]
    id: serde_json::Value,
    groups: Vec<PlannedGroup>,
}

fn print(planned: &str, form: OutputFormat, out: &mut Output) -> Result<(), CommandError> {
    if form == OutputFormat::Json {
        return out.line(planned.trim_end());
    }
    let read: Planned = serde_json::from_str(planned).map_err(anyhow::Error::new)?;
    if form == OutputFormat::Yaml {
        let value: serde_json::Value = serde_json::from_str(planned).map_err(anyhow::Error::new)?;
        out.line("---")?;
        return out.yaml(&value);
    }
    out.line(&format!("{}:", cases::title(&read.id)))?;
    for line in winddown_render::groups(&read.groups) {
        out.line(&format!("  {line}"))?;
    }
    Ok(())
}
