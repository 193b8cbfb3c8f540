//! `winddownd`: the agent that winddown.service runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    winddown_daemon::command_line::main()
}
