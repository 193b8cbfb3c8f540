//! Reads JSON objects from a stream: one per line, or spread over several lines.

use std::io::{self, BufRead};

use super::lines::{InputLines, LineError, MAX_LINE_BYTES};

/// A quoted key that every case of a kind contains. It identifies a line that is a complete case.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaseKey(pub(super) &'static str);

/// Reads cases one by one.
///
/// A line that opens more brackets than it closes continues on the next lines. If one of those is a complete case, the
/// first was cut off: that is an error, and the line is the next case.
#[derive(Debug)]
pub(super) struct Cases<R> {
    lines: InputLines<R>,
    key: CaseKey,
    case: String,
    /// The line that ended a cut-off case, and starts the next one.
    ahead: Option<String>,
}

/// Why a case could not be extracted from the input.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum UnreadCase {
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
    pub(super) fn new(input: R, key: CaseKey) -> Self {
        Self { lines: InputLines::new(input), key, case: String::new(), ahead: None }
    }

    /// Returns the next case and the number of its first line; `None` at the end of the input.
    pub(super) fn next_case(&mut self) -> io::Result<Option<(u64, Result<&str, UnreadCase>)>> {
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
                None => return Ok(Some((first, Err(UnreadCase::Open)))),
            };
            if self.case.is_empty() {
                if line.trim().is_empty() {
                    continue;
                }
                first = self.lines.number();
            } else if is_case(&line, self.key) {
                self.ahead = Some(line);
                return Ok(Some((first, Err(UnreadCase::Open))));
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

    fn read(text: &str) -> Vec<(u64, Result<String, UnreadCase>)> {
        read_marked(text, REQUIREMENTS)
    }

    fn read_marked(text: &str, key: CaseKey) -> Vec<(u64, Result<String, UnreadCase>)> {
        let mut cases = Cases::new(text.as_bytes(), key);
        let mut read = Vec::new();
        while let Some((line, case)) = cases.next_case().unwrap() {
            read.push((line, case.map(str::to_owned)));
        }
        read
    }

    fn whole(line: u64, text: &str) -> (u64, Result<String, UnreadCase>) {
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
            [(1, Err(UnreadCase::Open)), whole(2, next),]
        );
        assert_eq!(read("{\"pods\":["), [(1, Err(UnreadCase::Open))]);
    }

    #[test]
    fn a_case_that_stands_by_itself_is_known_by_what_its_kind_has() {
        let next = "{\"signal\":\"pid.available\",\"pods\":[]}";
        assert_eq!(
            read_marked(&format!("{{\"pods\":[\n{next}\n"), CaseKey("\"signal\"")),
            [(1, Err(UnreadCase::Open)), whole(2, next)]
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
