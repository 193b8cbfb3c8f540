//! The `winddown` binary.

use std::process::ExitCode;

use clap::Parser;
use winddown::cli::{self, Cli};
use winddown::commands::Commands;
use winddown_machine::host::wall_clock;
use winddown_runtimes::cri::host_mount;
use winddown_runtimes::process::shim;

fn main() -> ExitCode {
    // One of these runs for every container, so it goes around everything that costs memory.
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == "shim" => return shim::run(args, &wall_clock()),
        Some(word) if word == host_mount::SUBCOMMAND => return host_mount::run(args),
        _ => {}
    }
    cli::run(&Cli::parse(), &Commands).into()
}
