//! A real agent with real processes as pods, and the `winddown` program as its client: no bus, no cloud, no container
//! runtime.

#![allow(clippy::expect_used, reason = "clippy does not see that helpers are tests")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::found_by_name::search_path;

/// A timeout longer than anything here takes; only a failure reaches it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

const HEAD: &str =
    "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: process\nnodeName: n1\n";

/// The agent and its directory. Dropping this stops the agent and the pods.
pub(crate) struct Bed {
    root: tempfile::TempDir,
    agent: Child,
}

/// Returns a command for `winddown`, isolated from everything that runs on this machine.
pub(crate) fn winddown() -> Command {
    at_a_distance(Command::new(assert_cmd::cargo::cargo_bin!("winddown")))
}

/// Isolates the command from everything that runs on this machine.
fn at_a_distance(mut command: Command) -> Command {
    command
        .env("PATH", search_path())
        .env_remove("WINDDOWN_SOCKET")
        .env_remove("WINDDOWN_CONFIG")
        // Never the login manager of the machine that runs the tests.
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .stdin(Stdio::null());
    command
}

/// Returns the manifest of a pod with one container; `fields` are additional fields of its spec, one per line, and
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
    /// Starts an agent of node `n1` with these configuration fields and these manifests by file name.
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

    /// Returns a `winddown` command that talks to this agent.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Command {
        let mut command = winddown();
        command.arg("--socket").arg(self.socket()).args(arguments);
        command.arg("--config").arg(self.root().join("etc/winddown/config.yaml"));
        command
    }

    /// Returns the log of this agent and of those before it, including debug lines.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(log(self.root())).expect("the log")
    }

    /// Replaces `old` with `new` in the configuration, which the agent does not read yet.
    pub(crate) fn configure(&self, old: &str, new: &str) {
        let file = self.root().join("etc/winddown/config.yaml");
        let text = std::fs::read_to_string(&file).expect("read").replace(old, new);
        std::fs::write(&file, text).expect("written");
    }

    /// Replaces `old` with `new` in the configuration, and has the agent read it again.
    pub(crate) fn reload(&self, old: &str, new: &str) {
        self.configure(old, new);
        let id = i32::try_from(self.agent.id()).expect("a pid");
        kill_process(Pid::from_raw(id).expect("a pid"), Signal::HUP).expect("sent");
    }

    /// Kills the agent without warning and starts another one.
    pub(crate) fn restart(&mut self) {
        self.without_agent(|_| {});
    }

    /// Kills the agent without warning, and starts another one after this.
    pub(crate) fn without_agent(&mut self, meanwhile: impl FnOnce(&Self)) {
        self.agent.kill().expect("killed");
        self.agent.wait().expect("gone");
        meanwhile(self);
        self.agent = agent(self.root());
    }

    /// Writes a manifest, as a program that replaces files does.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let (file, hidden) = (self.manifest(name), self.manifest(&format!(".{name}")));
        std::fs::write(&hidden, text).expect("written");
        std::fs::rename(hidden, file).expect("moved");
    }

    /// Removes a manifest.
    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.manifest(name)).expect("removed");
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.root().join("etc/winddown/pods").join(format!("{name}.yaml"))
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
