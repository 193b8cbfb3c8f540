//! `winddown plan eviction`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use super::args::{PlanEvictionArgs, TextFormat};
use super::cases::{CaseError, Cases};
use super::{CommandError, Exit, GlobalArgs, Offline, Output, OutputFormat, ask, status};
use crate::control::Client;
use crate::render::{self, clean};

pub(super) fn run(
    global: &GlobalArgs,
    args: &PlanEvictionArgs,
    offline: &impl Offline,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let Some(file) = args.file.as_deref() else { return ask_agent(global, args, out) };
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

/// What is short on this node, or nearest to it, and who would end for it.
fn ask_agent(
    global: &GlobalArgs,
    args: &PlanEvictionArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    ask::block_on(async {
        let asked = client.eviction_plan(args.signal);
        let plan = ask::patiently(out, status::WAITING, asked).await?;
        match args.output {
            TextFormat::Json => out.json(&plan)?,
            TextFormat::Text => {
                let view = status::view(OutputFormat::Text, out);
                let view = render::View { wide: args.explain, ..view };
                out.text(&render::eviction(&plan, &view))?;
            }
        }
        Ok(Exit::Success)
    })
}

/// Answers case by case, so that an endless input gives an endless output. A case that cannot be read
/// is reported with its line; the others are answered.
fn answer(
    lines: impl BufRead,
    args: &PlanEvictionArgs,
    offline: &impl Offline,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let mut failed = 0;
    let mut cases = Cases::new(lines);
    while let Some((line, case)) = cases.next_case()? {
        let answered = match case {
            Ok(case) => offline.eviction_case(case, args.explain),
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
    order: Vec<String>,
    #[serde(default)]
    pods: Option<Vec<Pod>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    namespace: String,
    name: String,
    priority: i32,
    usage: Option<i64>,
    request: i64,
    exceeds_request: Option<bool>,
    verdict: String,
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
    out.line(&format!("{}: {}", clean(&id), clean(&read.order.join(", "))))?;
    for pod in read.pods.iter().flatten() {
        out.line(&format!("  {}", pod.line()))?;
    }
    Ok(())
}

// === impl Pod ===

impl Pod {
    fn line(&self) -> String {
        let name = format!("{}/{}", clean(&self.namespace), clean(&self.name));
        let usage = self.usage.map_or_else(|| "-".to_owned(), |usage| usage.to_string());
        let (priority, request) = (self.priority, self.request);
        let text = match (self.verdict.as_str(), self.exceeds_request) {
            ("chosen", Some(true)) => "ends: it uses more than it asked for",
            ("chosen", _) => "ends: it comes first of those that can",
            ("critical", _) => "stays: the node cannot do without it",
            ("notMeasured", _) => "stays: what it uses is not known",
            _ => "stays: one pod at a time",
        };
        format!("{name:<30} priority {priority:>10}  uses {usage:>14} of {request:>14}  {text}")
    }
}
