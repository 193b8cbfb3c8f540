//! The table of rounds in a document.

use std::fmt::Write as _;

use super::{Row, Way};

/// The line before the table in a document.
pub const START_OF_TABLE: &str = "<!-- Written by `make chaos KIND=reboots`. -->";
/// The line after the table in a document.
pub const END_OF_TABLE: &str = "<!-- End of the table. -->";

/// A Markdown table with a row per round, after a line with the number of rounds and the seed.
#[must_use]
pub fn table(seed: u64, rows: &[Row]) -> String {
    let mut text = format!(
        "{} reboots in a row, seed {seed}, every one as above.\n\n\
         | # | pods | of them stubborn | way down | fault | up | shutdown | outcome |\n\
         |--:|--:|--:|---|---|--:|--:|---|\n",
        rows.len()
    );
    for (number, row) in (1..).zip(rows) {
        let way = match row.round.way {
            Way::PastLogind => "systemctl start reboot.target",
            way => way.command(),
        };
        let resumed = if row.resumed > 0 { ", taken up again" } else { "" };
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "| {number} | {} | {} | `{way}` | {} | {:.1} s | {:.2} s | {}{resumed} |",
            row.round.pods.len(),
            row.round.stubborn(),
            row.round.fault,
            row.up_after.as_secs_f64(),
            row.took,
            row.outcome,
        );
    }
    text
}
