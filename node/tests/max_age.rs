//! A third-party controller, as described in node/README.md: runs the example program with real pods.

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

use winddown_control::api::{NoticeBody, Phase, PodState, PodStatus, Status};
use winddown_control::{Client, ClientError};

/// Longer than any step takes; only a failure takes this long.
const LIMIT: Duration = Duration::from_secs(60);

/// The agent and its directory. Dropping it kills the agent and its pods.
struct Agent {
    program: Child,
    directory: tempfile::TempDir,
}

/// The path of the example. Cargo builds it before it runs all tests of this crate; before a single test, run `cargo
/// build --package winddown-node --example max_age`.
fn example() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(2).unwrap().join("examples/max_age")
}

fn manifest(name: &str, priority: i32) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         hostNetwork: true\n  priority: {priority}\n  containers:\n  - name: main\n    image: host\n    \
         command: [sh, -c, \"trap exit TERM; while :; do sleep 0.05; done\"]\n"
    )
}

impl Agent {
    fn start(pods: &[(&str, i32)], oldest: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("pods")).unwrap();
        for (name, priority) in pods {
            let file = directory.path().join(format!("pods/{name}.yaml"));
            std::fs::write(file, manifest(name, *priority)).unwrap();
        }
        let program = program(directory.path(), oldest);
        Self { program, directory }
    }

    /// Kills the agent and starts another one, with another maximum age.
    fn restart(&mut self, oldest: u64) {
        self.program.kill().unwrap();
        self.program.wait().unwrap();
        self.program = program(self.directory.path(), oldest);
    }

    fn client(&self) -> Client {
        Client::new(self.directory.path().join("winddown.sock"))
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let mut last = None;
        let asked = tokio::time::timeout(LIMIT, async {
            loop {
                let answer: Result<Status, ClientError> = self.client().status().await;
                match answer {
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

    fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(self.directory.path().join("winddown.sock")).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }
}

fn program(directory: &Path, oldest: u64) -> Child {
    let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
    Command::new(example())
        .arg(directory)
        .arg(oldest.to_string())
        // Keeps the agent away from the login manager of the machine that runs the tests.
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
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

#[tokio::test]
async fn a_third_partys_controller_ends_pods_and_is_seen_where_ours_are() {
    let mut agent = Agent::start(&[("critical", 1_000_000), ("batch", 0), ("web", 1000)], 3600);
    let old = |status: &Status| {
        let age = |pod: &PodStatus| Some(status.time.duration_since(pod.started_at?).as_secs());
        status.pods.len() == 3 && status.pods.iter().all(|pod| age(pod) > Some(1))
    };
    agent.until("all pods older than a second", old).await;
    // The pods keep running. For the next agent all of them are too old.
    agent.restart(1);
    let ended = |status: &Status| {
        status.pods.len() == 3
            && status
                .pods
                .iter()
                .all(|pod| pod.state == PodState::Finished && pod.reason == "TooOld")
    };
    let status = agent.until("all pods ended", ended).await;

    let chosen = status.decisions.iter().filter(|decision| decision.kind == "pluginChose");
    let chosen: Vec<&str> = chosen.map(|decision| &*decision.pod).collect();
    let node = chosen[0].strip_prefix("default/batch").expect("the lowest priority first");
    let wanted = ["batch", "web", "critical"].map(|name| format!("default/{name}{node}"));
    assert_eq!(chosen, wanted, "one after the other, by priority");
    let why = status.decisions.iter().find(|decision| decision.kind == "killRequested").unwrap();
    assert!(why.text.contains("(the plug-in max-age chose it)"), "{}", why.text);

    let said = |status: &Status| status.plugins.iter().any(|p| p.text == "no pod grows too old");
    let status = agent.until("told of by the plug-in", said).await;
    assert_eq!(status.plugins[0].name, "max-age");
    let metrics = agent.metrics();
    assert!(metrics.contains("winddown_plugin_choices_total{plugin=\"max-age\"} 3"), "{metrics}");
    let looks = metrics.lines().find_map(|line| line.strip_prefix("max_age_looks_total "));
    assert!(looks.unwrap().parse::<u64>().unwrap() >= 3, "{metrics}");
}

#[tokio::test]
async fn what_it_does_at_a_shutdown_is_in_the_plan_and_in_the_report() {
    let agent = Agent::start(&[("web", 0)], 3600);
    let runs = |status: &Status| status.pods.iter().any(|pod| pod.ready);
    let web = agent.until("the pod running", runs).await.pods.remove(0).name;
    let plan = agent.client().shutdown_plan(None).await.unwrap();
    let work = &plan.work[0];
    assert_eq!((&*work.plugin, &*work.point), ("max-age", "before the pods"));
    assert_eq!((&*work.what, work.seconds), ("write down the ages of the pods", Some(2.0)));

    let notice = NoticeBody { in_seconds: Some(120), ..NoticeBody::default() };
    let _lines = agent.client().give_notice(&notice).await.unwrap();
    let worked = |status: &Status| status.decisions.iter().any(|told| told.kind == "pluginWorked");
    let status = agent.until("told of the work", worked).await;
    let told = status.decisions.iter().find(|told| told.kind == "pluginWorked").unwrap();
    let done = "plug-in max-age: write down the ages of the pods: done in";
    assert!(told.text.starts_with(done), "{}", told.text);
    let over = |status: &Status| status.shutdown.phase == Phase::Done;
    agent.until("over", over).await;
    let ages = std::fs::read_to_string(agent.directory.path().join("ages")).unwrap();
    assert!(ages.starts_with(&format!("default/{web} ")) && ages.lines().count() == 1, "{ages}");
    let report = tokio::time::timeout(LIMIT, async {
        loop {
            match agent.client().report("latest").await {
                Ok(report) => return report,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let report = report.await.expect("there is a report");
    assert_eq!(report["work"][0]["outcome"], "done", "{report:#}");
    assert_eq!(report["work"][0]["plugin"], "max-age");
    assert_eq!(report["groups"][0]["pods"][0]["end"], "exited", "{report:#}");
}
