//! The command line of winddown, and the implementation of its commands.

mod args;
mod ask;
mod become_program;
mod cases;
mod completions;
mod config;
mod describe;
mod doctor;
mod drain;
mod drill;
mod end_signals;
mod exit;
mod install;
mod kill;
mod logs;
pub mod man;
mod mistyped;
mod output;
mod plan;
mod plan_eviction;
mod plan_preemption;
mod plan_room;
mod release;
mod report;
pub mod schema;
mod status;
#[cfg(test)]
mod tests;
mod values;
mod wait;
mod watch;

use clap::{CommandFactory, Parser, Subcommand};

pub use args::{
    AgentArgs, CompleteArgs, CompletionKind, CompletionsArgs, ConfigArgs, ConfigCommand,
    DescribeArgs, DoctorArgs, DrainArgs, DrillArgs, InstallArgs, KillArgs, LogsArgs, ManArgs,
    OutputFormat, PlanArgs, PlanCommand, PlanEvictionArgs, PlanPreemptionArgs, PlanShutdownArgs,
    PlanStartArgs, ReleaseArgs, ReportArgs, ReportFormat, RestartArgs, RuntimeChoice, SchemaArgs,
    SchemaName, ShimArgs, StatusArgs, StrategyChoice, TextFormat, UndrainArgs, UninstallArgs,
    VersionArgs, WaitArgs, WaitCondition,
};
pub use exit::{CommandError, Exit};
pub use output::{ColorChoice, Output};

use exit::EXIT_CODES;
use winddown_control::api::{Envelope, VersionAnswer};

/// Terminates a node's pods in the right order, in time, and explains itself.
///
/// winddown delays the node's shutdown with a logind lock until its pods have terminated in order, each
/// within its grace period.
#[derive(Debug, Parser)]
#[command(
    name = "winddown",
    version,
    after_help = EXIT_CODES,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(flatten)]
    /// Options every command takes.
    pub global: GlobalArgs,
    #[command(subcommand)]
    /// What to do.
    pub command: Command,
}

/// Options every command takes.
#[derive(Clone, Debug, clap::Args)]
pub struct GlobalArgs {
    /// The running agent's control socket
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "WINDDOWN_SOCKET",
        default_value = winddown_control::DEFAULT_SOCKET,
        hide_env_values = true,
        help_heading = "Global options"
    )]
    pub socket: std::path::PathBuf,
    /// The configuration file [default: /etc/winddown/config.yaml]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "WINDDOWN_CONFIG",
        hide_env_values = true,
        help_heading = "Global options"
    )]
    pub config: Option<std::path::PathBuf>,
    /// When to use colour: always, never, or auto (on a terminal, unless NO_COLOR is set)
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t = ColorChoice::Auto,
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    pub color: ColorChoice,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Run winddownd, as units of earlier versions do
    #[command(hide = true)]
    Agent(AgentArgs),
    /// Show the node, the lock, the pods and the last decisions
    ///
    /// The answer comes from the agent's memory: it works while the runtime, logind or the disk
    /// hangs.
    Status(StatusArgs),
    /// Show all that is known of one pod
    ///
    /// Its containers, how each exited last, where its log is, what a shutdown would do with it, and the last decisions
    /// about it.
    Describe(DescribeArgs),
    /// Print the output of a container
    ///
    /// What the container runtime has logged, as the container wrote it. On a terminal, colours are left out and other
    /// control characters are shown as text.
    Logs(LogsArgs),
    /// Show what would happen; nothing is touched
    Plan(PlanArgs),
    /// Rehearse a shutdown with real pods; the machine stays up
    ///
    /// The machine stays up and the installed agent is not touched: the signal comes from a stand-in for logind on a
    /// private connection. But the pods are real: their programs run on this machine, with its files and ports, and so do
    /// their hooks. Where the same programs run already, they run twice.
    Drill(DrillArgs),
    /// Show how the last shutdown went, pod by pod
    ///
    /// The report is written before the node goes down. It is read from the running agent, or from
    /// the state directory when no agent answers.
    Report(ReportArgs),
    /// Check whether this node is protected, and how to fix what is not
    ///
    /// Nothing is changed. Works with or without a running agent, as root or as another user: a check that
    /// cannot be made is reported, and one that hangs is a finding.
    Doctor(DoctorArgs),
    /// Terminate this node's pods in shutdown order; the node stays up
    ///
    /// Progress is shown per group. Interrupting this command does not interrupt the drain:
    /// `undrain` does. Manifests stay in place, and pods stay out until `undrain` or the next boot, even if
    /// the agent restarts. With --deadline the node is known to go away at that time: pods get the time
    /// that is left, and a grace that does not fit is shortened.
    Drain(DrainArgs),
    /// Admit pods again after a drain: static pods restart
    ///
    /// Withdraws the deadline of `drain --deadline`, or admits pods again after a drain if there is none. A drain in progress is
    /// cancelled: pods that it has not asked to terminate run on.
    Undrain(UndrainArgs),
    /// Wait until the node is protected or drained, or its report is there
    ///
    /// For scripts. Returns at once if it is already true.
    Wait(WaitArgs),
    /// Terminate one pod
    ///
    /// Runs preStop, sends SIGTERM, and sends SIGKILL when the grace period is over; returns when the pod is
    /// gone. A manifest's pod starts again at once, unless its restartPolicy is Never.
    Kill(KillArgs),
    /// Terminate a pod and have it start again
    ///
    /// The pod gets its grace, as for `kill`, and its source starts it again, unless its restartPolicy is Never.
    Restart(RestartArgs),
    /// Allow shutdowns although a pod blocks them
    ///
    /// The pod keeps running until a shutdown terminates it, and no longer blocks any.
    Release(ReleaseArgs),
    /// Put units, drop-ins, default configuration and directories in place
    ///
    /// Can be repeated: what is already in place is kept. A configuration is never overwritten, except that
    /// --companion replaces the default one that a package brings, if it is unedited. On a running system the unit is
    /// enabled, but not beside a kubelet that terminates pods itself. With --root, or in a chroot, systemd is not
    /// contacted.
    Install(InstallArgs),
    /// Remove what install created
    Uninstall(UninstallArgs),
    /// Check or show the configuration
    Config(ConfigArgs),
    /// Print the JSON schema of a command's JSON output
    Schema(SchemaArgs),
    /// Print a page of the manual
    ///
    /// The same text as in --help, the fields of the configuration and the unit, as man pages.
    Man(ManArgs),
    /// Print a shell's completion script
    Completions(CompletionsArgs),
    /// Print what there is of a kind, for the shells' completion
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Print the version
    Version(VersionArgs),
    /// Run winddown-shim, as agents of earlier versions do that have not been restarted yet
    #[command(hide = true)]
    Shim(ShimArgs),
}

/// Parses the command line. Exits the process after `--help`, `--version` or an explained error.
#[must_use]
pub fn parse() -> Cli {
    let mut words: Vec<_> = std::env::args_os().collect();
    // clap takes the option for the name of a command.
    if matches!(&words[..], [_, help, option] if help == "help" && (option == "--help" || option == "-h"))
    {
        words.pop();
    }
    let typed: Vec<_> =
        words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    Cli::try_parse_from(words).unwrap_or_else(|error| {
        mistyped::explain(error, &typed, output::program_without_name().as_deref()).exit()
    })
}

/// Runs the command and returns the exit code.
///
/// Each command creates its own runtime if it needs one. When this returns, an error has been printed.
pub fn run(cli: &Cli) -> Exit {
    let mut out = Output::stdio(cli.global.color);
    let result = dispatch(cli, &mut out).map_err(CommandError::refused_if_unprivileged);
    out.finish(result)
}

/// Returns the command line for man pages and completions. Hidden commands are left out, because some of clap's
/// generators would show them.
pub fn definition() -> clap::Command {
    let all = Cli::command();
    let mut shown = clap::Command::new("winddown")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .args(all.get_arguments())
        .subcommands(all.get_subcommands().filter(|command| !command.is_hide_set()));
    if let Some(about) = all.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = all.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    shown
}

fn dispatch(cli: &Cli, out: &mut Output) -> Result<Exit, CommandError> {
    let global = &cli.global;
    match &cli.command {
        Command::Agent(args) => become_program::agent(global, args),
        Command::Status(args) => ask::block_on(status::run(global, args, out)),
        Command::Describe(args) => ask::block_on(describe::run(global, args, out)),
        Command::Logs(args) => ask::block_on(logs::run(global, args, out)),
        Command::Plan(PlanArgs { command: PlanCommand::Shutdown(args) }) => {
            plan::run(global, args, out)
        }
        Command::Plan(PlanArgs { command: PlanCommand::Start(args) }) => {
            plan::start(global, args, out)
        }
        Command::Plan(PlanArgs { command: PlanCommand::Preemption(args) }) => {
            plan_preemption::run(global, args, out)
        }
        Command::Plan(PlanArgs { command: PlanCommand::Eviction(args) }) => {
            plan_eviction::run(global, args, out)
        }
        Command::Drill(args) => drill::run(global, args, out),
        Command::Report(args) => report::run(global, args, out),
        Command::Doctor(args) => doctor::run(global, args, out),
        Command::Drain(args) => ask::block_on(drain::run(global, args, out)),
        Command::Undrain(args) => ask::block_on(drain::undrain(global, args.output, out)),
        Command::Wait(args) => ask::block_on(wait::run(global, args, out)),
        Command::Kill(args) => ask::block_on(kill::run(global, args, out)),
        Command::Restart(args) => ask::block_on(kill::restart(global, args, out)),
        Command::Release(args) => ask::block_on(release::run(global, args, out)),
        Command::Install(args) => install::install(global, args, out),
        Command::Uninstall(args) => install::uninstall(args, out),
        Command::Config(args) => config::run(global, args, out),
        Command::Schema(args) => schema::run(args, out),
        Command::Man(args) => man::run(args, out),
        Command::Completions(args) => completions::print(args, out),
        Command::Complete(args) => ask::block_on(completions::complete(global, args, out)),
        Command::Version(args) => version(args, out),
        Command::Shim(args) => become_program::shim(args),
    }
}

fn version(args: &VersionArgs, out: &mut Output) -> Result<Exit, CommandError> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let answer = Envelope::new(VersionAnswer { version });
    match args.output {
        TextFormat::Text => out.line(&format!("winddown {}", answer.answer.version))?,
        TextFormat::Json => out.json(&answer)?,
        TextFormat::Yaml => out.yaml(&answer)?,
    }
    Ok(Exit::Success)
}
