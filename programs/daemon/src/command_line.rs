//! The command line of `winddownd`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use winddown_config::ConfigError;
use winddown_cri::host_mount;

use crate::service::{ServiceOptions, StartError};

/// Exit code of a start that failed for a reason without a code of its own.
const FAILED: u8 = 1;

/// Exit code for an invalid configuration, by the name of which systemd shows it: `status=78/CONFIG`. To a service, the code
/// of the `winddown` commands would mean `NOTIMPLEMENTED`.
const CONFIG_INVALID: u8 = 78;

const AFTER_HELP: &str = "\
Examples:
  winddownd
  winddownd --config ./config.yaml --socket ./winddown.sock

Logging: to the journal under systemd, to standard error elsewhere;
WINDDOWN_LOG sets the level (error, warn, info, debug, trace) [default: info]

Exit codes:
  0   ended by a signal
  1   cannot start
  2   the command line is wrong
  9   lost a task that the node depends on, and exited to be restarted
  78  the configuration is invalid";

/// Terminates a node's pods in the right order, in time; the agent that winddown.service runs
///
/// It takes the logind delay lock, runs the pods of the manifests directory and terminates them in order when
/// the node shuts down. SIGHUP reads the configuration again. SIGTERM ends the agent; the pods go on,
/// unless the machine itself is going down. Use `winddown` to control it.
#[derive(Debug, Parser)]
#[command(
    name = "winddownd",
    version,
    after_help = AFTER_HELP,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
struct CommandLine {
    /// The configuration file [default: /etc/winddown/config.yaml]
    #[arg(long, value_name = "FILE", env = "WINDDOWN_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// The control socket, instead of the one that the configuration names
    #[arg(long, value_name = "PATH", env = "WINDDOWN_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
    /// Put this directory before every path of the configuration (for tests)
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
    #[command(subcommand)]
    task: Option<Task>,
}

/// What the agent has done outside of its sandbox.
#[derive(Debug, Subcommand)]
enum Task {
    /// Mount or unmount in the host's own mount namespace
    #[command(hide = true, name = host_mount::SUBCOMMAND)]
    HostMount,
}

/// Runs the agent, as its unit starts it, and returns the exit code of the process.
pub fn main() -> ExitCode {
    let CommandLine { config, socket, root, task } = CommandLine::parse();
    if let Some(Task::HostMount) = task {
        return host_mount::run();
    }
    let Err(error) = crate::run(ServiceOptions { config, socket, root }) else {
        return ExitCode::SUCCESS;
    };
    // What cannot be read now may be read later.
    let is_invalid = matches!(error, StartError::Config(ConfigError::Invalid(_)));
    let exit = if is_invalid { CONFIG_INVALID } else { FAILED };
    let hint = error.hint();
    eprintln!("{}", winddown_render::error(&error.into(), &hint, false));
    ExitCode::from(exit)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_tells_every_exit_code() {
        CommandLine::command().debug_assert();
        for code in [FAILED, CONFIG_INVALID, crate::TASK_LOST] {
            assert!(AFTER_HELP.contains(&format!("\n  {code}  ")), "{code}");
        }
    }
}
