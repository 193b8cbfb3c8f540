//! `winddown`: the command line for users.

use std::process::ExitCode;

use winddown_cli::{parse, run};

fn main() -> ExitCode {
    run(&parse()).into()
}
