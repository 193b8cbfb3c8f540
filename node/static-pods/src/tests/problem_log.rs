use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tracing::field::Field;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;
use winddown_shared::WallTime;

use crate::ManifestProblem;
use crate::problem_log::{MAX_LOGGED_PER_MINUTE, ProblemLog};

/// Every event as a line: its level and its message.
struct Lines(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            if field.name() == "message" {
                line.push_str(&format!(" {value:?}"));
            }
        });
        self.0.lock().unwrap().push(line);
    }
}

/// The log under test, and the clock.
struct Ear {
    problem_log: ProblemLog,
    now: Instant,
    before: Vec<ManifestProblem>,
}

impl Ear {
    fn new() -> Self {
        Self { problem_log: ProblemLog::default(), now: Instant::now(), before: Vec::new() }
    }

    /// Returns the log lines after a scan that finds these problems.
    fn hear(&mut self, problems: Vec<ManifestProblem>) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let take = Arc::clone(&lines);
        let log = Lines(take);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(log), || {
            self.problem_log.log(&self.before, &problems, self.now);
        });
        self.before = problems;
        let lines = lines.lock().unwrap();
        lines.clone()
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn broken(files: std::ops::Range<usize>) -> Vec<ManifestProblem> {
    let one = |n| {
        let file = format!("/pods/{n:06}.yaml");
        ManifestProblem::of_file(file, "is empty", false, WallTime::UNIX_EPOCH)
    };
    files.map(one).collect()
}

#[test]
fn a_hundred_thousand_broken_manifests_are_a_screenful_of_lines_and_their_number() {
    let mut ear = Ear::new();
    let told = ear.hear(broken(0..100_000));
    assert_eq!(told.len(), MAX_LOGGED_PER_MINUTE + 1);
    assert_eq!(told[0], "WARN /pods/000000.yaml: is empty");
    assert_eq!(
        told[MAX_LOGGED_PER_MINUTE],
        "WARN 99950 more problems in the manifests: `winddown status -o wide` lists them all"
    );
    for _ in 0..10 {
        ear.wait(20);
        assert_eq!(ear.hear(broken(0..100_000)), [""; 0], "nothing is said again");
    }
    // One more is logged as usual.
    assert_eq!(ear.hear(broken(0..100_001)), ["WARN /pods/100000.yaml: is empty"]);
    assert_eq!(ear.hear(Vec::new()), ["INFO all manifests can be used again"]);
}

#[test]
fn while_they_are_being_copied_their_number_is_said_once_a_minute() {
    let mut ear = Ear::new();
    assert_eq!(ear.hear(broken(0..60)).len(), MAX_LOGGED_PER_MINUTE + 1);
    for seconds in 1..60 {
        ear.wait(1);
        assert_eq!(ear.hear(broken(0..60 + seconds)), [""; 0]);
    }
    ear.wait(1);
    let told = ear.hear(broken(0..119));
    assert_eq!(
        told,
        ["WARN 59 more problems in the manifests: `winddown status -o wide` lists them all"]
    );
}

#[test]
fn what_was_mended_before_its_number_was_said_is_not_counted() {
    let mut ear = Ear::new();
    ear.hear(broken(0..60));
    ear.wait(30);
    assert_eq!(ear.hear(broken(0..90)), [""; 0]);
    assert_eq!(ear.hear(broken(0..61)), [""; 0]);
    ear.wait(30);
    let told = ear.hear(broken(0..61));
    assert_eq!(
        told,
        ["WARN 1 more problem in the manifests: `winddown status -o wide` lists them all"]
    );
}
