//! A whole agent. Pods are programs of this host, from the manifests in `DIRECTORY/pods`. They end in order before the
//! machine goes down; some end for a critical pod, when memory runs short, or because they are too old.
//!
//! ```text
//! cargo run -p winddown-node --example agent -- DIRECTORY [MEMORY [AGE]]
//! ```
//!
//! `MEMORY` is what stays available, 100Mi by default, and `AGE` is in seconds. `winddown --socket DIRECTORY/agent.sock
//! status` shows the node.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use winddown_node::eviction::{self, ThresholdConfig};
use winddown_node::host::UsagePaths;
use winddown_node::host::machine::wall_clock;
use winddown_node::preemption::Strategy;
use winddown_node::runtimes::process::{ProcessConfig, ProcessRuntime, ShimCommand, shim};
use winddown_node::shared::{NodeHandle, NodePod, Plugin, PluginName, Pod, TerminationSpec};
use winddown_node::systemd::LogindInhibitor;
use winddown_node::{
    BoxFuture, Eviction, Machine, Node, Preemption, Product, Settings, Shutdown, SystemdService,
    block_on, shutdown,
};

/// A controller: ends pods that have run for longer than this, the oldest first.
struct MaxAge(Duration);

impl Plugin for MaxAge {
    fn name(&self) -> PluginName {
        PluginName::new("max-age")
    }

    fn run(self: Box<Self>, node: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                match node.terminate(|pods| self.choose(pods, &node)) {
                    // A pod that does not end in time is still terminating.
                    Some(ending) => drop(ending.wait().await),
                    None => tokio::time::sleep(Duration::from_secs(1)).await,
                }
            }
        })
    }
}

impl MaxAge {
    fn choose(&self, pods: &[NodePod], node: &NodeHandle) -> Option<(Pod, TerminationSpec)> {
        let oldest =
            pods.iter().filter(|pod| pod.started_at.is_some()).min_by_key(|pod| pod.started_at)?;
        let age: Duration = node.now().duration_since(oldest.started_at?).try_into().ok()?;
        let message =
            format!("It ran for {} s, and {} s are allowed.", age.as_secs(), self.0.as_secs());
        let ending = TerminationSpec::new("TooOld", message);
        (age > self.0).then(|| (oldest.pod.clone(), ending))
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    // The supervisor of each container is this program again. It has one thread, so it comes before tokio's.
    if first == "shim" {
        return shim::run(arguments, &wall_clock());
    }
    let mut options = arguments.filter_map(|argument| argument.into_string().ok());
    let memory = options.next().unwrap_or_else(|| "100Mi".to_owned());
    let age = options.next().and_then(|seconds| seconds.parse().ok()).unwrap_or(86_400);
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let agent = block_on(agent(first.into(), memory, Duration::from_secs(age)));
    match agent.map_err(Into::into).and_then(|ended| ended) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn agent(directory: PathBuf, memory: String, age: Duration) -> Result<(), Box<dyn Error>> {
    let product = Product::new("example-agent", env!("CARGO_PKG_VERSION"));
    let directory = std::path::absolute(directory)?;
    // What outlives the boot, and what outlives only the agent: an agent's is in memory, such as below /run.
    let (state, run) = (directory.join("state"), directory.join("run"));
    std::fs::create_dir_all(&state)?;
    std::fs::create_dir_all(&run)?;

    let service = SystemdService::new(&product)?;
    let policy = shutdown::Policy::default();
    let logind = LogindInhibitor::start(service.inhibitor(policy.delay_wanted()));
    let shutdown = Shutdown::new(Arc::new(logind), policy, &state);
    let handle = shutdown.handle();

    let shim = ShimCommand::subcommand("shim");
    let logs = directory.join("logs");
    let mut process = ProcessConfig::new(state.join("process"), logs, shim, wall_clock());
    process.volatile_dir = Some(run.join("process"));
    let runtime = Arc::new(ProcessRuntime::open(process).await?);

    let memory = [("memory.available", memory)];
    let thresholds = ThresholdConfig::default().with_hard(memory).thresholds()?;
    let measured = UsagePaths::of_host(&state);
    let mut settings = Settings { runtime: "process".to_owned(), ..Settings::default() };
    settings.reserved.max_pods = 4;

    let node = Node::builder(runtime)
        .product(product)
        .settings(settings)
        .machine(Machine::of_host(&state))
        .state_directory(&run)
        .manifests(directory.join("pods"))
        .plugin(shutdown)
        .plugin(Preemption::new(Strategy::Minimal))
        .plugin(Eviction::new(measured, eviction::Policy::new(thresholds, false)))
        .plugin(MaxAge(age))
        .start()?;
    node.serve(directory.join("agent.sock")).await?;
    // Until SIGTERM, or a task that the node depends on fails. The pods continue for the next agent, unless the machine
    // goes down.
    Ok(service.run(&node, &handle).await?)
}
