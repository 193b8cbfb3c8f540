//! An example of this crate as a program with real pods.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use winddown_control::Client;
use winddown_control::api::Status;

/// Longer than any step takes; only a failure takes this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Away from the login manager of the machine that runs the tests.
pub(crate) const NO_BUS: &str = "unix:path=/nonexistent/bus";

/// The agent and its directory. Dropping it kills the agent and its pods.
pub(crate) struct Agent {
    example: &'static str,
    program: Child,
    pub(crate) directory: tempfile::TempDir,
}

impl Agent {
    /// Starts an example. Cargo builds it before it runs all tests of this crate; before a single test, run `cargo build
    /// --package winddown-node --example EXAMPLE`. `options` follow the directory on its command line.
    pub(crate) fn start(
        example: &'static str,
        pods: &[(&str, i32)],
        options: &[&str],
        bus: &str,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("pods")).unwrap();
        pods.iter().for_each(|(name, priority)| add(directory.path(), name, *priority));
        let program = program(example, directory.path(), options, bus);
        Self { example, program, directory }
    }

    /// Kills the agent and starts another one, with other options.
    #[allow(dead_code, reason = "not every test restarts its agent")]
    pub(crate) fn restart(&mut self, options: &[&str]) {
        self.program.kill().unwrap();
        self.program.wait().unwrap();
        self.program = program(self.example, self.directory.path(), options, NO_BUS);
    }

    #[allow(dead_code, reason = "not every test adds a pod")]
    pub(crate) fn add(&self, name: &str, priority: i32) {
        add(self.directory.path(), name, priority);
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("agent.sock")
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.socket())
    }

    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let mut last = None;
        let client = self.client();
        let asked = tokio::time::timeout(LIMIT, async {
            loop {
                match client.status().await {
                    Ok(status) if is_so(&status) => return status,
                    answer => last = Some(answer),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        match asked.await {
            Ok(status) => status,
            Err(_) => panic!("not {what}: {last:#?}\n{}", self.log()),
        }
    }

    pub(crate) fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, metrics) = answer.split_once("\r\n\r\n").unwrap();
        metrics.to_owned()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

fn program(example: &str, directory: &Path, options: &[&str], bus: &str) -> Child {
    let tests = std::env::current_exe().unwrap();
    let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
    Command::new(tests.ancestors().nth(2).unwrap().join("examples").join(example))
        .arg(directory)
        .args(options)
        .env("DBUS_SYSTEM_BUS_ADDRESS", bus)
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("cargo has built the example")
}

/// Adds the manifest of a pod that runs until it is asked to stop, and 6 s longer if it is `slow`.
fn add(directory: &Path, name: &str, priority: i32) {
    let end = if name == "slow" { "'sleep 6; exit'" } else { "exit" };
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         hostNetwork: true\n  priority: {priority}\n  containers:\n  - name: main\n    image: host\n    \
         command: [sh, -c, \"trap {end} TERM; while :; do sleep 0.05; done\"]\n"
    );
    let pods = directory.join("pods");
    std::fs::write(pods.join(format!(".{name}")), manifest).unwrap();
    std::fs::rename(pods.join(format!(".{name}")), pods.join(format!("{name}.yaml"))).unwrap();
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        end_shims(self.directory.path());
    }
}

/// Kills the shims, which outlive the agent. A shim's container ends with it.
fn end_shims(directory: &Path) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains(directory.to_str().unwrap()) {
            let pid = entry.file_name();
            let _ = Command::new("kill").arg("-9").arg(pid).stderr(Stdio::null()).status();
        }
    }
}
