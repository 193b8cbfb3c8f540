//! Runs commands inside the test process: their output, and the files that they find.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use clap::Parser;
use serde_json::json;
use tempfile::TempDir;
use winddown_shutdown::{ReportStore, ShutdownReport};

use crate::{Cli, CommandError, Exit, Output, dispatch};

/// The output and the exit code of a command.
pub(super) struct Ran {
    pub(super) out: String,
    pub(super) err: String,
    pub(super) exit: Exit,
}

pub(super) fn run(line: &str) -> Ran {
    let cli = Cli::try_parse_from(line.split_whitespace()).expect(line);
    printing(|output| dispatch(&cli, output))
}

/// Runs a command and captures its output.
pub(super) fn printing(command: impl FnOnce(&mut Output) -> Result<Exit, CommandError>) -> Ran {
    let (out, err) = (Sink::default(), Sink::default());
    let mut output = Output::plain(out.clone(), err.clone());
    let result = command(&mut output);
    let exit = output.finish(result);
    Ran { out: out.text(), err: err.text(), exit }
}

#[derive(Clone, Default)]
pub(crate) struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A node without an agent: a configuration, and stored reports.
pub(super) struct World(TempDir);

impl World {
    /// `config` is the content of the configuration, except for the directories.
    pub(super) fn new(config: &str) -> Self {
        let world = Self(TempDir::new().unwrap());
        let kind = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n";
        let state = world.state();
        let text = format!("{kind}stateDirectory: {}\n{config}", state.display());
        std::fs::write(world.0.path().join("config.yaml"), text).unwrap();
        world
    }

    /// Runs `winddown` with this configuration.
    pub(super) fn run(&self, line: &str) -> Ran {
        let config = self.0.path().join("config.yaml");
        run(&format!("winddown --socket /nonexistent --config {} {line}", config.display()))
    }

    /// Stores the report of a run that began `minute` minutes after noon, and returns its ID.
    pub(super) fn keep(&self, minute: u32, boot: &str, trigger: &str, outcome: &str) -> String {
        self.keep_with(minute, boot, trigger, outcome, &json!([]))
    }

    /// The same, with pods.
    pub(super) fn keep_with(
        &self,
        minute: u32,
        boot: &str,
        trigger: &str,
        outcome: &str,
        pods: &serde_json::Value,
    ) -> String {
        let report: ShutdownReport =
            serde_json::from_value(report(minute, boot, trigger, outcome, pods)).unwrap();
        ReportStore::new(self.reports()).write(&report).unwrap();
        report.id()
    }

    /// Leaves the record of a run in which the agent or the machine was stopped, in the state directory's file `name`.
    pub(super) fn leave_record(
        &self,
        name: &str,
        minute: u32,
        boot: &str,
        pods: &serde_json::Value,
    ) {
        let record = json!({
            "version": 1, "sequence": 2, "phase": "ending", "startedBootMs": 1000,
            "report": report(minute, boot, "loginManager", "interrupted", pods),
        });
        std::fs::write(self.state().join(name), record.to_string()).unwrap();
    }

    /// Returns the state directory.
    pub(super) fn state(&self) -> std::path::PathBuf {
        self.0.path().join("state")
    }

    /// Returns the directory of the reports.
    pub(super) fn reports(&self) -> std::path::PathBuf {
        winddown_node::reports::directory(&self.state())
    }
}

/// The report of a run that began `minute` minutes after noon.
fn report(
    minute: u32,
    boot: &str,
    trigger: &str,
    outcome: &str,
    pods: &serde_json::Value,
) -> serde_json::Value {
    json!({
        "apiVersion": "winddown.dev/v1alpha1",
        "kind": "ShutdownReport",
        "version": 1,
        "trigger": trigger,
        "bootId": boot,
        "startedAt": format!("2026-11-20T12:{minute:02}:00Z"),
        "finishedAt": format!("2026-11-20T12:{minute:02}:01Z"),
        "tookSeconds": 1.0,
        "budget": { "requestedSeconds": 30.0, "podsSeconds": 30.0, "reserveSeconds": 2.0 },
        "outcome": outcome,
        "groups": [{
            "priority": 0, "configuredSeconds": 20.0, "allowedSeconds": 20.0,
            "deadlineSeconds": 20.0, "pods": pods,
        }],
    })
}
