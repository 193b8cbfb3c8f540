//! The shim for the runtimes' conformance suite.

use std::process::ExitCode;

use winddown_shared::WallClock;

fn main() -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "this is where the real clock is handed in")]
    let wall = WallClock::new(jiff::Timestamp::now);
    winddown_shim::run(std::env::args_os().skip(1), &wall)
}
