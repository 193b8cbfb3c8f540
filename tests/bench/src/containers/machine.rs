//! One node with pods in containers: started, watched while it is idle, and powered off.

mod beside;
mod full;

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::usage::{self, Watch};
use winddown_node_tests::{Base, Flavour, IMAGE, Node, kubelet};

use super::ContainerBenchError;
use crate::figure::{Figure, count, millis};
use crate::node::{CONFIG, CRITICAL};
use crate::options::Options;
use crate::pod::PodTimes;
use crate::shutdown::{first_asked, last_asked, last_gone};
use crate::{clock, idle, node};
pub(super) use beside::start_directly;
pub(super) use full::{GAP_BUSY, PREEMPTED, measure_full};

/// What the figures are of, and the names of their rows.
pub(super) const STARTED: &str = "service started to all pods running";
pub(super) const STARTED_AGENT: &str = "- of it, processor time of the agent";
pub(super) const FIRST_TERM: &str = "signal to first SIGTERM";
pub(super) const SPREAD: &str = "first to last SIGTERM of the first group";
pub(super) const GAP: &str = "gap between groups";
pub(super) const KNOWN: &str = "- last exit to the agent knowing of it";
pub(super) const NEXT: &str = "- from there to the next SIGTERM";
pub(super) const RELEASE: &str = "last exit to lock released";
pub(super) const LAST_KNOWN: &str = "- last exit of all to the agent knowing of it";
pub(super) const RELEASED: &str = "- from there to the agent's release";
pub(super) const SIGNAL_TO_RELEASE: &str = "signal to lock released";
pub(super) const COMMAND_TO_LAST_EXIT: &str = "`systemctl poweroff` to last exit";
pub(super) const COMMAND_TO_RELEASE: &str = "`systemctl poweroff` to lock released";
pub(super) const KILLED: &str = "pods that did not exit by themselves";

/// Where pods find the program that runs in them, and write down their times.
const PROGRAM: &str = "/opt/winddown-bench";
const TIMES: &str = "/var/log/times";
const SIGNALS: &str = "/var/log/signals";
/// 100 pods take half a minute on two cores.
const START: Duration = Duration::from_secs(180);
/// More than any plan asks for.
const OFF: Duration = Duration::from_secs(120);

/// Who runs the pods, and ends them when the node goes down.
#[derive(Clone, Copy, Debug)]
pub(super) enum Agent<'a> {
    Winddown,
    /// The kubelet that this program is, alone, with its own graceful shutdown.
    Kubelet(&'a Path),
}

/// Figures of one node, each with what it is of.
pub(super) type Figures = Vec<(&'static str, Figure)>;

/// A shutdown as it was seen from outside.
struct Seen {
    command: Duration,
    signal: Duration,
    ordinary: Vec<PodTimes>,
    critical: Vec<PodTimes>,
    /// From the agent's release of the lock until logind went on.
    going_on: Option<Duration>,
}

/// Boots a node with images, and what `lay_into` puts there.
async fn boot(
    lay_into: impl Fn(&Node) -> Result<(), ContainerBenchError>,
) -> Result<Node, ContainerBenchError> {
    let base = Base::find(Flavour::Containerd).await?;
    let mut node = Node::create(&base).await?;
    node.configure_containerd()?;
    lay_into(&node)?;
    node.start().await?;
    node.import_images().await?;
    Ok(node)
}

/// Boots a node and starts the agent on it, which starts the pods; how long that took.
async fn running(
    agent: Agent<'_>,
    options: &Options,
) -> Result<(Node, Duration), ContainerBenchError> {
    let node = boot(|node| agent.lay_into(node, options)).await?;
    agent.prepare(&node, options).await?;
    let began = clock::now();
    node.run(&["systemctl", "start", agent.name()]).await?;
    agent.wait_running(&node, options).await?;
    Ok((node, clock::now().saturating_sub(began)))
}

/// Boots a node and powers it off. The idle agent is watched for `idle`, if that is asked for. Returns the floors beside the
/// figures, where there are any.
pub(super) async fn measure(
    agent: Agent<'_>,
    options: &Options,
    idle: Option<Duration>,
) -> Result<(Figures, Figures), ContainerBenchError> {
    let (mut node, started) = running(agent, options).await?;
    let pid = agent.pid(&node).await?;
    let used = usage::since_start(pid).cpu;
    let mut figures = vec![(STARTED, millis(started)), (STARTED_AGENT, millis(used))];
    let mut floors = Figures::new();
    let least = match agent {
        Agent::Winddown => Some(beside::start(&node, options).await?),
        Agent::Kubelet(_) => None,
    };
    if let Some(span) = idle {
        idle::settle().await;
        let counts = usage::forget_touched(pid).is_ok();
        let mut watch = Watch::new(vec![pid]);
        let mut watch_least = Watch::new(least.into_iter().collect());
        let took = idle::watch(&mut [&mut watch, &mut watch_least], span).await;
        let memory = usage::memory(pid);
        figures.extend(idle::memory_figures(&memory, counts));
        figures.extend(idle::time_figures(watch.used(), took));
        if let Some(least) = least {
            let least = usage::memory(least);
            floors.extend(idle::floors(&memory, &least, watch_least.used(), took));
        }
    }
    let (end, seen) = agent.shut_down(&mut node, options).await?;
    figures.extend(end);
    if least.is_some() {
        floors.extend(beside::floors(&node, options, &seen)?);
    }
    Ok((figures, floors))
}

impl Agent<'_> {
    /// The name of its service, and of its inhibitor lock.
    fn name(self) -> &'static str {
        match self {
            Self::Winddown => "winddown",
            Self::Kubelet(_) => "kubelet",
        }
    }

    /// The directory of its static pods.
    fn manifests(self) -> &'static str {
        match self {
            Self::Winddown => "/etc/winddown/pods",
            Self::Kubelet(_) => kubelet::STATIC_PODS,
        }
    }

    /// What has to be there before the node is on. The pods that there are fill it.
    fn lay_into(self, node: &Node, options: &Options) -> Result<(), ContainerBenchError> {
        let pod = node::own_program().map_err(ContainerBenchError::Program)?;
        node.install(&pod, PROGRAM)?;
        node.write(&format!("{TIMES}/.keep"), "", 0o644)?;
        if let Self::Winddown = self {
            let programs = node::programs().map_err(ContainerBenchError::Program)?;
            node.install_programs(&programs, "/opt/winddown")?;
            let config = CONFIG.replace("maxPods: 10000", &format!("maxPods: {}", options.pods));
            node.write("/etc/winddown/config.yaml", format!("{config}runtime: cri\n"), 0o644)?;
        }
        let pods = self.manifests();
        for n in 0..options.pods {
            let priority = if n < options.critical { CRITICAL } else { 0 };
            let manifest = manifest(n, priority, options.stop).to_string();
            node.write(&format!("{pods}/pod-{n}.json"), manifest, 0o644)?;
        }
        Ok(())
    }

    /// Installs it. Images are there already.
    async fn prepare(self, node: &Node, options: &Options) -> Result<(), ContainerBenchError> {
        match self {
            Self::Winddown => {
                node.run(&["/opt/winddown/winddown", "install", "--runtime", "cri"]).await?;
            }
            Self::Kubelet(program) => {
                let mut configuration = kubelet::configuration(node);
                configuration["maxPods"] = json!(options.pods);
                let group = |priority: i32| json!({ "priority": priority, "shutdownGracePeriodSeconds": 30 });
                configuration["shutdownGracePeriodByPodPriority"] =
                    json!([group(0), group(CRITICAL)]);
                node.install_kubelet(program, &configuration, kubelet::ADDRESS).await?;
            }
        }
        Ok(())
    }

    async fn wait_running(self, node: &Node, options: &Options) -> Result<(), ContainerBenchError> {
        let name = self.name();
        let running = async || {
            times(node, 0..options.pods).iter().all(|pod| pod.pid.is_some())
                && node
                    .run(&["systemd-inhibit", "--list", "--no-pager"])
                    .await
                    .is_ok_and(|locks| locks.lines().any(|lock| lock.starts_with(name)))
        };
        let waited = node.wait_until("all pods to run and the lock to be held", START, running);
        if let Err(error) = waited.await {
            eprintln!("{}", node.journal(&[&format!("--unit={name}"), "--lines=20"]).await?);
            return Err(error.into());
        }
        Ok(())
    }

    async fn pid(self, node: &Node) -> Result<u32, ContainerBenchError> {
        let show = ["systemctl", "show", "--property=MainPID", "--value", self.name()];
        let pid = node.run(&show).await?.trim().parse().ok().and_then(|pid| node.host_pid(pid));
        pid.ok_or(ContainerBenchError::Missing("the agent's process"))
    }

    async fn shut_down(
        self,
        node: &mut Node,
        options: &Options,
    ) -> Result<(Figures, Seen), ContainerBenchError> {
        // Another program on the bus writes down when the signal came.
        let listen = "type='signal',member='PrepareForShutdown'";
        let output = format!("--property=StandardOutput=file:{SIGNALS}");
        let listener = ["systemd-run", "--quiet", "--unit=listener", &output, "dbus-monitor"];
        node.run(&[&listener[..], &["--system", "--profile", listen]].concat()).await?;
        let listens = async || node.read(SIGNALS).is_ok_and(|text| text.contains("NameAcquired"));
        node.wait_until("the listener to listen", START, listens).await?;

        let command = clock::now();
        node.run(&["systemctl", "poweroff"]).await?;
        node.wait_off(OFF).await?;
        let signal = signal_time(&node.read(SIGNALS)?);
        let signal = signal.ok_or(ContainerBenchError::Missing("the shutdown signal"))?;
        let released = said_at(node, "systemd-logind", "System is powering down").await?;
        let released = released.ok_or(ContainerBenchError::Missing("the lock's release"))?;

        let critical = times(node, 0..options.critical);
        let ordinary = times(node, options.critical..options.pods);
        let first = first_asked(&ordinary).or_else(|| first_asked(&critical));
        let first =
            first.ok_or(ContainerBenchError::Missing("pods that were asked to terminate"))?;
        let since = |from: Duration, to: Duration| millis(to.saturating_sub(from));
        let spread = since(first, last_asked(&ordinary).unwrap_or(first));
        let mut figures = vec![(FIRST_TERM, since(signal, first)), (SPREAD, spread)];
        if let (Some(gone), Some(asked)) = (last_gone(&ordinary), first_asked(&critical)) {
            figures.push((GAP, since(gone, asked)));
            if matches!(self, Self::Winddown) {
                let known = said_by_agent(node, "priority 0 and above: terminated in").await?;
                figures.extend([(KNOWN, since(gone, known)), (NEXT, since(known, asked))]);
            }
        }
        let last = last_gone(&critical).or_else(|| last_gone(&ordinary)).unwrap_or(first);
        let killed = ordinary.iter().chain(&critical).filter(|pod| pod.gone.is_none()).count();
        figures.push((RELEASE, since(last, released)));
        let mut going_on = None;
        if matches!(self, Self::Winddown) {
            let group = format!("priority {CRITICAL} and above: terminated in");
            let known = said_by_agent(node, &group).await?;
            let by_agent = said_by_agent(node, "released logind's delay lock").await?;
            figures.extend([(LAST_KNOWN, since(last, known)), (RELEASED, since(known, by_agent))]);
            going_on = Some(released.saturating_sub(by_agent));
        }
        figures.extend([
            (SIGNAL_TO_RELEASE, since(signal, released)),
            (COMMAND_TO_LAST_EXIT, since(command, last)),
            (COMMAND_TO_RELEASE, since(command, released)),
            (KILLED, count(u64::try_from(killed).unwrap_or(u64::MAX))),
        ]);
        Ok((figures, Seen { command, signal, ordinary, critical, going_on }))
    }
}

/// When winddown first wrote a line that begins so.
async fn said_by_agent(node: &Node, begins: &str) -> Result<Duration, ContainerBenchError> {
    let said = said_at(node, Agent::Winddown.name(), begins).await?;
    said.ok_or_else(|| ContainerBenchError::Unsaid(begins.to_owned()))
}

/// When a service first wrote a line that begins so.
async fn said_at(
    node: &Node,
    unit: &str,
    begins: &str,
) -> Result<Option<Duration>, ContainerBenchError> {
    let said = node.journal_entries(&[&format!("--unit={unit}")]).await?;
    let entry = said.iter().find(|entry| entry.message.starts_with(begins));
    Ok(entry.map(|entry| clock::at_real(Duration::from_nanos(entry.at))))
}

/// When `dbus-monitor --profile` saw the signal.
fn signal_time(seen: &str) -> Option<Duration> {
    let line = seen.lines().find(|line| line.ends_with("PrepareForShutdown"))?;
    let (seconds, micros) = line.split('\t').nth(1)?.split_once('.')?;
    let real =
        Duration::from_secs(seconds.parse().ok()?) + Duration::from_micros(micros.parse().ok()?);
    Some(clock::at_real(real))
}

fn times(node: &Node, pods: std::ops::Range<usize>) -> Vec<PodTimes> {
    pods.map(|n| times_of_pod(node, n)).collect()
}

fn times_of_pod(node: &Node, pod: impl Display) -> PodTimes {
    PodTimes::parse(&node.read(&format!("{TIMES}/{pod}")).unwrap_or_default())
}

fn manifest(pod: impl Display, priority: i32, stop: Duration) -> Value {
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let volume = |name: &str, path: &str| json!({ "name": name, "hostPath": { "path": path } });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": format!("pod-{pod}"), "namespace": "default" },
        "spec": {
            "hostNetwork": true,
            "priority": priority,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "command": [PROGRAM, "pod", format!("{TIMES}/{pod}"), stop.as_millis().to_string()],
                "volumeMounts": [mount("program", PROGRAM), mount("times", TIMES)],
            }],
            "volumes": [volume("program", PROGRAM), volume("times", TIMES)],
        },
    })
}
