//! Reads JSON objects from a stream: one per line, or spread over several lines.

use std::io::{self, BufRead};
use std::path::Path;

use super::lines::{InputLines, LineError, MAX_LINE_BYTES};
use super::{CommandError, Exit, Output};

/// A quoted key that every case of a kind contains. It identifies a line that is a complete case.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaseKey(pub(super) &'static str);

/// Reads cases one by one.
///
/// A line that opens more brackets than it closes continues on the next lines. If one of those is a complete case, the
/// first was cut off: that is an error, and the line is the next case.
#[derive(Debug)]
struct Cases<R> {
    lines: InputLines<R>,
    key: CaseKey,
    case: String,
    /// The line that ended a cut-off case, and starts the next one.
    ahead: Option<String>,
}

/// Answers the cases of a file one by one, so that an endless input gives an endless output. A case that cannot be read
/// is reported with its file and line; the others are answered.
pub(super) fn answer_each(
    (file, input): (&Path, impl BufRead),
    key: CaseKey,
    out: &mut Output,
    mut answer: impl FnMut(&str) -> Result<String, CommandError>,
    mut print: impl FnMut(&str, &mut Output) -> Result<(), CommandError>,
) -> Result<Exit, CommandError> {
    let mut failed = 0;
    let mut cases = Cases::new(input, key);
    while let Some((line, case)) = cases.next_case()? {
        let answered = match case {
            Ok(case) => answer(case),
            Err(error) => Err(CommandError::message(Exit::Failure, error)),
        };
        match answered {
            Ok(answer) => print(&answer, out)?,
            Err(error) => {
                failed += 1;
                let error = placed(file, line, &error.error);
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

/// Prints an answer in JSON as a YAML document.
pub(super) fn document(answer: &str, out: &mut Output) -> Result<(), CommandError> {
    let value: serde_json::Value = serde_json::from_str(answer).map_err(anyhow::Error::new)?;
    out.yaml_document(&value)
}

/// Returns the title of a case for users: its ID, or "plan" without one.
pub(super) fn title(id: &serde_json::Value) -> String {
    let id = match id {
        serde_json::Value::String(id) => id.clone(),
        serde_json::Value::Null => "plan".to_owned(),
        other => other.to_string(),
    };
    winddown_shared::display::clean(&id).into()
}

/// Why a case could not be extracted from the input.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
enum CaseError {
    /// One of its lines was rejected, or the case as a whole is too long.
    #[error(transparent)]
    Line(#[from] LineError),
    /// Brackets are still open at its end.
    #[error("cut off: the object is not closed")]
    Open,
}

/// The nesting inside an object at the end of some text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Depth {
    brackets: i64,
    in_string: bool,
    is_escaped: bool,
}

// === impl Cases ===

impl<R: BufRead> Cases<R> {
    fn new(input: R, key: CaseKey) -> Self {
        Self { lines: InputLines::new(input), key, case: String::new(), ahead: None }
    }

    /// Returns the next case and the number of its first line; `None` at the end of the input.
    fn next_case(&mut self) -> io::Result<Option<(u64, Result<&str, CaseError>)>> {
        self.case.clear();
        let mut depth = Depth::default();
        let mut first = self.lines.number();
        loop {
            let line = match self.ahead.take() {
                Some(line) => Some(Ok(line)),
                None => self.lines.next_line()?,
            };
            let line = match line {
                Some(Ok(line)) => line,
                Some(Err(error)) => return Ok(Some((self.lines.number(), Err(error.into())))),
                None if self.case.is_empty() => return Ok(None),
                None => return Ok(Some((first, Err(CaseError::Open)))),
            };
            if self.case.is_empty() {
                if line.trim().is_empty() {
                    continue;
                }
                first = self.lines.number();
            } else if is_case(&line, self.key) {
                self.ahead = Some(line);
                return Ok(Some((first, Err(CaseError::Open))));
            }
            if self.case.len() + line.len() > MAX_LINE_BYTES {
                return Ok(Some((first, Err(LineError::Long.into()))));
            }
            depth.take(&line);
            self.case.push_str(&line);
            // A string cannot continue on the next line, so an open one also ends the case.
            if depth.brackets <= 0 || depth.in_string {
                return Ok(Some((first, Ok(self.case.trim()))));
            }
        }
    }
}

/// Whether a line is a complete case, not a part of one.
fn is_case(line: &str, key: CaseKey) -> bool {
    let line = line.trim();
    if !line.starts_with('{') || !line.contains(key.0) {
        return false;
    }
    let mut depth = Depth::default();
    depth.take(line);
    depth == Depth::default() && line.ends_with('}')
}

// === impl Depth ===

impl Depth {
    fn take(&mut self, text: &str) {
        for byte in text.bytes() {
            match (self.in_string, byte) {
                (true, _) if self.is_escaped => self.is_escaped = false,
                (true, b'\\') => self.is_escaped = true,
                (_, b'"') => self.in_string = !self.in_string,
                (false, b'{' | b'[') => self.brackets += 1,
                (false, b'}' | b']') => self.brackets -= 1,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIREMENTS: CaseKey = CaseKey("\"requirements\"");

    fn read(text: &str) -> Vec<(u64, Result<String, CaseError>)> {
        read_marked(text, REQUIREMENTS)
    }

    fn read_marked(text: &str, key: CaseKey) -> Vec<(u64, Result<String, CaseError>)> {
        let mut cases = Cases::new(text.as_bytes(), key);
        let mut read = Vec::new();
        while let Some((line, case)) = cases.next_case().unwrap() {
            read.push((line, case.map(str::to_owned)));
        }
        read
    }

    fn whole(line: u64, text: &str) -> (u64, Result<String, CaseError>) {
        (line, Ok(text.to_owned()))
    }

    #[test]
    fn each_line_is_a_case_and_empty_ones_count_but_are_none() {
        assert_eq!(
            read("{\"a\":1}\n\n  \n{\"b\":\"}\"}"),
            [whole(1, "{\"a\":1}"), whole(4, "{\"b\":\"}\"}"),]
        );
        assert_eq!(read(""), []);
    }

    #[test]
    fn an_object_may_be_spread_over_lines() {
        let text = "{\n  \"a\": [\n    {\"x\": \"\\\"}\"}\n  ]\n}\n{\"b\":1}\n";
        let first = text.rsplit_once("{\"b\"").unwrap().0.trim();
        assert_eq!(read(text), [whole(1, first), whole(6, "{\"b\":1}")]);
    }

    #[test]
    fn a_case_that_is_cut_off_does_not_take_the_next_one_with_it() {
        let next = "{\"pods\":[],\"requirements\":[]}";
        assert_eq!(
            read(&format!("{{\"pods\":[\n{next}\n")),
            [(1, Err(CaseError::Open)), whole(2, next),]
        );
        assert_eq!(read("{\"pods\":["), [(1, Err(CaseError::Open))]);
    }

    #[test]
    fn a_case_that_stands_by_itself_is_known_by_what_its_kind_has() {
        let next = "{\"signal\":\"pid.available\",\"pods\":[]}";
        assert_eq!(
            read_marked(&format!("{{\"pods\":[\n{next}\n"), CaseKey("\"signal\"")),
            [(1, Err(CaseError::Open)), whole(2, next)]
        );
    }

    #[test]
    fn what_is_no_object_is_passed_on_as_it_is_and_so_is_an_open_string() {
        assert_eq!(
            read("nonsense\n{\"a\n{}"),
            [whole(1, "nonsense"), whole(2, "{\"a"), whole(3, "{}"),]
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error_of_their_line() {
        let mut cases = Cases::new(&b"{}\n\xff\xfe\n{}\n"[..], REQUIREMENTS);
        assert_eq!(cases.next_case().unwrap(), Some((1, Ok("{}"))));
        assert_eq!(cases.next_case().unwrap(), Some((2, Err(LineError::NotText.into()))));
        assert_eq!(cases.next_case().unwrap(), Some((3, Ok("{}"))));
        assert_eq!(cases.next_case().unwrap(), None);
    }
}
