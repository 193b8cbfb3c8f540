//! The program `examples/agent.rs`, which README.md shows: its pods end for each reason that it has controllers for.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use winddown_control::Client;
use winddown_control::api::{PodState, PodStatus, Status};
use winddown_shared::ShutdownKind;
use winddown_systemd::stand_in::StandIn;

/// Longer than any step takes; only a failure takes this long.
const LIMIT: Duration = Duration::from_secs(60);

/// A bus without a login manager, where a stand-in may take its place.
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=@SOCKET@</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/>
    <allow send_destination="*"/><allow send_type="signal"/>
    <allow receive_type="method_call"/><allow receive_type="method_return"/>
    <allow receive_type="error"/><allow receive_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
  </policy>
</busconfig>
"#;

/// The agent and its directory. Dropping it kills the agent and its pods.
struct Agent {
    program: Child,
    directory: tempfile::TempDir,
}

/// The path of the example. Cargo builds it before it runs all tests of this crate; before a single test, run `cargo
/// build --package winddown-node --example agent`.
fn example() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(2).unwrap().join("examples/agent")
}

fn manifest(name: &str, priority: i32) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         hostNetwork: true\n  priority: {priority}\n  containers:\n  - name: main\n    image: host\n    \
         command: [sh, -c, \"trap exit TERM; while :; do sleep 0.05; done\"]\n"
    )
}

impl Agent {
    fn start(pods: &[(&str, i32)], options: &[&str]) -> Self {
        // Away from the login manager of the machine that runs the tests.
        Self::on_bus(pods, options, "unix:path=/nonexistent/bus")
    }

    fn on_bus(pods: &[(&str, i32)], options: &[&str], bus: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("pods")).unwrap();
        let program = program(directory.path(), options, bus);
        let agent = Self { program, directory };
        pods.iter().for_each(|(name, priority)| agent.add(name, *priority));
        agent
    }

    fn add(&self, name: &str, priority: i32) {
        let pods = self.directory.path().join("pods");
        std::fs::write(pods.join(format!(".{name}")), manifest(name, priority)).unwrap();
        std::fs::rename(pods.join(format!(".{name}")), pods.join(format!("{name}.yaml"))).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("agent.sock")
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let mut last = None;
        let client = Client::new(self.socket());
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

    async fn until_ready(&self, count: usize) -> Status {
        let ready = |status: &Status| status.pods.iter().filter(|pod| pod.ready).count() == count;
        self.until(&format!("{count} pods ready"), ready).await
    }

    fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, metrics) = answer.split_once("\r\n\r\n").unwrap();
        metrics.to_owned()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

fn program(directory: &Path, options: &[&str], bus: &str) -> Child {
    let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
    Command::new(example())
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

fn pod<'a>(status: &'a Status, name: &str) -> Option<&'a PodStatus> {
    status.pods.iter().find(|pod| pod.name.starts_with(&format!("{name}-")))
}

fn ended(status: &Status, name: &str, reason: &str) -> bool {
    pod(status, name).is_some_and(|pod| pod.state == PodState::Finished && pod.reason == reason)
}

#[tokio::test]
async fn a_pod_of_a_manifest_is_evicted_where_memory_is_short() {
    let agent = Agent::start(&[("batch", 0), ("web", 1000)], &["1Pi"]);
    agent.until("the pod evicted", |status| ended(status, "batch", "Evicted")).await;
    let metrics = agent.metrics();
    let counted = "\nkubelet_evictions{eviction_signal=\"memory.available\"} ";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn a_pod_ends_for_a_critical_one_that_does_not_fit() {
    let pods = [("a", 0), ("b", 10), ("c", 10), ("d", 10)];
    let agent = Agent::start(&pods, &[]);
    agent.until_ready(4).await;
    agent.add("dns", 2_000_000_000);
    let status = agent.until("one preempted", |status| ended(status, "a", "Preempting")).await;
    assert_eq!(status.node.product.as_deref(), Some("example-agent"));
    agent
        .until("the critical pod ready", |status| pod(status, "dns").is_some_and(|dns| dns.ready))
        .await;
}

#[tokio::test]
async fn a_controller_of_its_own_ends_pods() {
    let agent = Agent::start(&[("web", 0)], &["100Mi", "1"]);
    agent.until("the pod too old", |status| ended(status, "web", "TooOld")).await;
    let metrics = agent.metrics();
    assert!(
        metrics.contains("\nexample_agent_plugin_choices_total{plugin=\"max-age\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.contains("\nkubelet_active_pods{"), "{metrics}");
    assert!(!metrics.contains("winddown"), "{metrics}");
}

#[tokio::test]
async fn its_pods_end_before_the_machine_goes_down() {
    let test = "its_pods_end_before_the_machine_goes_down";
    let directory = tempfile::tempdir().unwrap();
    let (socket, config) = (directory.path().join("bus"), directory.path().join("bus.conf"));
    std::fs::write(&config, BUS.replace("@SOCKET@", socket.to_str().unwrap())).unwrap();
    let daemon = tokio::process::Command::new("dbus-daemon")
        .arg(format!("--config-file={}", config.display()))
        .args(["--nofork", "--nopidfile", "--nosyslog", "--print-address"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut daemon) = daemon else {
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test}: dbus-daemon is missing");
        println!("SKIPPED: {test}: dbus-daemon is not installed (Debian package dbus)");
        return;
    };
    // The daemon prints its address once it listens.
    BufReader::new(daemon.stdout.take().unwrap()).lines().next_line().await.unwrap().unwrap();
    let address = format!("unix:path={}", socket.display());
    let logind = StandIn::new(Duration::from_secs(60));
    let _on_bus = logind.serve_on(&address).await.unwrap();

    let agent = Agent::on_bus(&[("web", 0), ("db", 1000)], &[], &address);
    agent.until_ready(2).await;
    logind.until_locks(|locks| !locks.is_empty()).await;
    assert_eq!(logind.locks()[0].who, "example-agent");
    let outcome = tokio::time::timeout(LIMIT, logind.shutdown(ShutdownKind::PowerOff)).await;
    assert!(outcome.unwrap().late.is_empty(), "{}", agent.log());
    let report = Client::new(agent.socket()).report("latest").await.unwrap();
    assert_eq!(report["outcome"], "clean", "{report:#}");
    let groups = report["groups"].as_array().unwrap().iter();
    let pods = groups.flat_map(|group| group["pods"].as_array().unwrap());
    let ends: Vec<_> = pods.map(|pod| pod["end"].as_str().unwrap()).collect();
    assert_eq!(ends, ["exited", "exited"], "{report:#}");
}
