//! A wall clock for the agent that can be set forward and back.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::scenario::TestResult;
use crate::{Node, preload};

const LIBRARY: &str = "/usr/local/lib/winddown-clock.so";
/// The file that the library reads: the offset in seconds, in eight bytes.
const JUMP: &str = "/run/clock-jump";

/// Compiles the library, which all nodes share.
///
/// # Errors
/// Same as for [`preload::compile`].
pub(super) fn compile(into: &Path) -> TestResult {
    preload::compile("chaos/clock.c", into)
}

/// Makes all programs of a running node use this clock when they are started.
pub(super) fn install(node: &Node, library: &Path) -> TestResult {
    node.install(library, LIBRARY)?;
    node.write(JUMP, 0_i64.to_ne_bytes(), 0o644)?;
    node.write("/etc/ld.so.preload", LIBRARY, 0o644)?;
    Ok(())
}

/// Sets the clock's offset from the true time in seconds, at once and for all running programs.
pub(super) fn set(node: &Node, seconds: i64) -> TestResult {
    // Written in place: a program that has mapped the file must not find it empty.
    let file = File::options().write(true).open(node.host_path(JUMP))?;
    file.write_all_at(&seconds.to_ne_bytes(), 0)?;
    Ok(())
}
