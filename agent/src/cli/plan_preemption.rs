//! `winddown plan preemption`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use super::args::{PlanPreemptionArgs, TextFormat};
use super::cases::{CaseError, Cases};
use super::{CommandError, Exit, GlobalArgs, Offline, Output, plan_room};
use crate::render::{self, clean};

pub(super) fn run(
    global: &GlobalArgs,
    args: &PlanPreemptionArgs,
    offline: &impl Offline,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let Some(file) = args.file.as_deref() else { return plan_room::run(global, args, out) };
    if file == Path::new("-") {
        return answer(std::io::stdin().lock(), args, offline, out);
    }
    let opened = File::open(file).map_err(|error| {
        let error =
            anyhow::Error::new(error).context(format!("{}: cannot be read", file.display()));
        CommandError::new(Exit::Failure, error)
    })?;
    answer(BufReader::new(opened), args, offline, out)
}

/// Answers case by case, so that an endless input gives an endless output. A case that cannot be read
/// is reported with its line; the others are answered.
fn answer(
    lines: impl BufRead,
    args: &PlanPreemptionArgs,
    offline: &impl Offline,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let mut failed = 0;
    let mut cases = Cases::new(lines);
    while let Some((line, case)) = cases.next_case()? {
        let answered = match case {
            Ok(case) => offline.preemption_case(case, args),
            Err(error @ (CaseError::Long | CaseError::NotText | CaseError::Open)) => {
                Err(CommandError::message(Exit::Failure, error))
            }
        };
        match answered {
            Ok(answer) => print(&answer, args.output, out)?,
            Err(error) => {
                failed += 1;
                let error = error.error.context(format!("line {line}"));
                out.progress(&render::error(&error, "", out.error_color));
            }
        }
    }
    if failed == 0 {
        return Ok(Exit::Success);
    }
    Err(CommandError::message(Exit::Failure, format!("cases that could not be read: {failed}")))
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    id: serde_json::Value,
    victims: Vec<String>,
    error: Option<String>,
    #[serde(default)]
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
struct Candidate {
    name: String,
    namespace: String,
    qos: String,
    priority: Option<i32>,
    distance: f64,
    terminating: bool,
    text: String,
}

fn print(answer: &str, form: TextFormat, out: &mut Output) -> Result<(), CommandError> {
    if form == TextFormat::Json {
        return out.line(answer);
    }
    let read: Answer = serde_json::from_str(answer).map_err(anyhow::Error::new)?;
    let id = match &read.id {
        serde_json::Value::String(id) => id.clone(),
        serde_json::Value::Null => "plan".to_owned(),
        other => other.to_string(),
    };
    let what = match (&read.error, &read.victims[..]) {
        (Some(error), _) => error.clone(),
        (None, []) => "nobody has to end".to_owned(),
        (None, victims) => victims.join(", "),
    };
    out.line(&format!("{}: {}", clean(&id), clean(&what)))?;
    for candidate in &read.candidates {
        out.line(&format!("  {}", candidate.line()))?;
    }
    Ok(())
}

// === impl Candidate ===

impl Candidate {
    fn line(&self) -> String {
        let Self { qos, distance, .. } = self;
        let name = format!("{}/{}", clean(&self.namespace), clean(&self.name));
        let priority = self.priority.map_or_else(|| "-".to_owned(), |p| p.to_string());
        let ending = if self.terminating { ", ending already" } else { "" };
        let text = clean(&self.text);
        format!("{name:<30} {qos:<10} {priority:>10} {distance:>6.3}  {text}{ending}")
    }
}
