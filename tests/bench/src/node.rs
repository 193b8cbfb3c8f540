//! A node made of real processes: a private bus, the agent, its pods; logind is a stand-in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use winddown_apiserver::ApiServer;
use winddown_systemd::stand_in::{OnBus, StandIn, StandInError};

use crate::least::{self, Notes};
use crate::options::Options;
use crate::pod::PodTimes;

pub(crate) const CRITICAL: i32 = 2_000_000_000;
/// More than any plan asks for: the stand-in never cuts a run short.
const DELAY: Duration = Duration::from_secs(300);
const START: Duration = Duration::from_secs(120);
/// So much longer for each pod: starting one is two processes.
const START_OF_ONE: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(20);

/// The notes of the least program, in the node's folder.
const LEAST: &str = "least";

pub(crate) const CONFIG: &str = "\
apiVersion: winddown.dev/v1alpha1
kind: Configuration
evictionHard: {memory.available: 100Mi}
maxPods: 10000
shutdownGracePeriodByPodPriority:
- priority: 0
  shutdownGracePeriodSeconds: 30
- priority: 2000000000
  shutdownGracePeriodSeconds: 30
";

/// What a node in a cluster is configured with beside [`CONFIG`].
const IN_CLUSTER: &str = "\
mode: cluster
kubeconfig: /etc/winddown/kubeconfig
nodeName: n1
";

/// Where a node's pods come from.
pub(crate) enum Source<'a> {
    /// From its manifests directory.
    Manifests,
    /// From an API server, which this kubeconfig reaches.
    Api(&'a ApiServer, String),
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{program} could not be started")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("dbus-daemon said nothing: is it installed?")]
    NoBus,
    #[error("the stand-in for logind could not serve on the private bus")]
    StandIn(#[source] StandInError),
    #[error("{what}: not within {time:?}; the agent said: {log}")]
    TimedOut { what: String, time: Duration, log: String },
    #[error("the API server could not be started, or did not take a pod: {0}")]
    Api(String),
    #[error("the agent ended; it said: {0}")]
    AgentEnded(String),
    #[error("the lock was still held after {0:?}, or never taken")]
    LockKept(Duration),
    #[error("no pod was asked to stop")]
    NothingAsked,
    #[error("the least program ended, or said nothing")]
    Least,
    #[error("{0} pods did not exit by themselves")]
    Left(usize),
}

/// The node. Dropping it ends every process of it.
#[derive(Debug)]
pub(crate) struct TestNode {
    dir: TempDir,
    programs: PathBuf,
    agent: Child,
    /// The least program beside it, and the pod of that.
    least: Option<(Child, Child)>,
    logind: StandIn,
    ordinary: Vec<PathBuf>,
    critical: Vec<PathBuf>,
    bus_address: String,
    _on_bus: OnBus,
    _bus: Child,
}

// === impl TestNode ===

impl TestNode {
    /// Starts the node and waits until the lock is held and all pods run.
    pub(crate) async fn start(options: &Options) -> Result<Self, BenchError> {
        Self::start_with(options, Source::Manifests).await
    }

    /// The same with pods from somewhere else.
    pub(crate) async fn start_with(
        options: &Options,
        source: Source<'_>,
    ) -> Result<Self, BenchError> {
        let temp = std::env::temp_dir();
        let dir = tempfile::Builder::new()
            .prefix("winddown-bench-")
            .tempdir()
            .map_err(|source| BenchError::File { path: temp, source })?;
        let (bus, address) = private_bus(dir.path()).await?;
        let logind = StandIn::new(DELAY).reloading_from(dir.path(), Duration::from_millis(10));
        let on_bus = logind.serve_on(&address).await.map_err(BenchError::StandIn)?;

        let manifests = dir.path().join("etc/winddown/pods");
        fs::create_dir_all(&manifests)
            .map_err(|error| BenchError::File { path: manifests.clone(), source: error })?;
        let in_cluster = match &source {
            Source::Manifests => "",
            Source::Api(_, kubeconfig) => {
                write(&dir.path().join("etc/winddown/kubeconfig"), kubeconfig)?;
                IN_CLUSTER
            }
        };
        write(&dir.path().join("etc/winddown/config.yaml"), &format!("{CONFIG}{in_cluster}"))?;
        let logs = (0..options.pods).map(|n| dir.path().join(format!("times-{n}")));
        let logs: Vec<PathBuf> = logs.collect();
        for (n, log) in logs.iter().enumerate() {
            let priority = if n < options.critical { CRITICAL } else { 0 };
            let mut manifest = manifest(n, priority, log, options.stop)?;
            match &source {
                Source::Manifests => {
                    write(&manifests.join(format!("pod-{n}.json")), &manifest.to_string())?;
                }
                Source::Api(server, _) => {
                    manifest["spec"]["nodeName"] = "n1".into();
                    manifest["spec"]["automountServiceAccountToken"] = false.into();
                    manifest["status"]["phase"] = "Pending".into();
                    let made = server.apply(manifest);
                    made.map_err(|refused| BenchError::Api(refused.to_string()))?;
                }
            }
        }
        let (critical, ordinary) = logs.split_at(options.critical);

        let programs = programs()?;
        let agent = start_agent(&programs.join("winddownd"), dir.path(), &address)?;
        let mut node = Self {
            programs,
            agent,
            least: None,
            logind,
            ordinary: ordinary.to_vec(),
            critical: critical.to_vec(),
            bus_address: address,
            _on_bus: on_bus,
            _bus: bus,
            dir,
        };
        let pods = u32::try_from(options.pods).unwrap_or(u32::MAX);
        node.wait_ready(START + START_OF_ONE * pods).await?;
        Ok(node)
    }

    /// Starts the least program beside the agent; it waits for the signal when this returns.
    pub(crate) async fn start_least(&mut self, critical: usize) -> Result<(), BenchError> {
        let program = own_program()?;
        let start = |arguments: &[&str]| {
            let mut command = Command::new(&program);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
            command.envs(unit_environment()).env("DBUS_SYSTEM_BUS_ADDRESS", &self.bus_address);
            let started = command.spawn();
            started.map_err(|source| BenchError::Start { program: "winddown-bench".into(), source })
        };
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let (logs, notes) = (at("times-"), at(LEAST));
        let victim = format!("{logs}{}", least::VICTIM);
        let pod = start(&["pod", &victim, "0"])?;
        wait_for(|| PodTimes::read(victim.as_ref()).pid.is_some()).await?;
        let least = start(&["least", &logs, &critical.to_string(), &notes])?;
        self.least = Some((least, pod));
        wait_for(|| self.least_notes().ready).await
    }

    /// The process of the least program.
    pub(crate) fn least_pid(&self) -> Result<u32, BenchError> {
        self.least.as_ref().and_then(|(least, _)| least.id()).ok_or(BenchError::Least)
    }

    /// What the least program wrote down once it knew of all exits.
    pub(crate) async fn least_told(&self) -> Result<Notes, BenchError> {
        wait_for(|| self.least_notes().critical.or(self.least_notes().ordinary).is_some()).await?;
        Ok(self.least_notes())
    }

    fn least_notes(&self) -> Notes {
        Notes::parse(&fs::read_to_string(self.dir.path().join(LEAST)).unwrap_or_default())
    }

    /// When the pod of the least program was asked to terminate.
    pub(crate) fn victim_asked(&self) -> Option<Duration> {
        let log = self.dir.path().join(format!("times-{}", least::VICTIM));
        PodTimes::read(&log).asked
    }

    pub(crate) fn logind(&self) -> &StandIn {
        &self.logind
    }

    /// The agent's process.
    pub(crate) fn agent_pid(&self) -> Result<u32, BenchError> {
        self.agent.id().ok_or_else(|| BenchError::AgentEnded(self.agent_log()))
    }

    /// The program that holds a container.
    pub(crate) fn shim_program(&self) -> PathBuf {
        self.programs.join("winddown-shim")
    }

    /// What the ordinary and the critical pods wrote down.
    pub(crate) fn times(&self) -> (Vec<PodTimes>, Vec<PodTimes>) {
        let read = |logs: &[PathBuf]| logs.iter().map(|log| PodTimes::read(log)).collect();
        (read(&self.ordinary), read(&self.critical))
    }

    async fn wait_ready(&mut self, time: Duration) -> Result<(), BenchError> {
        let ready = timeout(time, async {
            loop {
                if matches!(self.agent.try_wait(), Ok(Some(_))) {
                    return Err(BenchError::AgentEnded(self.agent_log()));
                }
                let (ordinary, critical) = self.times();
                let all_run = ordinary.iter().chain(&critical).all(|pod| pod.pid.is_some());
                if all_run && self.logind.held() > 0 {
                    return Ok(());
                }
                sleep(POLL).await;
            }
        });
        let what = || "all pods to run and the lock to be held".to_owned();
        ready.await.unwrap_or_else(|_| {
            Err(BenchError::TimedOut { what: what(), time, log: self.agent_log() })
        })
    }

    fn agent_log(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(10).collect();
        tail.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        // The agent first, or it would start the pods again.
        let _ = self.agent.start_kill();
        let (ordinary, critical) = self.times();
        for pod in ordinary.iter().chain(&critical).filter(|pod| pod.gone.is_none()) {
            if let Some(pid) = pod.pid.and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Waits for the least program to write something.
async fn wait_for(condition: impl Fn() -> bool) -> Result<(), BenchError> {
    let waited = timeout(START, async {
        while !condition() {
            sleep(POLL).await;
        }
    });
    waited.await.map_err(|_| BenchError::Least)
}

async fn private_bus(dir: &Path) -> Result<(Child, String), BenchError> {
    let config = dir.join("bus.conf");
    let text = format!(
        "<busconfig><type>system</type><listen>unix:path={}</listen>\
         <policy context=\"default\"><allow send_destination=\"*\"/><allow own=\"*\"/>\
         <allow receive_sender=\"*\"/></policy></busconfig>",
        dir.join("bus").display()
    );
    write(&config, &text)?;
    let mut bus = Command::new("dbus-daemon")
        .arg(format!("--config-file={}", config.display()))
        .args(["--nofork", "--nopidfile", "--print-address"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| BenchError::Start { program: "dbus-daemon".to_owned(), source })?;
    let output = bus.stdout.take().ok_or(BenchError::NoBus)?;
    let address = BufReader::new(output).lines().next_line().await.ok().flatten();
    Ok((bus, address.ok_or(BenchError::NoBus)?))
}

/// Runs the agent with `/run` in memory, as every machine with systemd has it. That takes root.
const RUN_IN_MEMORY: &str =
    r#"mkdir -p "$1/run" && mount -t tmpfs tmpfs "$1/run" && exec "$0" --root "$1""#;

fn start_agent(program: &Path, root: &Path, bus: &str) -> Result<Child, BenchError> {
    let path = root.join("agent.log");
    let log = || {
        let opened = fs::File::options().create(true).append(true).open(&path);
        opened.map_err(|source| BenchError::File { path: path.clone(), source })
    };
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if is_root { "unshare".as_ref() } else { program });
    match is_root {
        true => command.args(["--mount", "sh", "-c", RUN_IN_MEMORY]).args([program, root]),
        false => command.arg("--root").arg(root),
    };
    command
        .envs(unit_environment())
        .env("DBUS_SYSTEM_BUS_ADDRESS", bus)
        .stdin(Stdio::null())
        .stdout(log()?)
        .stderr(log()?)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| BenchError::Start { program: program.display().to_string(), source })
}

const UNIT: &str = include_str!("../../../systemd/units/winddown.service");

/// The nice value that the unit gives the agent: what stands beside it has the same.
pub(crate) fn unit_nice() -> &'static str {
    UNIT.lines().find_map(|line| line.strip_prefix("Nice=")).unwrap_or("0")
}

/// The environment that the unit gives the agent, without what systemd fills in: its memory depends on that.
pub(crate) fn unit_environment() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix("Environment="));
    let variables = lines.flat_map(str::split_whitespace);
    variables
        .filter_map(|variable| variable.split_once('=').filter(|(_, value)| !value.contains('%')))
}

/// The directory with winddown's programs: ours, where `make bench` has built them with the same profile.
pub(crate) fn programs() -> Result<PathBuf, BenchError> {
    if let Some(path) = std::env::var_os("WINDDOWN_PROGRAMS") {
        return Ok(PathBuf::from(path));
    }
    Ok(own_program()?.with_file_name(""))
}

pub(crate) fn own_program() -> Result<PathBuf, BenchError> {
    std::env::current_exe()
        .map_err(|source| BenchError::File { path: PathBuf::from("/proc/self/exe"), source })
}

fn manifest(n: usize, priority: i32, log: &Path, stop: Duration) -> Result<Value, BenchError> {
    let stop_ms = stop.as_millis().to_string();
    Ok(serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": format!("pod-{n}") },
        "spec": {
            "hostNetwork": true,
            "priority": priority,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main",
                "image": "host",
                "command": [own_program()?, "pod", log, stop_ms],
            }],
        },
    }))
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all);
    written
        .and_then(|()| fs::write(path, text))
        .map_err(|source| BenchError::File { path: path.to_owned(), source })
}
