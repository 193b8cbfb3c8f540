//! The arguments of `winddown wait`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::values;

/// Waits until something is true of the node.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown wait --for=lock
  winddown wait --for=drained --timeout 5m
  winddown wait --for=report && winddown report --check    # after a boot

An agent that does not run yet, or restarts, is waited for as well.
Exit codes: 0 it is true, 1 it was not in time, 4 the agent was not reached.")]
pub struct WaitArgs {
    /// What to wait for: lock (the shutdown lock is held), protected (the pods would terminate in order and in time),
    /// drained (a drain has finished), or report (it is known how the node last went down)
    #[arg(long = "for", value_enum, value_name = "CONDITION", hide_possible_values = true)]
    pub condition: WaitCondition,
    /// How long to wait (units: ms, s, m, h)
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::delay, default_value = "30s")]
    pub timeout: Duration,
}

/// What `winddown wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitCondition {
    /// The login manager waits for the agent.
    Lock,
    /// The node's pods would terminate in order and in time at a shutdown.
    Protected,
    /// A drain has finished.
    Drained,
    /// It is known how the node went down before this boot.
    Report,
}

impl WaitCondition {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lock => "the shutdown lock",
            Self::Protected => "protection",
            Self::Drained => "the drain",
            Self::Report => "the report",
        }
    }
}
