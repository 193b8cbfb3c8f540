//! The floors: what the least program needs beside the agent on the same node, and for a start on one of its own.

use std::time::Duration;

use winddown_node_tests::Node;

use super::{
    COMMAND_TO_LAST_EXIT, CRITICAL, FIRST_TERM, Figures, GAP, PROGRAM, RELEASE, START, STARTED,
    Seen, TIMES, boot, manifest, times,
};
use crate::clock;
use crate::containers::ContainerBenchError;
use crate::figure::{Figure, millis};
use crate::least::{Notes, VICTIM};
use crate::node::{own_program, unit_environment, unit_nice};
use crate::options::Options;
use crate::pod::PodTimes;
use crate::shutdown::last_gone;

const NOTES: &str = "/var/log/least";
const SOCKET: &str = "/run/containerd/containerd.sock";
const MANIFESTS: &str = "/etc/pods.json";

/// Starts the pods by requests to containerd and nothing else, on a node of its own: the floor of a start.
pub(in crate::containers) async fn start_directly(
    options: &Options,
) -> Result<(&'static str, Figure), ContainerBenchError> {
    let pod = |n| manifest(n, if n < options.critical { CRITICAL } else { 0 }, options.stop);
    let pods = serde_json::Value::from_iter((0..options.pods).map(pod));
    let mut node = boot(|node| {
        node.install(&own_program().map_err(ContainerBenchError::Program)?, PROGRAM)?;
        node.write(&format!("{TIMES}/.keep"), "", 0o644)?;
        Ok(node.write(MANIFESTS, pods.to_string(), 0o644)?)
    })
    .await?;
    let began = clock::now();
    node.run(&[
        "systemd-run",
        "--quiet",
        &format!("--property=Nice={}", unit_nice()),
        PROGRAM,
        "direct",
        SOCKET,
        MANIFESTS,
    ])
    .await?;
    let running = async || times(&node, 0..options.pods).iter().all(|pod| pod.pid.is_some());
    node.wait_until("all pods to run", START, running).await?;
    let started = clock::now().saturating_sub(began);
    node.kill();
    Ok((STARTED, millis(started)))
}

/// Starts the least program beside the pods; its process.
pub(super) async fn start(node: &Node, options: &Options) -> Result<u32, ContainerBenchError> {
    let prefix = format!("{TIMES}/");
    let victim = format!("{prefix}{VICTIM}");
    node.run(&["systemd-run", "--quiet", "--unit=victim", PROGRAM, "pod", &victim, "0"]).await?;
    let runs = async || read(node, &victim).pid.is_some();
    node.wait_until("the victim to run", START, runs).await?;

    let environment: Vec<String> =
        unit_environment().map(|(name, value)| format!("--setenv={name}={value}")).collect();
    let critical = options.critical.to_string();
    let nice = format!("--property=Nice={}", unit_nice());
    let mut command = vec!["systemd-run", "--quiet", "--unit=least", &nice];
    command.extend(environment.iter().map(String::as_str));
    command.extend([PROGRAM, "least", &prefix, &critical, NOTES, SOCKET]);
    node.run(&command).await?;
    let ready = async || notes(node).ready;
    node.wait_until("the least program to wait for the signal", START, ready).await?;
    let show = ["systemctl", "show", "--property=MainPID", "--value", "least"];
    let pid = node.run(&show).await?.trim().parse().ok().and_then(|pid| node.host_pid(pid));
    pid.ok_or(ContainerBenchError::Missing("the least program's process"))
}

/// What it needed for the end of the node.
pub(super) fn floors(
    node: &Node,
    options: &Options,
    seen: &Seen,
) -> Result<Figures, ContainerBenchError> {
    let Seen { command, signal, ordinary, critical, going_on } = seen;
    let notes = notes(node);
    let since = |from: Option<Duration>, to: Option<Duration>| Some(to?.saturating_sub(from?));
    let first = since(Some(*signal), read(node, &format!("{TIMES}/{VICTIM}")).asked);
    let gap = since(last_gone(ordinary), notes.ordinary);
    let told = notes.critical.or(notes.ordinary);
    let told =
        told.ok_or(ContainerBenchError::Missing("the exits that the least program knew of"))?;
    let last = since(last_gone(critical).or_else(|| last_gone(ordinary)), Some(told));
    let release = last.zip(*going_on).map(|(last, going_on)| last + going_on);
    let each = [(FIRST_TERM, first), (GAP, gap), (RELEASE, release)];
    let mut floors: Figures =
        each.into_iter().filter_map(|(what, floor)| Some((what, millis(floor?)))).collect();
    if let (Some(first), Some(gap)) = (first, gap) {
        let to_last = signal.saturating_sub(*command) + first + options.stop + gap + options.stop;
        floors.push((COMMAND_TO_LAST_EXIT, millis(to_last)));
    }
    Ok(floors)
}

fn notes(node: &Node) -> Notes {
    Notes::parse(&node.read(NOTES).unwrap_or_default())
}

fn read(node: &Node, log: &str) -> PodTimes {
    PodTimes::parse(&node.read(log).unwrap_or_default())
}
