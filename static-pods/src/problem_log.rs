//! What is wrong with the manifests, said once and never as a flood.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::ManifestProblem;

/// So many problems are named in a minute. Of more, how many they are is said.
pub(super) const MOST: usize = 50;

const MINUTE: Duration = Duration::from_secs(60);

/// Tells the log.
#[derive(Debug, Default)]
pub(super) struct ProblemLog {
    minute: Option<Minute>,
    /// Problems that were not named and of which nothing has been said yet.
    unnamed: HashSet<ManifestProblem>,
}

/// The minute that began with the first problem after a quiet one.
#[derive(Debug)]
struct Minute {
    began: Instant,
    named: usize,
    /// How many there are beside those that were named was said.
    counted: bool,
}

impl ProblemLog {
    /// Says at `at` what is wrong `now` that was not wrong `before`, what was held back a minute ago, and
    /// when nothing is wrong any more.
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
            if minute.named >= MOST {
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
