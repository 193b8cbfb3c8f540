//! Captures what a part of the program logs on the paused clock, with the time of each line.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;
use winddown_daemon::logging::{Log, USUAL};

/// The log of the current thread while this value exists.
pub(crate) struct Lines {
    said: Arc<Mutex<Vec<(Duration, String)>>>,
    follows: JoinHandle<()>,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Lines {
    /// Captures everything from now on that an agent with the usual level would write.
    pub(crate) fn keep() -> Self {
        Self::keep_at(USUAL)
    }

    /// Captures everything, at all levels.
    pub(crate) fn keep_all() -> Self {
        Self::keep_at("trace")
    }

    fn keep_at(levels: &str) -> Self {
        let said = Arc::new(Mutex::new(Vec::new()));
        let (into, began) = (Arc::clone(&said), Instant::now());
        let log =
            Log::to(move |text| into.lock().unwrap().push((began.elapsed(), text.to_owned())));
        let levels: Targets = levels.parse().unwrap();
        let subscriber = tracing_subscriber::registry().with(levels).with(log.clone());
        let _guard = tracing::subscriber::set_default(subscriber);
        let follows = tokio::spawn(async move {
            let _ = log.follow().await;
        });
        Self { said, follows, _guard }
    }

    /// Returns every line so far, without the count of repetitions.
    pub(crate) fn all(&self) -> Vec<(Duration, String)> {
        let plain = |text: &str| {
            let end = text.find(" (again").or_else(|| text.find(" (and "));
            text[..end.unwrap_or(text.len())].to_owned()
        };
        self.said.lock().unwrap().iter().map(|(at, text)| (*at, plain(text))).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.said.lock().unwrap().len()
    }

    /// Returns the number of lines that contain `text`.
    pub(crate) fn with(&self, text: &str) -> usize {
        self.all().iter().filter(|(_, line)| line.contains(text)).count()
    }

    /// Waits until `text` is logged.
    pub(crate) async fn until(&self, text: &str) {
        let said = async {
            while self.with(text) == 0 {
                tokio::task::yield_now().await;
            }
        };
        let said = tokio::time::timeout(Duration::from_secs(60), said).await;
        assert!(said.is_ok(), "never: {text}\n{}", self.text());
    }

    /// Asserts that no line was logged twice within a minute.
    pub(crate) fn check_calm(&self) {
        let mut last: BTreeMap<String, Duration> = BTreeMap::new();
        for (at, text) in self.all() {
            if let Some(before) = last.insert(text.clone(), at) {
                assert!(at - before >= Duration::from_secs(60), "{before:?} and {at:?}: {text}");
            }
        }
    }

    /// Returns all lines, for the message of a failure.
    pub(crate) fn text(&self) -> String {
        let lines = self.said.lock().unwrap();
        lines.iter().map(|(at, text)| format!("{:8.1} {text}\n", at.as_secs_f64())).collect()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.follows.abort();
    }
}
