//! `winddown-shim`: holds one container of a runtime of host processes.

use std::process::ExitCode;

use winddown_machine::host::wall_clock;
use winddown_runtimes::process::shim;

fn main() -> ExitCode {
    shim::run(std::env::args_os().skip(1), &wall_clock())
}
