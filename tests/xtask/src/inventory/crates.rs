//! The crates of a build, as reported by cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// Name and version, which together identify a crate in a build.
pub(super) type Key = (String, String);

/// A crate that is part of the program.
#[derive(Debug, Clone)]
pub(super) struct Crate {
    pub(super) key: Key,
    /// Its licence as an SPDX expression.
    pub(super) licence: String,
    pub(super) description: Option<String>,
    pub(super) repository: Option<String>,
    /// The folder of its sources on this machine.
    pub(super) folder: PathBuf,
    /// The SHA-256 checksum of the registry's package; none for a crate of this repository.
    pub(super) checksum: Option<String>,
    /// The crates of the program that it directly depends on.
    pub(super) uses: Vec<Key>,
}

/// The crates that `cargo build --package winddown` links, sorted by name and version, without build and test tools.
pub(super) fn linked(repository: &Path) -> Result<Vec<Crate>> {
    // Only `tree` knows the features with which this one package is built.
    let tree = cargo(
        repository,
        &[
            "tree",
            "--package=winddown",
            "--edges=normal",
            "--prefix=none",
            "--no-dedupe",
            "--format={p}",
        ],
    )?;
    let keys = tree.lines().filter(|line| !line.is_empty()).map(key_of).collect::<Result<_>>()?;
    // Without the platform, cargo would download the dependencies of other systems.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata =
        cargo(repository, &["metadata", "--format-version=1", "--filter-platform", &platform])?;
    let metadata = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let lock = repository.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock)
        .with_context(|| format!("cannot read {}", lock.display()))?;
    join(&keys, &metadata, &checksums(&lock))
}

/// Parses a line like `serde v1.0.228 (proc-macro)`.
fn key_of(line: &str) -> Result<Key> {
    let mut words = line.split(' ');
    match (words.next(), words.next().and_then(|word| word.strip_prefix('v'))) {
        (Some(name), Some(version)) => Ok((name.to_owned(), version.to_owned())),
        _ => bail!("cargo tree named no crate in its line {line:?}"),
    }
}

/// The checksums of a `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<Key, String> {
    let value = |block: &str, field: &str| {
        let start = format!("{field} = \"");
        let line = block.lines().find_map(|line| line.strip_prefix(&start))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let of = |block| {
        let key = (value(block, "name")?, value(block, "version")?);
        Some((key, value(block, "checksum")?))
    };
    lock.split("[[package]]").filter_map(of).collect()
}

fn join(
    keys: &BTreeSet<Key>,
    metadata: &Value,
    checksums: &BTreeMap<Key, String>,
) -> Result<Vec<Crate>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let key = |package: &Value| {
        Some((text(&package["name"])?, text(&package["version"])?)).filter(|key| keys.contains(key))
    };
    let ids: BTreeMap<&str, Key> = packages
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, key(package)?)))
        .collect();
    let mut uses = uses(metadata, &ids);
    let mut crates = Vec::with_capacity(keys.len());
    for package in packages {
        let Some(key) = key(package) else { continue };
        let manifest = package["manifest_path"].as_str().context("a crate without a manifest")?;
        crates.push(Crate {
            licence: text(&package["license"])
                .with_context(|| format!("{} names no licence", key.0))?
                // The deprecated separator.
                .replace('/', " OR "),
            description: text(&package["description"]).map(|text| one_line(&text)),
            repository: text(&package["repository"]),
            folder: Path::new(manifest).parent().unwrap_or(Path::new("/")).to_owned(),
            checksum: checksums.get(&key).cloned(),
            uses: uses.remove(&key).unwrap_or_default(),
            key,
        });
    }
    crates.sort_by(|a, b| a.key.cmp(&b.key));
    ensure!(crates.len() == keys.len(), "cargo tree and cargo metadata disagree: is it one build?");
    Ok(crates)
}

fn uses(metadata: &Value, ids: &BTreeMap<&str, Key>) -> BTreeMap<Key, Vec<Key>> {
    let normal = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
        kinds.into_iter().any(|kind| kind["kind"].is_null())
    };
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    nodes
        .filter_map(|node| {
            let key = ids.get(node["id"].as_str()?)?.clone();
            let used = node["deps"].as_array()?.iter().filter(normal);
            let used: BTreeSet<Key> =
                used.filter_map(|used| ids.get(used["pkg"].as_str()?).cloned()).collect();
            Some((key, used.into_iter().collect()))
        })
        .collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cargo(repository: &Path, args: &[&str]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(repository)
        .args(args)
        .args(["--locked", "--color=never"])
        .output()
        .context("cannot run cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo {} failed: {said}", args.join(" "));
    String::from_utf8(output.stdout).context("cargo printed something else than text")
}

#[cfg(test)]
pub(super) mod for_tests {
    use super::{Crate, Key};

    pub(in crate::inventory) fn key(name: &str) -> Key {
        (name.to_owned(), "1.0.0".to_owned())
    }

    pub(in crate::inventory) fn made_up(
        name: &str,
        licence: &str,
        folder: &std::path::Path,
    ) -> Crate {
        Crate {
            key: key(name),
            licence: licence.to_owned(),
            description: None,
            repository: None,
            folder: folder.to_owned(),
            checksum: None,
            uses: Vec::new(),
        }
    }
}
