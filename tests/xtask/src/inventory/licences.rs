//! The licence texts of a build, each once, with the crates that are under it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::crates::Crate;

const HEAD: &str = "\
Third-party software in winddown
================================

winddown itself is under the Apache License 2.0. The program contains the crates below, each under
the licence named beside it, and the Rust standard library (MIT or Apache-2.0, the Rust project's
developers). Where a crate leaves the choice, it is yours. The texts follow the list.

";

/// The prefixes of the files in which crates keep their licences.
const NAMES: [&str; 5] = ["COPYING", "COPYRIGHT", "LICEN", "NOTICE", "UNLICENSE"];

/// Builds the list of crates and the texts.
pub(super) fn text(repository: &Path, crates: &[Crate]) -> Result<String> {
    let foreign: Vec<&Crate> = crates.iter().filter(|one| !is_ours(repository, one)).collect();
    let mut of_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut page = HEAD.to_owned();
    for one in &foreign {
        let (name, version) = &one.key;
        writeln!(page, "{name} {version}: {}", one.licence)?;
        for text in texts(repository, one, &foreign)? {
            of_text.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let mut sections: Vec<(String, String)> =
        of_text.into_iter().map(|(text, crates)| (crates.join(", "), text)).collect();
    sections.sort();
    for (crates, text) in sections {
        write!(page, "\n\n{}\n{crates}\n{}\n\n{text}\n", "-".repeat(80), "-".repeat(80))?;
    }
    Ok(page)
}

fn is_ours(repository: &Path, one: &Crate) -> bool {
    one.checksum.is_none() && one.folder.starts_with(repository)
}

/// The licence texts of a crate. A crate that was published without any uses those of a sibling from the same
/// repository; the Apache License is the same everywhere.
fn texts(repository: &Path, one: &Crate, all: &[&Crate]) -> Result<BTreeSet<String>> {
    let own = files(&one.folder)?;
    if !own.is_empty() {
        return Ok(own);
    }
    let siblings = all.iter().filter(|other| {
        other.repository.as_deref().map(home) == one.repository.as_deref().map(home)
            && other.repository.is_some()
            && other.licence == one.licence
    });
    for sibling in siblings {
        let texts = files(&sibling.folder)?;
        if !texts.is_empty() {
            return Ok(texts);
        }
    }
    if one.licence.split(" OR ").any(|choice| choice == "Apache-2.0") {
        return Ok(BTreeSet::from([read(&repository.join("LICENSE"))?]));
    }
    bail!(
        "{} {} is under {} and no text of it is at hand: neither it nor a crate of the same \
         repository has one",
        one.key.0,
        one.key.1,
        one.licence
    )
}

/// A repository's address without the path into it.
fn home(address: &str) -> &str {
    let address = address.split("/tree/").next().unwrap_or(address);
    address.trim_end_matches('/').trim_end_matches(".git")
}

fn files(folder: &Path) -> Result<BTreeSet<String>> {
    let listed =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut texts = BTreeSet::new();
    for entry in listed {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.path().is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            texts.insert(read(&entry.path())?);
        }
    }
    Ok(texts)
}

/// Reads a licence, normalizing line ends and margins so that equal texts compare equal.
fn read(path: &Path) -> Result<String> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
    Ok(lines.join("\n").trim_start_matches('\u{feff}').to_owned())
}
