//! The arguments of `winddown plan preemption`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use winddown_preemption::Strategy;

use super::TextFormat;

/// How victims are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StrategyChoice {
    /// The kubelet's choice, victim for victim.
    #[default]
    Distance,
    /// The lowest priorities, then the fewest pods.
    Minimal,
}

impl From<StrategyChoice> for Strategy {
    fn from(choice: StrategyChoice) -> Self {
        match choice {
            StrategyChoice::Distance => Self::Distance,
            StrategyChoice::Minimal => Self::Minimal,
        }
    }
}

/// Shows which pods would end so that a critical pod fits.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PlanPreemptionArgs {
    /// Choose for this pod, not the waiting ones: a manifest, for which the running agent is asked,
    /// or cases as JSON objects with `preemptor`, `pods` and `requirements` (`-` reads standard input)
    #[arg(short, long, value_name = "FILE|-")]
    pub file: Option<PathBuf>,
    /// How victims are chosen: distance (as the kubelet) or minimal (lowest priorities, then fewest
    /// pods) [default: distance; the agent: what it is configured with]
    #[arg(long, value_enum, value_name = "STRATEGY", hide_possible_values = true)]
    pub strategy: Option<StrategyChoice>,
    /// Show why each pod would be preempted or kept
    #[arg(long)]
    pub explain: bool,
    /// Output format: text, or json or yaml, one object per case
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
}

const EXAMPLES: &str = "\
Examples:
  winddown plan preemption    # the room on this node, and who waits for some
  winddown plan preemption -f dns.yaml --explain    # for this pod, on this node
  winddown plan preemption -f case.json --explain
  winddown plan preemption -f cases.jsonl --strategy minimal -o json

Without cases the running agent is asked. Nothing is terminated either way.

Each case is an object with `id`, `preemptor` (a pod), `pods`, and
`requirements`, each with `resource` and `quantity` (cpu in thousandths, memory
in bytes); each line has the same `id`, the `victims` in the order in which they
would be preempted, and `error`, why none would. A case that cannot be read
is reported with its line, the others are answered, and the exit code is 1.";
