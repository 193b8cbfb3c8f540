//! `winddown`: what people type.

use std::process::ExitCode;

use clap::Parser;
use winddown_cli::{Cli, run};

fn main() -> ExitCode {
    run(&Cli::parse()).into()
}
