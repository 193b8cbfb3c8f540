//! `winddown`: the command line for users.

use std::process::ExitCode;

use winddown_cli::{parse, run};

fn main() -> ExitCode {
    std::hint::black_box(winddown_install::BUILD_MARK);
    run(&parse()).into()
}
