//! The arguments of each command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::values::{self, PodArgument, TimeArgument};

mod doctor;
mod eviction;
mod install;
mod manual;
mod pods;
mod preemption;
mod wait;

pub use doctor::DoctorArgs;
pub use eviction::PlanEvictionArgs;
pub use install::{InstallArgs, UninstallArgs};
pub use manual::{CompleteArgs, CompletionKind, CompletionsArgs, ManArgs, SchemaArgs, SchemaName};
pub use pods::{DescribeArgs, LogsArgs, RestartArgs};
pub use preemption::{PlanPreemptionArgs, StrategyChoice};
pub use wait::{WaitArgs, WaitCondition};

/// Forms a command's result can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// For people with wide terminals: more columns.
    Wide,
    /// The stable interface for programs.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Forms of a result that has no more columns than these show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// For people.
    #[default]
    Text,
    /// The stable interface for programs.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people.
    #[default]
    Text,
    /// The stable interface for programs.
    Json,
    /// One page for a browser: timeline, table and decisions.
    Html,
}

/// What runs the containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeChoice {
    /// Containers are supervised processes of the host; nothing else is needed.
    Process,
    /// Containers are transient services of systemd.
    Systemd,
    /// Containers are run by containerd or CRI-O.
    Cri,
}

/// Becomes `winddownd`.
#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    /// Put this directory before every path of the configuration (for tests)
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// Shows the node, the lock, the next shutdown, the pods, what is wrong, and the last decisions.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES_STATUS)]
pub struct StatusArgs {
    /// Output format: text, wide (more columns), json or yaml (both are stable interfaces)
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: OutputFormat,
    /// Keep running and show every change: full screen on a terminal, a line per change elsewhere
    #[arg(short, long, conflicts_with_all = ["pods", "namespace"])]
    pub watch: bool,
    /// Only the pods of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Only these pods, NAME or NAMESPACE/NAME [default namespace: default, or that of -n]
    #[arg(value_name = "POD", value_parser = values::pod_name)]
    pub pods: Vec<PodArgument>,
}

const EXAMPLES_STATUS: &str = "\
Examples:
  winddown status
  winddown status -n shop
  winddown status --watch
  winddown status -o json | jq -r '.pods[] | .name + \" \" + .state'

With --watch, -o json prints one JSON object per line.";

/// Shows what would happen; nothing is touched.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    #[command(subcommand)]
    /// What is planned.
    pub command: PlanCommand,
}

/// What is planned.
#[derive(Clone, Debug, Subcommand)]
pub enum PlanCommand {
    /// Show which pods a shutdown would terminate, in which order, with how much time
    ///
    /// Without -f it asks the running agent about the pods that run now, within the time logind
    /// really gives. With -f no agent is needed.
    Shutdown(PlanShutdownArgs),
    /// Show in which order the pods would start after a boot
    ///
    /// Without -f it asks the running agent about the pods of this node. With -f no agent is needed.
    Start(PlanStartArgs),
    /// Show which pods would be preempted for a critical pod, and why
    ///
    /// With -f no agent is needed: each case names the pod that lacks room, the pods beside it and
    /// what is lacking.
    Preemption(PlanPreemptionArgs),
    /// Show in which order pods would be evicted when a resource runs short
    ///
    /// With -f no agent is needed: each case names the signal, the pods and what they use.
    Eviction(PlanEvictionArgs),
}

/// Shows which pods a shutdown would end, in which order, with how many seconds each.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES_PLAN)]
pub struct PlanShutdownArgs {
    /// Plan for these instead of the running pods: a manifests directory, a manifest, or cases as JSON
    /// lines with `config` and `pods` (`-` reads a manifest or cases from standard input)
    #[arg(short, long, value_name = "DIR|FILE|-")]
    pub file: Option<PathBuf>,
    /// Plan for a node that goes away this long after the signal, as after a cloud's notice (units: s, m, h)
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::ahead)]
    pub deadline: Option<Duration>,
    /// What was typed without -f in front of it.
    #[arg(hide = true)]
    pub stray: Option<PathBuf>,
    /// Output format: text, wide, json or yaml (both are stable interfaces)
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: OutputFormat,
}

/// Shows in which order the pods would start after a boot.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown plan start
  winddown plan start -f /etc/winddown/pods -o json
  winddown report --start    # how the last start went")]
pub struct PlanStartArgs {
    /// Plan for these instead of the node's pods: a manifests directory or a manifest
    #[arg(short, long, value_name = "DIR|FILE")]
    pub file: Option<PathBuf>,
    /// Output format: text, json or yaml (both are stable interfaces)
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
}

const EXAMPLES_PLAN: &str = "\
Examples:
  winddown plan shutdown
  winddown plan shutdown --deadline 30s    # what if a cloud gave no more?
  winddown plan shutdown -f /etc/winddown/pods --config ./new-config.yaml
  winddown plan shutdown -f cases.jsonl -o json

JSON lines: each line read is an object with `id`, `config` (shutdown fields)
and `pods`; each line printed has the same `id` and the `groups`, each with
priority, seconds and pods. A line that cannot be planned is reported with its
number, the others are planned, and the exit code is 1.

A manifest in DIR that is wrong, and a pod that the configured runtime refuses,
are named and left out, and the exit code is 3.";

/// Rehearses a shutdown: a real agent, real pods, a shutdown signal, live progress and the report.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown drill
  winddown drill /usr/share/winddown/examples/node
  winddown drill --delay 5s    # what if logind waits only 5 s?

Exit codes: 0 all pods terminated in time, 5 some ran on or needed SIGKILL.")]
pub struct DrillArgs {
    /// The pods to rehearse with, a directory or one manifest [default: a built-in set]
    #[arg(value_name = "DIR|FILE")]
    pub pods: Option<PathBuf>,
    /// How long the stand-in logind waits (units: ms, s, m, h) [default: as long as the plan wants]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::delay)]
    pub delay: Option<Duration>,
    /// How long pods without a readiness probe run before they are asked to terminate: a program that has only just been started
    /// may not handle SIGTERM yet (units: ms, s, m, h)
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::duration, default_value = "1s")]
    pub settle: Duration,
    /// Output format: text, json or yaml; the last two print nothing but the report
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
    /// Keep the pods' logs and state, and say where they are
    #[arg(long)]
    pub keep: bool,
    /// Rehearse with the pods of this node's own directory too, although the node runs them: each program runs twice
    #[arg(long)]
    pub twice: bool,
}

/// Shows how the last shutdown went, pod by pod.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown report
  winddown report --list
  winddown report -b -1    # of the boot before this one, as in journalctl
  winddown report -o json | jq '.outcome'
  winddown report -o html > shutdown.html
  winddown report --check    # exit code 5 if pods ran on or needed SIGKILL")]
pub struct ReportArgs {
    /// Which boot's shutdown: 0 is this boot, -1 the one before it, and so on, as in journalctl; boots
    /// without a report do not count
    #[arg(
        short,
        long,
        value_name = "N",
        allow_negative_numbers = true,
        num_args = 0..=1,
        default_missing_value = "0",
        value_parser = values::boot,
        conflicts_with = "id"
    )]
    pub boot: Option<i32>,
    /// One report by its id, as --list shows it
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// One report from a file, of this node or another
    #[arg(long, value_name = "FILE", conflicts_with_all = ["boot", "id"])]
    pub file: Option<PathBuf>,
    /// How the pods last started in order: what waited for what, and how long
    #[arg(long, conflicts_with_all = ["boot", "id", "list", "check"])]
    pub start: bool,
    /// List the reports that are kept, the newest first
    #[arg(short, long, conflicts_with_all = ["boot", "id", "file", "check"])]
    pub list: bool,
    /// Exit with code 5 if pods were left running or needed SIGKILL, or if that is unknown; by
    /// default, this checks the last run that had pods
    #[arg(long)]
    pub check: bool,
    /// Output format: text, json (a stable interface) or html (a page with a picture)
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: ReportFormat,
}

/// Terminates this node's pods in shutdown order; the node stays up, or goes away at a given time.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown drain
  winddown drain --timeout 2m
  winddown drain --deadline 90s --reason 'battery at 5 %'
  winddown undrain
  winddown drain -o json    # one JSON object per line and event

A deadline is hard: nothing is planned past it. It
can be given while a shutdown is under way, which then takes less time, and it
stays in effect, even if the agent restarts, until `winddown undrain` or the
node comes up again. The same is true of a drain.

Beside a kubelet, a drain asks disruption budgets; with `mode: cluster` it does
not: to have them asked, use `kubectl drain` first.

Needs root, or membership in the group that controlSocketGroup names.
Exit codes: 0 all pods terminated in time, or are left to the node's shutdown;
5 some were left running or needed SIGKILL, or it was cancelled; 6 refused.")]
pub struct DrainArgs {
    /// The longest time it may take (units: s, m, h) [default: the configured shutdown period]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::grace)]
    pub timeout: Option<Duration>,
    /// When the node goes away: a duration from now (units: s, m, h), unaffected by clock changes, or a
    /// time such as 2026-11-20T12:00:00Z
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = values::when, conflicts_with = "timeout")]
    pub deadline: Option<TimeArgument>,
    /// Why, for the report; with --deadline for the status as well
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Output format: text, or one object per event as json or yaml
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
}

/// Terminates one pod and waits until it is gone: preStop, SIGTERM, grace, SIGKILL.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown kill web-node1
  winddown kill shop/web-node1 --grace 5s

To keep a manifest's pod out, remove its manifest.

Needs root, or membership in the group that controlSocketGroup names.
Exit codes: 0 the pod exited by itself, 5 it needed SIGKILL or still runs,
6 refused.")]
pub struct KillArgs {
    /// The pod, NAME or NAMESPACE/NAME [default namespace: default]
    #[arg(value_name = "POD", value_parser = values::pod_name)]
    pub pod: PodArgument,
    /// Time until SIGKILL, at most 2s more if a preStop hook takes it all: whole seconds, at least 1s [default: the pod's own]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::grace)]
    pub grace: Option<Duration>,
    /// Only if the pod has this UID
    #[arg(long, value_name = "UID")]
    pub uid: Option<String>,
    /// Output format: text, json or yaml
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
}

/// Lets shutdowns through although a pod holds them.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown release batch/backup-node1 && systemctl poweroff

Needs root, or membership in the group that controlSocketGroup names.")]
pub struct ReleaseArgs {
    /// The pod, NAME or NAMESPACE/NAME [default namespace: default]
    #[arg(value_name = "POD", value_parser = values::pod_name)]
    pub pod: PodArgument,
    /// Output format: text, json or yaml
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
}

/// Lets pods in again after a drain.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown undrain

Needs root, or membership in the group that controlSocketGroup names.
Exit codes: 0 pods are admitted, 6 refused, or pods are still not admitted.")]
pub struct UndrainArgs {
    /// Output format: text, json or yaml
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
}

/// Checks or shows the configuration.
#[derive(Clone, Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    /// What to do with it.
    pub command: ConfigCommand,
}

/// What to do with the configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file: says what is wrong, with file, line and field
    #[command(after_help = "\
Examples:
  winddown config check
  winddown config check ./new-config.yaml

Exit codes: 0 valid (also with warnings), 3 invalid, 10 not there.")]
    Check {
        /// The file to check [default: the one --config names]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show the configuration with all defaults filled in, as YAML
    #[command(after_help = "\
Examples:
  winddown config show             # what the file says
  winddown config show --running   # what the running agent uses")]
    Show {
        /// Ask the running agent instead of reading the file
        #[arg(long)]
        running: bool,
    },
    /// Print the JSON schema of the configuration, for editors and programs that write one
    #[command(after_help = "\
Examples:
  winddown config schema > winddown.schema.json")]
    Schema,
    /// Print the default configuration as commented YAML
    #[command(after_help = "\
Examples:
  winddown config default > /etc/winddown/config.yaml")]
    Default,
}

/// Prints the version.
#[derive(Clone, Debug, Args)]
pub struct VersionArgs {
    /// Output format: text, json or yaml
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
}

/// Holds one container.
#[derive(Clone, Debug, Args)]
pub struct ShimArgs {
    /// What the agent hands over.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<OsString>,
}
