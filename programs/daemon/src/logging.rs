//! Logging to the journal under systemd, or else to standard error, but never to both.
//!
//! # Behaviour
//! The same line is not logged more than once a minute (`rate_limit.rs`). In the journal a line has structured fields,
//! and a decision has a `MESSAGE_ID` with a text in the catalog. `docs/reference/logs.md` documents the levels.
//!
//! # Limits
//! Writing never waits for the journal. Spans are ignored: no part of winddown opens one.

mod journal;
mod kinds;
mod line;
mod rate_limit;
mod terminal;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;

use line::Line;
use rate_limit::{LineVerdict, RateLimiter};
use winddown_shared::Mutex;

pub use kinds::{KINDS, LineKind};

/// The environment variable that sets the level or filter.
pub const LEVEL_VARIABLE: &str = "WINDDOWN_LOG";

/// The filter unless [`LEVEL_VARIABLE`] sets one. The warnings of the Kubernetes client only repeat, in its own terms,
/// what its callers log.
pub const USUAL: &str = "info,kube_client=error";

/// The log of this process. Clones share it.
#[derive(Clone)]
pub struct Log(Arc<LogShared>);

struct LogShared {
    sink: Box<dyn Sink>,
    limiter: Mutex<RateLimiter>,
    /// Notified when a line is held back.
    held: Notify,
}

/// The output of a log. `write` must not block for long, because pods are stopped between two lines.
trait Sink: Send + Sync {
    fn write(&self, line: &Line);
}

/// A sink that receives the text of each line, for tests.
struct Texts<F>(F);

/// Starts logging for the agent. Colour is used on a terminal unless `NO_COLOR` is set.
pub fn start() -> Log {
    start_at(USUAL)
}

/// Starts logging with a level that [`LEVEL_VARIABLE`] may override.
pub fn start_at(level: &str) -> Log {
    // Not EnvFilter: its regular expressions would be a twentieth of the program, all of it resident.
    let wanted = std::env::var(LEVEL_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let understood = wanted.as_deref().and_then(filter_of);
    let not_understood = wanted.filter(|_| understood.is_none());
    let filter = understood.or_else(|| level.parse().ok()).unwrap_or_default();
    let journal = if goes_to_journal() {
        journal::JournalSink::at(Path::new(journal::SOCKET)).ok()
    } else {
        None
    };
    let log = match journal {
        Some(journal) => Log::new(journal),
        None => Log::new(terminal::TerminalSink::new()),
    };
    // A second start (by tests in one process) keeps the first log.
    let _ = tracing_subscriber::registry().with(filter).with(log.clone()).try_init();
    if let Some(text) = not_understood {
        let level = level.split(',').next().unwrap_or(level);
        tracing::warn!(
            "{LEVEL_VARIABLE}: `{text}` is not understood, {level} is in effect: write error, warn, \
             info, debug, trace or off, or the like for one part, for example info,winddown_systemd=debug"
        );
    }
    log
}

/// The filter that `text` describes: a level, or one for each part. A word alone that is no level is none: it would be taken
/// for a part, and all others would log nothing.
fn filter_of(text: &str) -> Option<Targets> {
    let is_plain = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    text.parse().ok().filter(|_| text.split(',').all(is_plain))
}

// === impl Log ===

impl Log {
    fn new(sink: impl Sink + 'static) -> Self {
        Self(Arc::new(LogShared {
            sink: Box::new(sink),
            limiter: Mutex::default(),
            held: Notify::new(),
        }))
    }

    /// Creates a log that passes the text of every written line to `take`, for tests. It is a [`Layer`], to be added to
    /// a subscriber.
    pub fn to(take: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self::new(Texts(take))
    }

    /// Writes each held-back line when it is due. Never returns. Cancel-safe.
    pub async fn follow(&self) -> Infallible {
        loop {
            let due = self.0.limiter.lock().due();
            match due {
                None => self.0.held.notified().await,
                // A new line may be due earlier.
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.0.held.notified() => {}
                },
            }
            let due = self.0.limiter.lock().take_due(Instant::now());
            due.iter().for_each(|line| self.0.sink.write(line));
        }
    }

    /// Writes all held-back lines.
    pub fn flush(&self) {
        let held = self.0.limiter.lock().take_all(Instant::now());
        held.iter().for_each(|line| self.0.sink.write(line));
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let verdict = self.0.limiter.lock().judge(Line::of(event), Instant::now());
        match verdict {
            LineVerdict::Write(line) => self.0.sink.write(&line),
            LineVerdict::Held => self.0.held.notify_one(),
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

// === impl Texts ===

impl<F: Fn(&str) + Send + Sync> Sink for Texts<F> {
    fn write(&self, line: &Line) {
        (self.0)(terminal::render(line, 0.0, false).trim_start_matches("    0.000s").trim());
    }
}

/// Whether standard error is the stream that systemd has connected to the journal.
fn goes_to_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    stream == format!("{}:{}", stderr.dev(), stderr.ino())
}
