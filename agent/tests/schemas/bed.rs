//! A real agent without a bus, and the program that asks it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Longer than anything here takes; only a failure waits for it.
const LIMIT: Duration = Duration::from_secs(60);

/// The agent and its directory. Dropping it ends agent and pods.
pub(crate) struct Bed {
    root: tempfile::TempDir,
    agent: Child,
}

/// The program, out of reach of whatever runs on this machine.
pub(crate) fn winddown() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("winddown"));
    command.env_remove("WINDDOWN_SOCKET").env_remove("WINDDOWN_CONFIG").stdin(Stdio::null());
    command.env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus");
    command
}

/// What a command prints, one JSON value after the other.
pub(crate) fn answers(command: &mut Command) -> Vec<Value> {
    let output = command.output().expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let values: Result<Vec<Value>, _> = values.collect();
    let values = values.expect("JSON");
    assert!(!values.is_empty(), "{command:?} said nothing: {error}");
    values
}

impl Bed {
    /// Two pods that run, one that ended, one that cannot be read; a threshold that is met, and
    /// nobody ended for it.
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let pods = root.path().join("etc/winddown/pods");
        std::fs::create_dir_all(&pods).expect("created");
        let config = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nnodeName: n1\n\
                      shutdownGracePeriod: 20s\nevictionShadow: true\n\
                      evictionHard: {memory.available: 1Ki, nodefs.available: 99.9%}\n\
                      shutdownNotices: {file: /run/winddown/notice}\n";
        std::fs::write(root.path().join("etc/winddown/config.yaml"), config).expect("written");
        for (name, command) in
            [("web", "[sleep, '3600']"), ("dns", "[sleep, '3600']"), ("job", "['true']")]
        {
            let manifest = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\n\
                 spec:\n  hostNetwork: true\n  priority: 10\n  restartPolicy: Never\n  \
                 terminationGracePeriodSeconds: 10\n  containers:\n  - name: main\n    \
                 image: host\n    command: {command}\n"
            );
            std::fs::write(pods.join(format!("{name}.yaml")), manifest).expect("written");
        }
        std::fs::write(pods.join("broken.yaml"), "kind: Pod\n").expect("written");
        let agent = winddown()
            .arg("agent")
            .arg("--root")
            .arg(root.path())
            .arg("--config")
            .arg(root.path().join("etc/winddown/config.yaml"))
            .stderr(Stdio::null())
            .spawn()
            .expect("the agent runs");
        let bed = Self { root, agent };
        bed.wait();
        bed
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// The program, asking this agent.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Command {
        let mut command = winddown();
        command.arg("--socket").arg(self.socket()).args(arguments);
        command.arg("--config").arg(self.root().join("etc/winddown/config.yaml"));
        command
    }

    fn socket(&self) -> PathBuf {
        self.root().join("run/winddown/winddown.sock")
    }

    /// Until both pods run and eviction has looked at the node.
    fn wait(&self) {
        let since = tokio::time::Instant::now();
        loop {
            let output = self.ask(&["status", "-o", "json"]).output().expect("the program runs");
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let pods = status["pods"].as_array().map(Vec::as_slice).unwrap_or_default();
            let running = pods.iter().filter(|pod| pod["phase"] == "Running").count();
            let plan = self.ask(&["plan", "eviction", "-o", "json"]).output().expect("it runs");
            let plan: Value = serde_json::from_slice(&plan.stdout).unwrap_or_default();
            let looked = plan["history"].as_array().is_some_and(|history| !history.is_empty());
            if running == 2 && looked {
                return;
            }
            assert!(since.elapsed() < LIMIT, "{status:#}\n{plan:#}");
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.ask(&["drain", "--timeout", "1s"]).output();
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}
