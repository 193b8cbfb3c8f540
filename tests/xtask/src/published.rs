//! The crates that can be published. The tests check that each has what a registry and the reader of its page need;
//! `make crates` checks that the packages build.
//!
//! To publish: add the repository's address to `[workspace.package]` and to each of them, raise the version there and in
//! `[workspace.dependencies]`, run `make crates`, and publish in the order that `make published` prints. All else says
//! `publish = false` until someone asks.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

#[cfg(test)]
mod tests;

/// The publishable crates by name, each as `cargo metadata` has it.
///
/// # Errors
/// Cargo cannot be started, or says something else.
pub(crate) fn published(repository: &Path) -> Result<BTreeMap<String, Value>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let output = cargo.current_dir(repository).output().context("cargo cannot be started")?;
    let mut metadata: Value =
        serde_json::from_slice(&output.stdout).context("cannot read what cargo metadata says")?;
    let all = metadata["packages"].as_array_mut().map(std::mem::take);
    let named = |one: Value| Some((one["name"].as_str()?.to_owned(), one));
    let is_published = |one: &Value| one["publish"].is_null();
    Ok(all.unwrap_or_default().into_iter().filter(is_published).filter_map(named).collect())
}
