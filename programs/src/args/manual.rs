//! The arguments of `winddown schema`, `winddown man` and `winddown completions`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Prints the JSON schema of a command's JSON output, or of the configuration.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown schema status
  winddown schema plan-shutdown
  winddown schema config > config.schema.json

A schema describes the answers of this version and names every field; later
versions may add some. Names that end in -line are schemas of one line of what
-f FILE -o json prints.")]
pub struct SchemaArgs {
    /// Which schema: config, status, plan-shutdown, plan-shutdown-line, plan-preemption,
    /// plan-preemption-line, plan-eviction, plan-eviction-line, plan-start, report, report-list,
    /// start-report, doctor, drain (one event), undrain, kill, release, termination-notice or version
    #[arg(value_enum, value_name = "NAME", hide_possible_values = true)]
    pub name: Option<SchemaName>,
    /// Print the names, as when no name is given
    #[arg(long, conflicts_with = "name")]
    pub list: bool,
}

/// What there is a schema of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaName {
    /// The configuration.
    Config,
    /// `status -o json`, and each line of `status --watch -o json`.
    Status,
    /// `plan shutdown -o json`.
    PlanShutdown,
    /// One line of `plan shutdown -f FILE -o json`.
    PlanShutdownLine,
    /// `plan preemption -o json`.
    PlanPreemption,
    /// One line of `plan preemption -f FILE -o json`.
    PlanPreemptionLine,
    /// `plan eviction -o json`.
    PlanEviction,
    /// One line of `plan eviction -f FILE -o json`.
    PlanEvictionLine,
    /// `plan start -o json`.
    PlanStart,
    /// `report -o json` and `drill -o json`.
    Report,
    /// `report --list -o json`.
    ReportList,
    /// `report --start -o json`.
    StartReport,
    /// `doctor -o json`.
    Doctor,
    /// One line of `drain -o json`.
    Drain,
    /// `undrain -o json`.
    Undrain,
    /// `kill -o json`.
    Kill,
    /// `release -o json`.
    Release,
    /// The notice that a terminating pod reads.
    TerminationNotice,
    /// `version -o json`.
    Version,
}

/// Prints a page of the manual, or writes all of them.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown man plan shutdown
  winddown man winddown.yaml | man -l -
  winddown man --dir ./man    # all of them: man1, man5 and man8 below ./man")]
pub struct ManArgs {
    /// The page: a command, winddown.yaml, winddown.service, winddownd or winddown-shim
    #[arg(value_name = "PAGE", default_value = "winddown", conflicts_with = "dir")]
    pub page: Vec<String>,
    /// Write every page below this directory instead
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Prints a shell's completion script.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown completions bash > /usr/share/bash-completion/completions/winddown
  source <(winddown completions zsh)")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Prints what there is of a kind.
#[derive(Clone, Debug, Args)]
pub struct CompleteArgs {
    /// The kind.
    #[arg(value_enum)]
    pub kind: CompletionKind,
}

/// Kinds of things that a shell completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionKind {
    /// The node's pods.
    Pods,
    /// The IDs of the reports that are kept.
    Reports,
    /// The signals of eviction.
    Signals,
    /// The containers of the node's pods.
    Containers,
}
