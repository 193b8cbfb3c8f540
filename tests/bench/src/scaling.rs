//! More and more pods: what memory, CPU and the time of a shutdown do.

mod memory;

use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_node_tests::usage::{self, Watch};
use winddown_shared::Pod;

use crate::figure::{exact, megabytes, millis};
use crate::node::{TestNode, own_program};
use crate::options::Options;
use crate::table::Grid;
use crate::{idle, shutdown};

pub(crate) use memory::InMemory;

/// How many pods there are, unless told otherwise.
const PODS: [usize; 4] = [10, 100, 1000, 5000];
/// How long a pod takes to stop; there are two groups.
const STOP: Duration = Duration::from_secs(1);
/// How long an idle agent is watched.
const IDLE: Duration = Duration::from_secs(10);
/// Whole runs with containers in memory; the one whose overhead is the median counts.
const ROUNDS: usize = 5;

/// What so many pods came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Run {
    pods: usize,
    /// Resident, in bytes.
    memory: u64,
    /// The part of it that came with the pods, where that can be told.
    with_pods: u64,
    /// Processor time of the agent, from the signal to the lock's release.
    cpu: Duration,
    /// From the signal to the lock's release, less what the pods took.
    overhead: Duration,
    /// Hundredths of a processor while nothing happens.
    idle: Option<f64>,
}

/// Measures with containers in memory, each number of pods in a process of its own.
pub(crate) fn in_memory(pods: &[usize]) -> Result<Grid, String> {
    let mut grid = grid(&format!(
        "containers in memory: pod workers, statuses, shutdown with record and report on disk; {STOP:?} \
         each to stop, two groups, median of {ROUNDS} runs"
    ));
    let mut before = None;
    for pods in or_all(pods) {
        let mut runs = (0..ROUNDS).map(|_| in_own_process(pods)).collect::<Result<Vec<_>, _>>()?;
        runs.sort_by_key(|run| run.overhead);
        let run = runs[ROUNDS / 2];
        grid.row(cells(&run, before.as_ref()));
        before = Some(run);
    }
    Ok(grid)
}

/// The same with the real agent and processes as pods, as far as this machine bears it.
pub(crate) async fn processes(pods: &[usize]) -> Result<Grid, String> {
    let mut grid = grid(&format!(
        "processes: the real agent, stand-in for logind; {STOP:?} each to stop, two groups; every pod is \
         two processes, its own and its supervisor"
    ));
    let mut before = None;
    for pods in or_all(pods) {
        let options =
            Options { pods, critical: pods / 5, stop: STOP, idle: IDLE, ..Options::default() };
        let run = with_processes(&options).await.map_err(|error| error.to_string())?;
        grid.row(cells(&run, before.as_ref()));
        before = Some(run);
    }
    Ok(grid)
}

/// One run with containers in memory, as JSON: what the process of its own prints.
pub(crate) async fn once(pods: String) -> Result<String, String> {
    let count: usize = pods.parse().map_err(|_| format!("{pods}: not a whole number"))?;
    let pods: Vec<Pod> = (0..count).filter_map(|i| memory::pod(i, i < count / 5)).collect();
    let empty = usage::own_memory();
    let node = InMemory::new(STOP).map_err(|error| error.to_string())?;
    node.start(&pods).await;
    let memory = usage::own_memory();
    let mut watch = Watch::new(vec![std::process::id()]);
    let took = node.shut_down().await?;
    watch.look();
    let run = Run {
        pods: count,
        memory,
        with_pods: memory.saturating_sub(empty),
        cpu: watch.used().cpu,
        overhead: took.saturating_sub(STOP * 2),
        idle: None,
    };
    serde_json::to_string(&run).map_err(|error| error.to_string())
}

/// Starts so many pods that are read as an API server sends them, and never lets go of them: what the heap holds at
/// the end is what they take.
pub(crate) async fn held(pods: String) -> Result<String, String> {
    let count: usize = pods.parse().map_err(|_| format!("{pods}: not a whole number"))?;
    let read = |i| {
        let text = serde_json::to_vec(&*memory::pod(i, false)?).ok()?;
        Pod::new(serde_json::from_slice(&text).ok()?).ok()
    };
    let pods: Vec<Pod> = (0..count).filter_map(read).collect();
    let node = InMemory::new(STOP).map_err(|error| error.to_string())?;
    node.start(&pods).await;
    drop(pods);
    // Not the node: its directories are to go.
    std::mem::forget(node.workers().clone());
    Ok(format!("{count} pods"))
}

async fn with_processes(options: &Options) -> Result<Run, crate::node::BenchError> {
    let node = TestNode::start(options).await?;
    idle::settle().await;
    let agent = node.agent_pid()?;
    let mut watch = Watch::new(vec![agent]);
    let span = idle::watch(&mut [&mut watch], options.idle).await;
    let idle = watch.used().cpu.as_secs_f64() / span.as_secs_f64() * 100.0;
    let memory = usage::memory(agent);
    let mut watch = Watch::new(vec![agent]);
    let took = shutdown::run(&node).await?;
    watch.look();
    Ok(Run {
        pods: options.pods,
        memory: memory.resident,
        with_pods: memory.anonymous,
        cpu: watch.used().cpu,
        overhead: took.saturating_sub(options.stop * 2),
        idle: Some(idle),
    })
}

fn in_own_process(pods: usize) -> Result<Run, String> {
    let program = own_program().map_err(|error| error.to_string())?;
    let ran = Command::new(program).args(["scaling-once", &pods.to_string()]).output();
    let ran = ran.map_err(|error| error.to_string())?;
    serde_json::from_slice(&ran.stdout)
        .map_err(|_| format!("{pods} pods: {}", String::from_utf8_lossy(&ran.stderr)))
}

fn or_all(pods: &[usize]) -> Vec<usize> {
    if pods.is_empty() { PODS.to_vec() } else { pods.to_vec() }
}

fn grid(title: &str) -> Grid {
    let head = [
        "pods",
        "memory",
        "of it heap",
        "per pod",
        "idle CPU",
        "CPU of the shutdown",
        "per pod",
        "shutdown beyond the pods' own time",
        "per pod",
        "times the pods, times the CPU",
    ];
    Grid::titled(title.to_owned(), &head)
}

fn cells(run: &Run, before: Option<&Run>) -> Vec<String> {
    let pods = u32::try_from(run.pods).unwrap_or(u32::MAX).max(1);
    let growth = before.map(|before| {
        let (pods, cpu) = (run.pods / before.pods.max(1), run.cpu.as_secs_f64());
        format!("{pods} ×, {:.1} ×", cpu / before.cpu.as_secs_f64().max(1e-9))
    });
    vec![
        run.pods.to_string(),
        megabytes(run.memory).to_string(),
        megabytes(run.with_pods).to_string(),
        format!("{:.1} kB", exact(run.with_pods) / f64::from(pods) / 1e3),
        run.idle.map_or_else(String::new, |idle| format!("{idle:.3} %")),
        millis(run.cpu).to_string(),
        crate::figure::micros(run.cpu / pods).to_string(),
        millis(run.overhead).to_string(),
        crate::figure::micros(run.overhead / pods).to_string(),
        growth.unwrap_or_default(),
    ]
}
