//! Writes lines to standard error.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use tokio::time::Instant;
use tracing::Level;

use super::Sink;
use super::line::Line;

/// The sink that writes to standard error.
#[derive(Debug)]
pub(super) struct TerminalSink {
    started: Instant,
    colour: bool,
}

impl TerminalSink {
    /// Creates the sink; its timestamps count from now. Colour is used on a terminal unless `NO_COLOR` is set.
    pub(super) fn new() -> Self {
        let colour = std::env::var_os("NO_COLOR").is_none() && std::io::stderr().is_terminal();
        Self { started: Instant::now(), colour }
    }
}

impl Sink for TerminalSink {
    fn write(&self, line: &Line) {
        let text = render(line, self.started.elapsed().as_secs_f64(), self.colour);
        // Ignore a failure: there is no place left to report it.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Formats a line as ` 12.345s WARN text field=value`. For decisions the fields are omitted,
/// because the text contains everything.
pub(super) fn render(line: &Line, seconds: f64, colour: bool) -> String {
    let (level, paint) = match line.level() {
        Level::ERROR => ("ERROR", "\x1b[31m"),
        Level::WARN => (" WARN", "\x1b[33m"),
        Level::INFO => (" INFO", "\x1b[32m"),
        Level::DEBUG => ("DEBUG", "\x1b[34m"),
        Level::TRACE => ("TRACE", "\x1b[35m"),
    };
    let mut text = String::with_capacity(line.text.len() + 32);
    // Writing to a String cannot fail.
    let _ = if colour {
        write!(text, "{seconds:9.3}s {paint}{level}\x1b[0m {}", line.text)
    } else {
        write!(text, "{seconds:9.3}s {level} {}", line.text)
    };
    if line.kind.is_none_or(|kind| !is_decision(kind.phase)) {
        for (name, value) in line.details() {
            let _ = write!(text, " {name}={value}");
        }
    }
    text.push('\n');
    text
}

/// Whether lines of this phase are decisions, which have everything in their text.
fn is_decision(phase: &str) -> bool {
    !matches!(phase, "lock" | "manifests" | "notice" | "runtime" | "cluster")
}
