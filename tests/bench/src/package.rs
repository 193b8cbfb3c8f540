//! What is shipped: the daemon of the packages, and the package.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::figure::{exact, megabytes};
use crate::node::programs;
use crate::table::Table;
use crate::targets;

const DAEMON: &str = "winddownd";
/// What symbols of winddown's own code, and of libraries' code that is compiled for its types, have in their names.
const OURS: &str = "winddown";

/// Makes the package of the programs, and looks at it.
pub(crate) fn measure() -> Result<Table, String> {
    let programs = programs().map_err(|error| error.to_string())?;
    let out = tempfile::tempdir().map_err(|error| error.to_string())?;
    let package = package(&programs, out.path())?;
    let daemon = size(&out.path().join("package/usr/bin").join(DAEMON))?;
    let part = part_of_libraries(&programs.join(DAEMON))?;
    let mut table = Table::titled("the programs as packages have them".to_owned());
    let mut row = |what: &str, bytes: u64, most: u64| {
        let size = megabytes(bytes);
        table.row(what, size).below(megabytes(most)).floor(Some(size.times(part)));
    };
    row("the daemon", daemon, targets::DAEMON);
    row("the package", size(&package)?, targets::PACKAGE);
    Ok(table)
}

/// Puts into `out` what the package holds, and the package, which it names.
fn package(programs: &Path, out: &Path) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = Command::new(root.join("programs/packaging/build.sh"));
    build.arg("--programs").arg(programs).arg("--out").arg(out).args(["stage", "deb"]);
    let maintainer = "Nobody <nobody@localhost> https://localhost";
    let said = say(build.env("WINDDOWN_MAINTAINER", maintainer))?;
    let package = said.lines().find(|line| line.ends_with(".deb"));
    package.map(PathBuf::from).ok_or_else(|| format!("build.sh names no package: {said}"))
}

/// Which part of the code and data in `program` is not ours, by its symbols. Tables for unwinding are in the same parts.
fn part_of_libraries(program: &Path) -> Result<f64, String> {
    let said = say(Command::new("nm").args(["--print-size", "--defined-only"]).arg(program))?;
    match bytes_of(&said, "") {
        0 => Err(format!("{} has no symbols", program.display())),
        all => Ok(1.0 - exact(bytes_of(&said, OURS)) / exact(all)),
    }
}

/// The sum of the sizes of the symbols with `part` in their names, in lines like
/// `00000000004c1f30 0000000000000125 t NAME`. What has several names counts once.
fn bytes_of(said: &str, part: &str) -> u64 {
    let symbol = |line: &str| {
        let [at, size, _, name] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        let number = |text| u64::from_str_radix(text, 16).ok();
        name.contains(part).then_some((number(at)?, number(size)?))
    };
    let symbols: BTreeMap<u64, u64> = said.lines().filter_map(symbol).collect();
    symbols.into_values().sum()
}

fn size(file: &Path) -> Result<u64, String> {
    let found = std::fs::metadata(file);
    found.map(|found| found.len()).map_err(|error| format!("{}: {error}", file.display()))
}

fn say(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let ran = command.output().map_err(|error| format!("{name}: {error}"))?;
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&ran.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::{OURS, bytes_of};

    #[test]
    fn symbols_of_ours_are_summed_and_one_with_two_names_counts_once() {
        let said = "00000010 00000125 t _RNvCs1_8winddown3run\n\
                    00000010 00000125 t _RNvCs1_8winddown4walk\n\
                    00000200 00000010 t _RNvCs2_5tokio3run\n\
                    00000300 00000001 d _RNvCs1_8winddown4DATA\n\
                    0000400 A end_of_winddown\n";
        assert_eq!((bytes_of(said, OURS), bytes_of(said, "")), (0x126, 0x136));
    }
}
