//! `winddownd`: the agent that winddown.service runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    std::hint::black_box(winddown_install::BUILD_MARK);
    winddown_daemon::command_line::main()
}
