//! Logs the problems of manifests, each once and with a limit on the rate.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::ManifestProblem;

/// The maximum number of problems that are logged in a minute. Any others are only counted.
pub(super) const MAX_LOGGED_PER_MINUTE: usize = 50;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct ProblemLog {
    minute: Option<Minute>,
    /// Problems that were not logged individually and have not been counted in the log yet.
    unnamed: HashSet<ManifestProblem>,
}

/// The minute that began with the first problem after a quiet period.
#[derive(Debug)]
struct Minute {
    began: Instant,
    named: usize,
    /// Whether the number of further problems was logged.
    counted: bool,
}

impl ProblemLog {
    /// Logs at `at` the problems that exist `now` but not `before`, those held back a minute ago, and when there are no
    /// problems any more.
    pub(super) fn log(&mut self, before: &[ManifestProblem], now: &[ManifestProblem], at: Instant) {
        self.minute.take_if(|minute| at.duration_since(minute.began) >= MINUTE);
        if before != now {
            self.name_new(before, now, at);
        }
        self.count_unnamed(at);
    }

    fn name_new(&mut self, before: &[ManifestProblem], now: &[ManifestProblem], at: Instant) {
        if !self.unnamed.is_empty() {
            let still: HashSet<&ManifestProblem> = now.iter().collect();
            self.unnamed.retain(|problem| still.contains(problem));
        }
        let known: HashSet<&ManifestProblem> = before.iter().collect();
        for problem in now.iter().filter(|problem| !known.contains(problem)) {
            let minute = self.minute.get_or_insert_with(|| Minute::new(at));
            if minute.named >= MAX_LOGGED_PER_MINUTE {
                self.unnamed.insert(problem.clone());
                continue;
            }
            minute.named += 1;
            let kept = if problem.kept { "; its pod stays as it was" } else { "" };
            tracing::warn!(log_kind = "manifestProblem", "{problem}{kept}");
        }
        if now.is_empty() {
            tracing::info!("all manifests can be used again");
        }
    }

    fn count_unnamed(&mut self, at: Instant) {
        if self.unnamed.is_empty() {
            return;
        }
        let minute = self.minute.get_or_insert_with(|| Minute::new(at));
        if std::mem::replace(&mut minute.counted, true) {
            return;
        }
        let more = match std::mem::take(&mut self.unnamed).len() {
            1 => "1 more problem".to_owned(),
            many => format!("{many} more problems"),
        };
        tracing::warn!(
            log_kind = "manifestProblem",
            "{more} in the manifests: `winddown status -o wide` lists them all"
        );
    }
}

// === impl Minute ===

impl Minute {
    fn new(began: Instant) -> Self {
        Self { began, named: 0, counted: false }
    }
}
