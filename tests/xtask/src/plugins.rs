//! Compiles a node with each sensible list of plug-ins, and checks that the crates of the others are left out.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

/// The plug-ins, each a feature of the node, and the crate that only this plug-in needs.
const PLUGINS: [(&str, &str); 4] = [
    ("shutdown", "winddown-shutdown"),
    ("preemption", "winddown-preemption"),
    ("eviction", "winddown-eviction"),
    ("cluster", "winddown-cluster"),
];

/// What is compiled beside each node, so that crates of others have one set of features with all lists, and are compiled
/// once.
const BESIDE: [&str; 2] = ["winddown-cluster", "winddown-pod-references"];

/// The lists of plug-ins: none, each alone, and all but one.
fn lists() -> impl Iterator<Item = Vec<&'static str>> {
    let names = || PLUGINS.into_iter().map(|(name, _)| name);
    let but_one = names().map(move |out| names().filter(|name| *name != out).collect());
    std::iter::once(Vec::new()).chain(names().map(|name| vec![name])).chain(but_one)
}

/// Builds a node with each list, and checks its dependencies.
pub(crate) fn build(repository: &Path) -> Result<()> {
    for list in lists() {
        let with = list.join(",");
        let needs = cargo(
            repository,
            &["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"],
            &with,
            &[],
        )?;
        for (name, of_it) in PLUGINS.into_iter().filter(|(name, _)| !list.contains(name)) {
            let crates = needs.lines().filter_map(|line| line.split(' ').next());
            ensure!(
                crates.into_iter().all(|needed| needed != of_it),
                "a node of [{with}] needs {of_it}, although {name} is left out"
            );
        }
        cargo(repository, &["clippy", "--quiet"], &with, &BESIDE)?;
        println!("built: [{with}]");
    }
    Ok(())
}

/// Runs cargo for a node with these features, and for `beside` it, and returns its output.
fn cargo(repository: &Path, command: &[&str], with: &str, beside: &[&str]) -> Result<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository).args(command);
    cargo.args(["--package", "winddown-node", "--no-default-features", "--features", with]);
    cargo.args(beside.iter().flat_map(|name| ["--package", name]));
    // A library that is built alone needs the version that a program would choose.
    cargo.env("K8S_OPENAPI_ENABLED_VERSION", "1.37");
    if command.first() == Some(&"clippy") {
        cargo.args(["--", "--deny", "warnings"]);
    }
    let done = cargo.output().context("cargo cannot be started")?;
    if !done.status.success() {
        bail!("a node of [{with}] cannot be built:\n{}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
