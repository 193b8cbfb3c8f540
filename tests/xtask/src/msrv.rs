//! Checks each published crate with the oldest Rust that it says it builds with.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::published::published;

/// Checks all crates of one version in one go.
///
/// # Errors
/// That Rust is missing, or cannot build one of them.
pub(crate) fn check(repository: &Path) -> Result<()> {
    for (version, names) in by_version(repository)? {
        let mut cargo = Command::new("rustup");
        cargo.current_dir(repository).args(["run", &version, "cargo", "check", "--locked"]);
        // In a folder of its own: what another compiler has made would be made once more.
        cargo.args(["--target-dir", "target/msrv"]);
        cargo.args(names.iter().flat_map(|name| ["--package", name]));
        // A program like this one tells what it starts which compiler to use.
        cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        let done = cargo.status().context("rustup cannot be started")?;
        ensure!(
            done.success(),
            "Rust {version} does not build {}, or is not here: rustup toolchain install {version} --profile minimal",
            names.join(", ")
        );
        println!("Rust {version} builds {}", names.join(", "));
    }
    Ok(())
}

/// The published crates by the Rust that they need.
fn by_version(repository: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let mut by_version = BTreeMap::<String, Vec<String>>::new();
    for (name, one) in published(repository)? {
        if let Some(version) = one["rust_version"].as_str() {
            by_version.entry(version.to_owned()).or_default().push(name);
        }
    }
    Ok(by_version)
}
