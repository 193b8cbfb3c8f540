//! Secrets of pods never appear in the agent's output, with the real agent and real processes.

#![allow(clippy::expect_used, clippy::panic, reason = "clippy does not see that helpers are tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::{Bed, LIMIT, manifest};

/// A secret in the environment of every pod.
const SECRET: &str = "correct-horse-battery";

const CONFIG: &str = "evictionHard: {memory.available: 1Mi}\n";

fn pod<'a>(name: &'a str, container: &str) -> (&'a str, String) {
    let secret = format!("env: [{{name: PASSWORD, value: {SECRET}}}]\n{container}");
    (name, manifest(name, "terminationGracePeriodSeconds: 5", &secret))
}

/// Returns the output of a command on both streams.
fn says(bed: &Bed, arguments: &[&str]) -> String {
    let output = bed.ask(arguments).output().expect("the program runs");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn until(bed: &Bed, what: &str, is_so: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    loop {
        let status = says(bed, &["status", "-o", "json"]);
        if is_so(&status) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "never {what}: {status}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

fn files(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// Asserts that no file that survives a reboot contains the secret, and that in-memory files with it are readable by
/// root only.
fn is_kept_in_memory_only(bed: &Bed) {
    for place in ["var", "run"] {
        let mut kept = Vec::new();
        files(&bed.root().join(place), &mut kept);
        for path in kept {
            let Ok(bytes) = std::fs::read(&path) else { continue };
            if bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()) {
                let mode = std::fs::metadata(&path).map_or(0, |meta| meta.permissions().mode());
                assert_eq!((place, mode & 0o077), ("run", 0), "{} ({mode:o})", path.display());
            }
        }
    }
}

#[test]
fn what_is_in_a_pods_environment_is_in_no_answer_no_log_and_no_report() {
    let sleep = "command: [sleep, '3600']";
    let hook = "lifecycle: {preStop: {exec: {command: ['false']}}}";
    let probe = "livenessProbe: {exec: {command: ['false']}, periodSeconds: 1}";
    let pods = [
        pod("web", sleep),
        pod("broken", "command: [/nonexistent/program]"),
        pod("hooked", &format!("{sleep}\n{hook}")),
        pod("probed", &format!("{sleep}\n{probe}")),
    ];
    let bed = Bed::start(CONFIG, &pods);
    until(&bed, "do they run", |status| {
        status.matches("\"Running\"").count() >= 2 && status.contains("nonexistent")
    });
    is_kept_in_memory_only(&bed);
    let mut said: Vec<(String, String)> = Vec::new();
    let mut say = |arguments: &[&str]| said.push((arguments.join(" "), says(&bed, arguments)));
    say(&["status"]);
    say(&["status", "-o", "json"]);
    say(&["plan", "shutdown", "-o", "json"]);
    say(&["plan", "preemption", "-o", "json"]);
    say(&["plan", "eviction", "-o", "json"]);
    say(&["config"]);
    say(&["kill", "web-n1"]);
    say(&["drain", "--deadline", "10m"]);
    say(&["report"]);
    say(&["report", "-o", "json"]);
    say(&["report", "-o", "html"]);
    let log = bed.log();
    assert!(log.contains("web-n1"), "the log says what happened: {log}");
    said.push(("the log".to_owned(), log));
    for (what, text) in &said {
        assert!(!text.is_empty() && !text.contains(SECRET), "{what}: {text}");
    }
    // It was not written when the pods terminated either.
    is_kept_in_memory_only(&bed);
}
