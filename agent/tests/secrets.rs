//! What pods keep secret is in nothing that the agent says, with the real agent and real processes.

#![allow(clippy::expect_used, clippy::panic, reason = "clippy does not see that helpers are tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

/// In the environment, and in the program's arguments, of every pod.
const SECRET: &str = "correct-horse-battery";

/// Longer than anything here takes; only a failure waits for it.
const LIMIT: Duration = Duration::from_secs(60);

struct Bed {
    root: tempfile::TempDir,
    agent: Child,
}

impl Bed {
    fn start(pods: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let at = |path: &str| root.path().join(path);
        std::fs::create_dir_all(at("etc/winddown/pods")).expect("created");
        std::fs::create_dir_all(at("run/winddown")).expect("created");
        let config = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: process\n\
                      nodeName: n1\nevictionHard: {memory.available: 1Mi}\n";
        std::fs::write(at("etc/winddown/config.yaml"), config).expect("written");
        for (name, container) in pods {
            let manifest = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  hostNetwork: true\n  \
                 terminationGracePeriodSeconds: 5\n  containers:\n  - name: main\n    image: host\n    \
                 env: [{{name: PASSWORD, value: {SECRET}}}]\n    {container}\n"
            );
            std::fs::write(at(&format!("etc/winddown/pods/{name}.yaml")), manifest)
                .expect("written");
        }
        let log = std::fs::File::create(at("log")).expect("a file");
        let mut agent = winddown();
        agent.arg("agent").arg("--root").arg(root.path()).env("WINDDOWN_LOG", "debug");
        let agent = agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        Self { agent: agent.expect("the agent starts"), root }
    }

    /// What a command says, on both streams.
    fn says(&self, arguments: &[&str]) -> String {
        let socket = self.root.path().join("run/winddown/winddown.sock");
        let mut command = winddown();
        command.arg("--socket").arg(socket).args(arguments).stdin(Stdio::null());
        let output = command.output().expect("the program runs");
        let both = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    }

    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        loop {
            let status = self.says(&["status", "-o", "json"]);
            if is_so(&status) {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "never {what}: {status}");
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.says(&["drain", "--timeout", "5s"]);
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn winddown() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("winddown"));
    command
        .env_remove("WINDDOWN_SOCKET")
        .env_remove("WINDDOWN_CONFIG")
        // Never the login manager of the machine that runs the tests.
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus");
    command
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

#[test]
fn what_is_in_a_pods_environment_is_in_no_answer_no_log_and_no_report() {
    let bed = Bed::start(&[
        ("web", "command: [sleep, '3600']"),
        ("broken", "command: [/nonexistent/program]"),
        (
            "hooked",
            "command: [sleep, '3600']\n    lifecycle: {preStop: {exec: {command: ['false']}}}",
        ),
        (
            "probed",
            "command: [sleep, '3600']\n    livenessProbe: {exec: {command: ['false']}, periodSeconds: 1}",
        ),
    ]);
    bed.until("do they run", |status| {
        status.matches("\"Running\"").count() >= 2 && status.contains("nonexistent")
    });
    let mut said: Vec<(String, String)> = Vec::new();
    let mut say = |arguments: &[&str]| said.push((arguments.join(" "), bed.says(arguments)));
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
    say(&["report", "-o", "svg"]);
    say(&["report", "-o", "html"]);
    let log = std::fs::read_to_string(bed.root.path().join("log")).expect("the log");
    assert!(log.contains("web-n1"), "the log says what happened: {log}");
    said.push(("the log".to_owned(), log));
    for (what, text) in &said {
        assert!(!text.is_empty() && !text.contains(SECRET), "{what}: {text}");
    }
    // Where it is needed to start a program again, only root can read it.
    let mut kept = Vec::new();
    for place in ["var", "run"] {
        files(&bed.root.path().join(place), &mut kept);
    }
    assert!(!kept.is_empty());
    for path in kept {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let mode = std::fs::metadata(&path).map_or(0, |meta| meta.permissions().mode());
        let has_it = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
        assert!(!has_it || mode & 0o077 == 0, "{} has mode {mode:o}", path.display());
    }
}
