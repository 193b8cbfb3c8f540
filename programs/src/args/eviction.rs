//! The arguments of `winddown plan eviction`.

use std::path::PathBuf;

use clap::Args;
use winddown_eviction::Signal;

use super::TextFormat;

/// Shows in which order pods would end when the node runs short of something.
///
/// Without a file the running agent says it of its own node, for what is nearest to its threshold.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PlanEvictionArgs {
    /// Rank the pods of these cases: JSON objects, each with `signal`, `pods` and `stats` (`-` reads
    /// standard input)
    #[arg(short, long, value_name = "FILE|-")]
    pub file: Option<PathBuf>,
    /// Ask the agent for this signal, for example memory.available
    #[arg(long, value_name = "SIGNAL", conflicts_with = "file")]
    pub signal: Option<Signal>,
    /// Show each pod's usage and requests, and why it would be evicted or kept
    #[arg(long)]
    pub explain: bool,
    /// Output format: text, json or yaml, one object per case
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
}

const EXAMPLES: &str = "\
Examples:
  winddown plan eviction
  winddown plan eviction --signal nodefs.available --explain
  winddown plan eviction -f case.json --explain
  winddown plan eviction -f cases.jsonl -o json

Each case is an object with `id`, `signal` (memory.available, …), `pods`, and
`stats`, each with the pod's `name` and what it uses: `memoryWorkingSetBytes`,
`diskUsedBytes`, `inodesUsed`, `processCount`. Each line has the same `id`, and
in `order` the names of the pods as the kubelet would evict them, pods
without figures first. A running agent never evicts a pod that it could not
measure: --explain says so. A case that cannot be read is reported with its
line, the others are answered, and the exit code is 1.";
