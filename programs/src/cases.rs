//! `winddown plan … -f` for cases in JSON: reads them, has them answered by the controllers' crates, and prints the answers.

mod lines;
mod read;
mod text;

use std::io::BufRead;
use std::path::Path;

use serde::Serialize;

use super::{CommandError, Exit, Output, OutputFormat, TextFormat};
use read::{CaseKey, Cases};
use winddown_preemption::PlanOptions;

/// A file of cases, by its name for messages.
type CaseFile<'a, I> = (&'a Path, I);

/// Answers the cases of `winddown plan shutdown`.
pub(super) fn shutdown(
    file: CaseFile<'_, impl BufRead>,
    form: OutputFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let form = match form {
        OutputFormat::Json => TextFormat::Json,
        OutputFormat::Yaml => TextFormat::Yaml,
        OutputFormat::Text | OutputFormat::Wide => TextFormat::Text,
    };
    let answer = winddown_shutdown::plan_case;
    answer_each(file, CaseKey("\"pods\""), form, out, answer, text::shutdown)
}

/// Answers the cases of `winddown plan preemption`.
pub(super) fn preemption(
    file: CaseFile<'_, impl BufRead>,
    options: &PlanOptions,
    form: TextFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let answer = |case: &str| winddown_preemption::plan_case(case, options);
    answer_each(file, CaseKey("\"requirements\""), form, out, answer, text::preemption)
}

/// Answers the cases of `winddown plan eviction`; with `explain`, with the figures of all pods.
pub(super) fn eviction(
    file: CaseFile<'_, impl BufRead>,
    explain: bool,
    form: TextFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let answer = |case: &str| winddown_eviction::plan_case(case, explain);
    answer_each(file, CaseKey("\"signal\""), form, out, answer, text::eviction)
}

/// Answers the cases of a file one by one, so that an endless input gives an endless output. A case that cannot be read
/// is reported with its file and line; the others are answered. `text` is an answer for people.
fn answer_each<A: Serialize, E: std::error::Error + Send + Sync + 'static>(
    (file, input): CaseFile<'_, impl BufRead>,
    key: CaseKey,
    form: TextFormat,
    out: &mut Output,
    answer: impl Fn(&str) -> Result<A, E>,
    text: impl Fn(&A) -> Vec<String>,
) -> Result<Exit, CommandError> {
    let mut failed = 0;
    let mut cases = Cases::new(input, key);
    while let Some((line, case)) = cases.next_case()? {
        let answered = match case {
            Ok(case) => answer(case).map_err(anyhow::Error::new),
            Err(error) => Err(anyhow::Error::new(error)),
        };
        match answered {
            Ok(answer) => match form {
                // Not rounded, as the answers of other implementations are not.
                TextFormat::Json => {
                    out.line(&serde_json::to_string(&answer).map_err(anyhow::Error::new)?)?;
                }
                TextFormat::Yaml => out.yaml_document(&answer)?,
                TextFormat::Text => text(&answer).iter().try_for_each(|line| out.line(line))?,
            },
            Err(error) => {
                failed += 1;
                let error = placed(file, line, &error);
                out.progress(&winddown_render::error(&error, "", out.error_color));
            }
        }
    }
    if failed == 0 {
        return Ok(Exit::Success);
    }
    let error = format!("cases that could not be read: {failed}");
    Err(CommandError::message(Exit::Failure, error)
        .with_hint("fix the lines named above; --help says what a case is"))
}

/// Adds the file and line to the `error` of a case that begins in `line`.
fn placed(file: &Path, line: u64, error: &anyhow::Error) -> anyhow::Error {
    let (mut line, mut column) = (line, String::new());
    let told = error.chain().map(|cause| {
        let text = cause.to_string();
        let Some(json) = cause.downcast_ref::<serde_json::Error>() else { return text };
        line += u64::try_from(json.line().saturating_sub(1)).unwrap_or_default();
        column = format!(":{}", json.column());
        // Cut off the position within the case; it is not the position within the file.
        text.rsplit_once(" at line ").map_or(text.clone(), |(what, _)| what.to_owned())
    });
    let mut told: Vec<String> = told.collect();
    let innermost = anyhow::Error::msg(told.pop().unwrap_or_default());
    let said = told.into_iter().rev().fold(innermost, anyhow::Error::context);
    said.context(format!("{}:{line}{column}", file.display()))
}
