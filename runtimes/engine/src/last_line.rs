//! The last line of a container's output, which often says why it exited.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use winddown_host::OneThread;
use winddown_shared::display::truncated;
use winddown_shim::log;

/// How long the end of a log may take to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest line that is reported, in bytes.
const LONGEST_LINE: usize = 512;

/// Reads the last lines of logs, one at a time: a disk that hangs takes one thread, and a report lacks the line.
#[derive(Debug, Default)]
pub(crate) struct LastLines(OneThread);

impl LastLines {
    /// The last line of the log; none if it has none, or cannot be read in time.
    pub(crate) async fn of(&self, log: PathBuf) -> Option<Arc<str>> {
        let read = self.0.run(move |()| log::tail(&log).ok());
        let text = timeout(READ_TIMEOUT, read).await.ok()?.ok()??;
        last_line(&text)
    }
}

/// The last line of `text` that is not blank, or the start of a long one.
pub(crate) fn last_line(text: &str) -> Option<Arc<str>> {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    if line.len() <= LONGEST_LINE {
        return Some(line.into());
    }
    let start = truncated(line, LONGEST_LINE);
    Some(format!("{start}…").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_last_that_says_anything_and_is_no_book() {
        assert_eq!(last_line(""), None);
        assert_eq!(last_line("\n \n"), None);
        assert_eq!(last_line("one\n two \n\n").as_deref(), Some("two"));
        let long = last_line(&"é".repeat(10_000)).unwrap();
        assert!(long.len() < LONGEST_LINE + 4 && long.ends_with("é…"), "{}", long.len());
    }
}
