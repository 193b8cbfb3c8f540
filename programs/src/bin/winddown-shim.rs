//! `winddown-shim`: holds one container that is a process of the host.

use std::process::ExitCode;

use winddown_host::machine::wall_clock;

fn main() -> ExitCode {
    std::hint::black_box(winddown_install::BUILD_MARK);
    winddown_shim::run(std::env::args_os().skip(1), &wall_clock())
}
