//! An agent with a custom controller: pods older than a maximum age are ended, the lowest priority first.
//!
//! ```text
//! cargo run -p winddown-node --example max_age -- DIRECTORY SECONDS
//! ```
//!
//! Pods are programs of this host, from the manifests in `DIRECTORY/pods`; `winddown --socket
//! DIRECTORY/agent.sock status` shows them. README.md explains the parts.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use winddown_host::machine::wall_clock;
use winddown_node::{Node, Product, Shutdown, SystemdService, block_on};
use winddown_runtimes::process::{ProcessConfig, ProcessRuntime, ShimCommand, shim};
use winddown_shared::display::duration;
use winddown_shared::{
    Counter, NodeHandle, NodePod, Plugin, PluginMetric, PluginName, Pod, ShutdownPoint,
    ShutdownWork, TerminationSpec, WallTime,
};
use winddown_shutdown::Policy;
use winddown_systemd::LogindInhibitor;

const NAME: PluginName = PluginName::new("max-age");

/// A plug-in that ends pods older than `oldest`, one after the other.
struct MaxAge {
    oldest: Duration,
    looks: Counter,
    /// The file that the ages are written to at a shutdown.
    ages: PathBuf,
}

impl Plugin for MaxAge {
    fn name(&self) -> PluginName {
        NAME
    }

    fn metrics(&self) -> Vec<PluginMetric> {
        vec![(&self.looks).into()]
    }

    fn at_shutdown(&self, node: &NodeHandle) -> Vec<ShutdownWork> {
        let (node, file) = (node.clone(), self.ages.clone());
        let (what, point) = ("write down the ages of the pods", ShutdownPoint::BeforePods);
        vec![ShutdownWork::new(NAME, what, point, Duration::from_secs(2), move |_| {
            let (ages, file) = (ages(&node.pods(), node.now()), file.clone());
            async move { Ok(tokio::fs::write(file, ages).await.map_err(|error| error.to_string())?) }
        })]
    }

    fn run(self: Box<Self>, node: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (mut pods, mut gate) = (node.changes(), node.gate());
            loop {
                // Changes from here on wake the `select!` below.
                pods.borrow_and_update();
                gate.borrow_and_update();
                self.looks.inc();
                if let Some(ending) = node.terminate(|pods| self.choose(pods, node.now())) {
                    // A pod that does not end in time is still terminating.
                    let _ = ending.wait().await;
                    continue;
                }
                let next = self.until_next(&node.pods(), node.now());
                node.set_status_line(match next {
                    Some(wait) => format!("the next pod is too old in {}", duration(wait)),
                    None => "no pod grows too old".to_owned(),
                });
                // While the gate is closed, the next pod may be too old already.
                let next = next.filter(|_| gate.borrow().is_empty());
                tokio::select! {
                    changed = pods.changed() => if changed.is_err() { return },
                    changed = gate.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(next.unwrap_or(Duration::MAX)) => {}
                }
            }
        })
    }
}

impl MaxAge {
    fn new(oldest: Duration, ages: PathBuf) -> Self {
        let looks = Counter::new("max_age_looks", "How often ages were compared");
        Self { oldest, looks, ages }
    }

    /// Chooses, of the pods that are too old, the one with the lowest priority, and of several the oldest.
    fn choose(&self, pods: &[NodePod], now: WallTime) -> Option<(Pod, TerminationSpec)> {
        let old = pods.iter().filter_map(|one| {
            let age = age(one, now)?;
            (age >= self.oldest).then_some((
                one.pod.priority_or_zero(),
                one.started_at,
                age,
                &one.pod,
            ))
        });
        let (.., age, pod) = old.min_by_key(|(priority, started, ..)| (*priority, *started))?;
        let message =
            format!("It ran for {}, and {} is allowed", duration(age), duration(self.oldest));
        Some((pod.clone(), TerminationSpec::new("TooOld", message)))
    }

    /// How long it takes until the next pod is too old.
    fn until_next(&self, pods: &[NodePod], now: WallTime) -> Option<Duration> {
        pods.iter().filter_map(|pod| Some(self.oldest.saturating_sub(age(pod, now)?))).min()
    }
}

fn age(pod: &NodePod, now: WallTime) -> Option<Duration> {
    now.duration_since(pod.started_at?).try_into().ok()
}

/// A line for each pod that has started.
fn ages(pods: &[NodePod], now: WallTime) -> String {
    let line =
        |one: &NodePod| Some(format!("{} {}\n", one.pod.pod_ref(), duration(age(one, now)?)));
    pods.iter().filter_map(line).collect()
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(first) = args.next() else { return usage() };
    // This program is also the shim, which must start before any thread exists, because it is single-threaded.
    if first == "shim" {
        return shim::run(args, &wall_clock());
    }
    let seconds = args.next().and_then(|text| text.to_str()?.parse().ok());
    let Some(oldest) = seconds.map(Duration::from_secs) else { return usage() };
    match block_on(run(first.as_ref(), oldest)).map_err(Into::into).and_then(|ended| ended) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("max_age: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: max_age DIRECTORY SECONDS");
    ExitCode::from(2)
}

async fn run(directory: &Path, oldest: Duration) -> Result<(), Box<dyn Error>> {
    let service = SystemdService::new(&Product::default())?;
    let state = directory.join("state");
    let process = ProcessConfig::new(
        state.join("process"),
        directory.join("logs"),
        ShimCommand::subcommand("shim"),
        wall_clock(),
    );
    let runtime = Arc::new(ProcessRuntime::open(process).await?);
    let policy = Policy::default();
    let logind = LogindInhibitor::start(service.inhibitor(policy.delay_wanted()));
    let shutdown = Shutdown::new(Arc::new(logind), policy, &state);
    let handle = shutdown.handle();

    let node = Node::builder(runtime)
        .state_directory(directory.join("run"))
        .manifests(directory.join("pods"))
        .plugin(shutdown)
        .plugin(MaxAge::new(oldest, directory.join("ages")))
        .start()?;
    node.serve(directory.join("agent.sock")).await?;
    // Until SIGTERM, or a task that the node depends on fails. The pods continue for the next agent, unless the machine
    // goes down.
    Ok(service.run(&node, &handle).await?)
}
