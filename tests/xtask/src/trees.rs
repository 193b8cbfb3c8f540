//! How many crates each published crate brings into a program that needs nothing else, and how long they take to build;
//! and whether the tests compile our crates as they ship.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// The published crates, and how many crates each may bring, itself included.
const MOST_CRATES: [(&str, usize); 9] = [
    ("winddown-quantities", 14),
    ("winddown-shared", 34),
    ("winddown-runtime-conformance", 35),
    ("winddown-host", 43),
    ("winddown-notices", 55),
    ("winddown-systemd", 62),
    ("winddown-preemption", 35),
    ("winddown-eviction", 44),
    ("winddown-shutdown", 42),
];

/// Features without code of their own: they name others.
const NAMES: [&str; 2] = ["default", "winddown_node/testing"];

/// Prints one line per crate; with `is_built` builds each alone, from nothing.
///
/// # Errors
/// A crate brings more than it may, or cannot be built; or the tests compile a crate of ours with other features than
/// those that ship.
pub(crate) fn show(repository: &Path, is_built: bool) -> Result<()> {
    let mut wrong = Vec::new();
    for (name, most) in MOST_CRATES {
        let count = crates(repository, &["--package", name])?.len();
        let time = match is_built {
            true => format!("{:>5} s of a processor", build(repository, name)?.as_secs()),
            false => String::new(),
        };
        println!("{count:>4} of {most:>2} crates{time}  {name}");
        if count > most {
            wrong.push(format!("{name} brings {count} crates, and {most} are allowed"));
        }
    }
    let (shipped, tested) = (
        features(repository, &["--edges", "normal", "--package", "winddown"])?,
        features(repository, &["--edges", "normal,dev", "--workspace"])?,
    );
    let others = shipped.difference(&tested);
    wrong.extend(
        others.map(|ours| format!("no test compiles `{ours}`, which ships, with those features")),
    );
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Our libraries in this tree, each with its features.
fn features(repository: &Path, tree: &[&str]) -> Result<BTreeSet<String>> {
    let format = ["tree", "--prefix", "none", "--format", "{lib} {f}"];
    let tree = cargo(repository, &[&format, tree].concat())?;
    let ours = tree.lines().filter(|line| line.starts_with("winddown"));
    let with_code = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let features = words.next().unwrap_or_default().split(',');
        let is_name = |feature: &str| {
            NAMES.contains(&feature) || NAMES.contains(&&*format!("{name}/{feature}"))
        };
        let features: Vec<_> = features.filter(|feature| !is_name(feature)).collect();
        format!("{name} {}", features.join(","))
    };
    Ok(ours.map(with_code).collect())
}

/// The crates that cargo links into a package, itself among them, with their versions. `package`: how cargo chooses it
/// and its features.
pub(crate) fn crates(repository: &Path, package: &[&str]) -> Result<BTreeSet<String>> {
    let tree = ["tree", "--edges", "normal", "--prefix", "none"];
    let tree = cargo(repository, &[&tree, package].concat())?;
    let named = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Ok(tree.lines().filter(|line| !line.is_empty()).map(named).collect())
}

/// Builds `name` in a folder of its own; returns the time of processors that it took.
fn build(repository: &Path, name: &str) -> Result<Duration> {
    let folder = repository.join("target/trees");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).context("the last build cannot be removed")?;
    }
    let before = time_of_children()?;
    cargo(repository, &["build", "--quiet", "--target-dir", "target/trees", "--package", name])?;
    Ok(time_of_children()?.saturating_sub(before))
}

/// The time of processors that finished children of this process have used, with theirs.
fn time_of_children() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").context("/proc is missing")?;
    // The name in parentheses may have spaces in it; cutime and cstime are fields 16 and 17, in hundredths of a second.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(13).take(2);
    let ticks = fields.map(str::parse::<u64>).sum::<Result<u64, _>>().context("/proc/self/stat")?;
    Ok(Duration::from_millis(ticks * 10))
}

fn cargo(repository: &Path, command: &[&str]) -> Result<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository).args(command).args(["--offline", "--locked"]);
    // A library that is built alone needs the version that a program would choose.
    cargo.env("K8S_OPENAPI_ENABLED_VERSION", "1.37");
    let done = cargo.output().context("cargo cannot be started")?;
    ensure!(
        done.status.success(),
        "cargo {}: {}",
        command.join(" "),
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_crate_alone_brings_no_more_crates_than_it_may() {
        show(&crate::repository(), false).unwrap();
    }

    #[test]
    fn each_published_crate_has_a_limit() {
        let named: BTreeSet<_> = MOST_CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(
            named,
            crate::published::published(&crate::repository()).unwrap().into_keys().collect()
        );
    }
}
