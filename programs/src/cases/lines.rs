//! Reads lines of an input that may be endless and may not be text.

use std::io::{self, BufRead, Read};

/// The maximum bytes of one line, and of one case: room for about ten thousand pods.
pub(super) const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// Why a line was rejected. The next one can still be read.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum LineError {
    #[error("longer than {MAX_LINE_BYTES} bytes")]
    Long,
    /// The line is not UTF-8.
    #[error("not UTF-8")]
    NotText,
}

#[derive(Debug)]
pub(super) struct InputLines<R> {
    input: R,
    number: u64,
}

impl<R: BufRead> InputLines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, number: 0 }
    }

    /// Returns the number of the line read last, counted from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Reads the next line, including its line break; `None` at the end of the input.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Result<String, LineError>>> {
        let mut line = Vec::new();
        let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
        let read = self.input.by_ref().take(most).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if read == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
            self.input.skip_until(b'\n')?;
            return Ok(Some(Err(LineError::Long)));
        }
        Ok(Some(String::from_utf8(line).map_err(|_| LineError::NotText)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_does_not_end_is_one_error_and_the_next_is_read() {
        let long = io::repeat(b' ').take(u64::try_from(MAX_LINE_BYTES).unwrap() + 1);
        let input = io::BufReader::new(long.chain(&b"\n{}\n"[..]));
        let mut lines = InputLines::new(input);
        assert_eq!(lines.next_line().unwrap(), Some(Err(LineError::Long)));
        assert_eq!(lines.next_line().unwrap(), Some(Ok("{}\n".to_owned())));
        assert_eq!(lines.number(), 2);
        assert_eq!(lines.next_line().unwrap(), None);
    }
}
