//! Where log lines go: the journal under systemd, standard error elsewhere, never both.

use std::os::unix::fs::MetadataExt;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::time::uptime;
use tracing_subscriber::prelude::*;

/// The environment variable with the level or filter.
pub const LEVEL_VARIABLE: &str = "WINDDOWN_LOG";

/// Starts logging for the agent. Colour is used on a terminal unless `NO_COLOR` is set.
pub fn start() {
    start_at("info");
}

/// Starts logging with a level that [`LEVEL_VARIABLE`] may override.
pub fn start_at(level: &str) {
    // Not EnvFilter: its regular expressions are a twentieth of the program, all of it resident.
    let filter: Targets = std::env::var(LEVEL_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok())
        .or_else(|| level.parse().ok())
        .unwrap_or_default();
    let registry = tracing_subscriber::registry().with(filter);
    let journal = if goes_to_journal() { tracing_journald::layer().ok() } else { None };
    // A second start (tests in one process) keeps the first.
    let _ = match journal {
        Some(journal) => registry.with(journal.with_field_prefix(None)).try_init(),
        None => {
            let lines = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_target(false)
                .with_ansi(colour())
                .with_timer(uptime());
            registry.with(lines).try_init()
        }
    };
}

/// Whether standard error is the stream that systemd connected to the journal.
fn goes_to_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    stream == format!("{}:{}", stderr.dev(), stderr.ino())
}

fn colour() -> bool {
    use std::io::IsTerminal;
    std::env::var_os("NO_COLOR").is_none() && std::io::stderr().is_terminal()
}
