//! Programs as where they are installed: a shell finds them by their names.

use std::ffi::OsString;
use std::path::Path;

/// The search path, with the directory of the programs under test in front.
pub(crate) fn search_path() -> OsString {
    let program = Path::new(assert_cmd::cargo::cargo_bin!("winddown"));
    let others = std::env::var_os("PATH").unwrap_or_default();
    let found = program.parent().map(Path::to_owned).into_iter();
    std::env::join_paths(found.chain(std::env::split_paths(&others))).unwrap_or(others)
}
