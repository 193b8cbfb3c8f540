//! A real agent with real processes as pods, and the program that asks it: no bus, no cloud, no container
//! runtime.

#![allow(clippy::expect_used, reason = "clippy does not see that helpers are tests")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than anything here takes; only a failure waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

const HEAD: &str =
    "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: process\nnodeName: n1\n";

/// The agent and its directory. Dropping it ends agent and pods.
pub(crate) struct Bed {
    root: tempfile::TempDir,
    agent: Child,
}

/// The program, out of reach of whatever runs on this machine.
pub(crate) fn winddown() -> Command {
    at_a_distance(Command::new(assert_cmd::cargo::cargo_bin!("winddown")))
}

/// The program, out of reach of whatever runs on this machine.
fn at_a_distance(mut command: Command) -> Command {
    command
        .env_remove("WINDDOWN_SOCKET")
        .env_remove("WINDDOWN_CONFIG")
        // Never the login manager of the machine that runs the tests.
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .stdin(Stdio::null());
    command
}

/// The manifest of a pod of one program; `fields` are more fields of its spec, a line each, and
/// `container` those of its container.
pub(crate) fn manifest(name: &str, fields: &str, container: &str) -> String {
    let indented = |text: &str, indent: &str| -> String {
        text.lines().map(|line| format!("{indent}{line}\n")).collect()
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         hostNetwork: true\n{}  containers:\n  - name: main\n    image: host\n{}",
        indented(fields, "  "),
        indented(container, "    ")
    )
}

impl Bed {
    /// An agent of node `n1` with these fields of the configuration and these manifests, by the names of
    /// their files.
    pub(crate) fn start(config: &str, manifests: &[(&str, String)]) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let pods = root.path().join("etc/winddown/pods");
        std::fs::create_dir_all(&pods).expect("created");
        std::fs::create_dir_all(root.path().join("run/winddown")).expect("created");
        let file = root.path().join("etc/winddown/config.yaml");
        std::fs::write(file, format!("{HEAD}{config}")).expect("written");
        for (name, text) in manifests {
            std::fs::write(pods.join(format!("{name}.yaml")), text).expect("written");
        }
        let agent = agent(root.path());
        Self { root, agent }
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.root().join("run/winddown/winddown.sock")
    }

    /// The program, asking this agent.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Command {
        let mut command = winddown();
        command.arg("--socket").arg(self.socket()).args(arguments);
        command.arg("--config").arg(self.root().join("etc/winddown/config.yaml"));
        command
    }

    /// What the agent, and those before it, have logged, details included.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(log(self.root())).expect("the log")
    }

    /// Kills the agent without a word and starts another one.
    pub(crate) fn restart(&mut self) {
        self.agent.kill().expect("killed");
        self.agent.wait().expect("gone");
        self.agent = agent(self.root());
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.ask(&["drain", "--timeout", "1s"]).output();
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn agent(root: &Path) -> Child {
    let log = File::options().create(true).append(true).open(log(root)).expect("a file");
    let mut command = at_a_distance(Command::new(assert_cmd::cargo::cargo_bin!("winddownd")));
    command.arg("--root").arg(root).env("WINDDOWN_LOG", "debug");
    command.stdout(Stdio::null()).stderr(log).spawn().expect("the agent starts")
}

fn log(root: &Path) -> PathBuf {
    root.join("log")
}
