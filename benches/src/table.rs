//! The table that is printed, in the form docs/performance.md has it in.

use std::fmt;
use std::time::Duration;

/// What was measured, line by line.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<(&'static str, String, &'static str)>,
}

impl Table {
    pub(crate) fn titled(title: String) -> Self {
        Self { title, rows: Vec::new() }
    }

    /// Adds a line; `target` is what we are after, or empty.
    pub(crate) fn row(&mut self, what: &'static str, measured: String, target: &'static str) {
        self.rows.push((what, measured, target));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.title)?;
        let head = ("what", "measured".to_owned(), "target");
        let all = || std::iter::once(&head).chain(&self.rows);
        let what = all().map(|row| row.0.len()).max().unwrap_or(0);
        let measured = all().map(|row| row.1.len()).max().unwrap_or(0);
        let target = all().map(|row| row.2.len()).max().unwrap_or(0);
        for (line, row) in all().enumerate() {
            writeln!(f, "| {:what$} | {:>measured$} | {:>target$} |", row.0, row.1, row.2)?;
            if line == 0 {
                let rule = |width| "-".repeat(width);
                writeln!(f, "|-{}-|-{}:|-{}:|", rule(what), rule(measured), rule(target))?;
            }
        }
        Ok(())
    }
}

/// Milliseconds with two decimals.
pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

/// Mebibytes with one decimal. Sizes here are far below where a float would lose bytes that show.
pub(crate) fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1024 * 1024);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}
