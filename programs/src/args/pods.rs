//! The arguments of the commands about one pod that change nothing, and of `winddown restart`.

use std::time::Duration;

use clap::Args;

use crate::values::{self, PodArgument};

/// Shows all that is known of one pod.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown describe web-node1
  winddown describe shop/web-node1")]
pub struct DescribeArgs {
    /// The pod, NAME or NAMESPACE/NAME [default namespace: default]
    #[arg(value_name = "POD", value_parser = values::pod_name)]
    pub pod: PodArgument,
}

/// Prints the output of a container.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown logs web-node1
  winddown logs -f --tail 20 shop/web-node1
  winddown logs -p web-node1 -c proxy    # of the run before, after a crash

Needs root, or membership in the group that controlSocketGroup names.")]
pub struct LogsArgs {
    /// The pod, NAME or NAMESPACE/NAME [default namespace: default]
    #[arg(value_name = "POD", value_parser = values::pod_name)]
    pub pod: PodArgument,
    /// The container [default: the pod's first one]
    #[arg(short, long, value_name = "NAME", value_parser = values::container_name)]
    pub container: Option<String>,
    /// Keep running, and print what the container writes until it exits
    #[arg(short, long)]
    pub follow: bool,
    /// Print the output of the previous run
    #[arg(short, long, conflicts_with = "follow")]
    pub previous: bool,
    /// Print the last N lines only
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = values::lines)]
    pub tail: Option<u64>,
    /// Begin each line with its time
    #[arg(long)]
    pub timestamps: bool,
}

/// Terminates one pod of a manifest, which then starts again.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown restart web-node1
  winddown restart shop/web-node1 --grace 5s

Refused if the pod would not start again: it comes from the API server, or the
node admits no pods.

Needs root, or membership in the group that controlSocketGroup names.
Exit codes: 0 the pod has terminated and starts again, unless it has completed;
5 it still runs, 6 refused.")]
pub struct RestartArgs {
    /// The pod, NAME or NAMESPACE/NAME [default namespace: default]
    #[arg(value_name = "POD", value_parser = values::pod_name)]
    pub pod: PodArgument,
    /// Time until SIGKILL, at most 2s more if a preStop hook takes it all: whole seconds, at least 1s [default: the pod's own]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::grace)]
    pub grace: Option<Duration>,
}
