//! The table that is printed, in the form docs/performance.md has it in.

use std::fmt;
use std::time::Duration;

/// What was measured, line by line.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<[String; 4]>,
}

impl Table {
    pub(crate) fn titled(title: String) -> Self {
        Self { title, rows: Vec::new() }
    }

    /// Adds a line; `target` is what we are after, or empty.
    pub(crate) fn row(&mut self, what: &str, measured: String, target: &str) {
        self.row_beside(what, measured, target, "");
    }

    /// As [`Self::row`], beside what the kubelet needs.
    pub(crate) fn row_beside(&mut self, what: &str, measured: String, target: &str, kubelet: &str) {
        self.rows.push([what.to_owned(), measured, target.to_owned(), kubelet.to_owned()]);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.title)?;
        let head = ["what", "measured", "target", "kubelet"].map(str::to_owned);
        let width = |column: usize| {
            let cells = std::iter::once(&head).chain(&self.rows);
            cells.map(|row| row[column].len()).max().unwrap_or(0)
        };
        // Without anything in it the last column is left out.
        let columns = if self.rows.iter().all(|row| row[3].is_empty()) { 3 } else { 4 };
        for (line, row) in std::iter::once(&head).chain(&self.rows).enumerate() {
            write!(f, "| {:what$} |", row[0], what = width(0))?;
            for (column, cell) in row.iter().enumerate().take(columns).skip(1) {
                write!(f, " {cell:>width$} |", width = width(column))?;
            }
            writeln!(f)?;
            if line == 0 {
                write!(f, "|-{}-|", "-".repeat(width(0)))?;
                for column in 1..columns {
                    write!(f, "-{}:|", "-".repeat(width(column)))?;
                }
                writeln!(f)?;
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
