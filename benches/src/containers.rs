//! The agent on a disposable node: real systemd and logind, real containerd, pods in containers.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::usage::{self, Watch};
use winddown_node_tests::{Base, Flavour, IMAGE, Node, NodeError, Unavailable};

use crate::figure::millis;
use crate::node::{CONFIG, CRITICAL};
use crate::options::Options;
use crate::pod::PodTimes;
use crate::shutdown::{first_asked, last_asked, last_gone, ms};
use crate::table::Table;
use crate::targets;
use crate::{clock, idle, node};

/// Where pods find the program that runs in them, and write down their times.
const PROGRAM: &str = "/opt/winddown-bench";
const TIMES: &str = "/var/log/times";
const SIGNALS: &str = "/var/log/signals";
/// 100 pods take half a minute on two cores.
const START: Duration = Duration::from_secs(180);
/// More than any plan asks for.
const OFF: Duration = Duration::from_secs(120);

/// Why nothing could be measured on the node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerBenchError {
    #[error("no node can be booted here")]
    Unavailable(#[from] Unavailable),
    #[error("the node failed")]
    Node(#[from] NodeError),
    #[error("the programs to measure were not found")]
    Program(#[source] node::BenchError),
    #[error("the node said nothing of {0}")]
    Missing(&'static str),
    #[error("{0} pods did not end by themselves")]
    Left(usize),
}

/// Boots a node, runs the pods on it, watches the idle agent, and powers the node off.
pub(crate) async fn measure(options: &Options) -> Result<Table, ContainerBenchError> {
    let base = Base::find(Flavour::Containerd).await?;
    let mut node = Node::create(&base).await?;
    node.configure_containerd()?;
    install(&node, options)?;
    node.start().await?;
    put_first(&node);
    node.import_images().await?;
    node.run(&["/opt/winddown/winddown", "install", "--runtime", "cri"]).await?;
    let began = clock::now();
    node.run(&["systemctl", "start", "winddown"]).await?;
    wait_running(&node, options).await?;
    let started = clock::now().saturating_sub(began);

    let mut table = Table::titled(options.title("containerd, real logind on a disposable node"));
    table.row("all pods running", millis(started));
    idle(&node, options.idle, &mut table).await?;
    shutdown(node, options, &mut table).await?;
    Ok(table)
}

/// Gives the node the processors before everything else on this machine, as if it were alone. Where that
/// cannot be done (only cgroup v1 is known here) the machine has to be quiet.
fn put_first(node: &Node) {
    let most = "262144";
    let _ = std::fs::write(format!("/sys/fs/cgroup/cpu/{}/cpu.shares", node.name()), most);
}

/// Everything but the agent's own installation. The node is off.
fn install(node: &Node, options: &Options) -> Result<(), ContainerBenchError> {
    let programs = node::programs().map_err(ContainerBenchError::Program)?;
    let pod = node::own_program().map_err(ContainerBenchError::Program)?;
    node.install_programs(&programs, "/opt/winddown")?;
    node.install(&pod, PROGRAM)?;
    node.write(&format!("{TIMES}/.keep"), "", 0o644)?;
    node.write("/etc/winddown/config.yaml", format!("{CONFIG}runtime: cri\n"), 0o644)?;
    for n in 0..options.pods {
        let priority = if n < options.critical { CRITICAL } else { 0 };
        let manifest = manifest(n, priority, options.stop).to_string();
        node.write(&format!("/etc/winddown/pods/pod-{n}.json"), manifest, 0o644)?;
    }
    Ok(())
}

async fn wait_running(node: &Node, options: &Options) -> Result<(), ContainerBenchError> {
    let running = async || {
        let lock = node.run(&["winddown", "status", "--output", "json"]).await;
        lock.is_ok_and(|text| text.contains("\"held\""))
            && times(node, 0..options.pods).iter().all(|pod| pod.pid.is_some())
    };
    let waited = node.wait_until("all pods to run and the lock to be held", START, running).await;
    if let Err(error) = waited {
        eprintln!("{}", node.journal(&["--unit=winddown", "--lines=20"]).await?);
        return Err(error.into());
    }
    Ok(())
}

async fn idle(node: &Node, span: Duration, table: &mut Table) -> Result<(), ContainerBenchError> {
    let shown =
        node.run(&["systemctl", "show", "--property=MainPID", "--value", "winddown"]).await?;
    let pid = shown.trim().parse().ok().and_then(|pid| node.host_pid(pid));
    let pid = pid.ok_or(ContainerBenchError::Missing("the agent's process"))?;
    idle::settle().await;
    let counts = usage::forget_touched(pid).is_ok();
    let mut watch = Watch::new(vec![pid]);
    let took = idle::watch(&mut watch, span).await;
    let memory = usage::memory(pid);
    idle::memory_rows(table, &memory, counts);
    idle::time_rows(table, watch.used(), took);
    Ok(())
}

async fn shutdown(
    mut node: Node,
    options: &Options,
    table: &mut Table,
) -> Result<(), ContainerBenchError> {
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
    let said = node.journal_entries(&["--unit=systemd-logind"]).await?;
    let released = said.iter().find(|entry| entry.message.starts_with("System is powering down"));
    let released = released.ok_or(ContainerBenchError::Missing("the lock's release"))?.at;
    let released = clock::at_real(Duration::from_nanos(released));

    let critical = times(&node, 0..options.critical);
    let ordinary = times(&node, options.critical..options.pods);
    let first = first_asked(&ordinary).or_else(|| first_asked(&critical));
    let first = first.ok_or(ContainerBenchError::Missing("pods that were asked to end"))?;
    let since = |from: Duration, to: Duration| millis(to.saturating_sub(from));
    table
        .row("signal to first SIGTERM", since(signal, first))
        .below(millis(targets::FIRST_TERM_OF_CONTAINERS));
    let last = last_asked(&ordinary).unwrap_or(first);
    table.row("first to last SIGTERM of the first group", since(first, last));
    if let (Some(gone), Some(asked)) = (last_gone(&ordinary), first_asked(&critical)) {
        let gap = table.row("gap between groups", since(gone, asked));
        gap.below(millis(targets::GAP)).kubelet(ms(3300));
        if let Some(known) = group_ended(&node).await? {
            table.row("- last exit to the agent knowing of it", since(gone, known));
            table.row("- from there to the next SIGTERM", since(known, asked));
        }
    }
    let last = last_gone(&critical).or_else(|| last_gone(&ordinary)).unwrap_or(first);
    table.row("last exit to lock released", since(last, released)).below(millis(targets::RELEASE));
    table.row("signal to lock released", since(signal, released)).below(millis(targets::SHUTDOWN));
    let all = table.row("`systemctl poweroff` to lock released", since(command, released));
    all.kubelet(ms(7100));
    let left = ordinary.iter().chain(&critical).filter(|pod| pod.gone.is_none()).count();
    if left > 0 {
        return Err(ContainerBenchError::Left(left));
    }
    Ok(())
}

/// When the agent said that the first group had ended.
async fn group_ended(node: &Node) -> Result<Option<Duration>, ContainerBenchError> {
    let said = node.journal_entries(&["--unit=winddown"]).await?;
    let entry = said.iter().find(|entry| entry.message.starts_with("priority 0 and above: ended"));
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
    let read = |n| PodTimes::parse(&node.read(&format!("{TIMES}/{n}")).unwrap_or_default());
    pods.map(read).collect()
}

fn manifest(n: usize, priority: i32, stop: Duration) -> Value {
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let volume = |name: &str, path: &str| json!({ "name": name, "hostPath": { "path": path } });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": format!("pod-{n}") },
        "spec": {
            "hostNetwork": true,
            "priority": priority,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "command": [PROGRAM, "pod", format!("{TIMES}/{n}"), stop.as_millis().to_string()],
                "volumeMounts": [mount("program", PROGRAM), mount("times", TIMES)],
            }],
            "volumes": [volume("program", PROGRAM), volume("times", TIMES)],
        },
    })
}
