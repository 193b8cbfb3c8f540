//! The size of each crate without its tests, and dependency cycles among the files of a crate.
//!
//! A crate that has grown too large to keep in mind is split. Of two files that need each other, neither can be read,
//! tested or moved alone.

mod cycles;
mod paths;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::layers::Workspace;

pub(crate) use cycles::Edge;

/// The largest allowed number of lines of a crate.
const MOST_LINES: usize = 12_000;

/// The crate whose modules in the root are rooms, none of which needs itself by way of others.
const IN_ROOMS: &str = "shared";

/// The folder with code that does not run on nodes.
const NOT_PRODUCT: &str = "tests/";

/// A crate of the product.
pub(crate) struct Crate {
    /// Its folder.
    pub(crate) name: String,
    /// The number of lines of its sources, without tests and fuzzing properties.
    pub(crate) lines: usize,
    /// Each dependency between files that is part of a cycle.
    pub(crate) cycles: Vec<Edge>,
}

/// A file of a crate.
pub(crate) struct Source {
    /// The module's path within the crate; empty for the crate itself.
    module: Vec<String>,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Prints one line per crate, largest first, and the lines of all else.
///
/// # Errors
/// A source cannot be read, a crate is too large, or there is a cycle.
pub(crate) fn show(repository: &Path) -> Result<()> {
    let mut crates = look(repository)?;
    crates.sort_by_key(|one| std::cmp::Reverse(one.lines));
    for Crate { name, lines, .. } in &crates {
        println!("{lines:>7}  {name}");
    }
    let product = crates.iter().map(|one| one.lines).sum::<usize>();
    println!("{product:>7}  in all");
    println!("{:>7}  of tests, examples and tools", all_lines(repository)?.saturating_sub(product));
    let wrong = wrong(&crates);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("no file needs itself by way of others");
    Ok(())
}

/// The violations, one line each.
pub(crate) fn wrong(crates: &[Crate]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Crate { name, lines, cycles } in crates {
        if *lines > MOST_LINES {
            wrong.push(format!(
                "{name}: {lines} lines, and {MOST_LINES} are allowed: make two crates of it"
            ));
        }
        wrong.extend(cycles.iter().map(|edge| format!("{name}: a cycle: {edge}")));
    }
    wrong
}

/// The crates of the product, by name.
pub(crate) fn look(repository: &Path) -> Result<Vec<Crate>> {
    let measure = |(name, sources): (String, Vec<Source>)| {
        let mut cycles = cycles::cycles(&sources);
        if name == IN_ROOMS {
            cycles.extend(cycles::between_rooms(&sources));
        }
        let lines = sources.iter().map(|source| without_tests(&source.text)).sum();
        Crate { name, lines, cycles }
    };
    Ok(sources(repository)?.into_iter().map(measure).collect())
}

/// The folder of each crate of the product, with the files of the crate: without tests.
pub(crate) fn sources(repository: &Path) -> Result<Vec<(String, Vec<Source>)>> {
    let workspace = Workspace::read(repository)?;
    let product = workspace.folders().filter(|folder| !folder.starts_with(NOT_PRODUCT));
    let of_crate = |folder: &str| {
        let mut sources = Vec::new();
        read(&repository.join(folder).join("src"), &[], &mut sources)?;
        Ok((folder.to_owned(), sources))
    };
    product.map(of_crate).collect()
}

/// The lines of all Rust below `folder`.
fn all_lines(folder: &Path) -> Result<usize> {
    let mut lines = 0;
    for path in children(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let is_ours = !name.starts_with('.') && name != "target";
            lines += if is_ours { all_lines(&path)? } else { 0 };
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path);
            lines +=
                text.with_context(|| format!("cannot read {}", path.display()))?.lines().count();
        }
    }
    Ok(lines)
}

/// The number of lines of a file without the tests at its end.
fn without_tests(text: &str) -> usize {
    let product = text.split_once("\nmod tests {").map_or(text, |(product, _)| product);
    // Without the attribute above the test module.
    product.lines().filter(|line| !line.starts_with("#[cfg(test)]")).count()
}

fn read(folder: &Path, module: &[String], sources: &mut Vec<Source>) -> Result<()> {
    for path in children(folder)? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if ["tests", "testing", "fuzzing"].contains(&&*name) {
            continue;
        }
        let mut module = module.to_vec();
        if !(module.is_empty() && ["lib", "main"].contains(&&*name)) {
            module.push(name);
        }
        if path.is_dir() {
            read(&path, &module, sources)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            sources.push(Source { module, path, text });
        }
    }
    Ok(())
}

/// The entries of a folder, sorted.
fn children(folder: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        found.push(entry.with_context(cannot)?.path());
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_crate_is_too_large_and_no_file_needs_itself() {
        let crates = look(&crate::repository()).unwrap();
        assert!(crates.len() > 10, "the crates were found");
        assert_eq!(wrong(&crates), [""; 0]);
    }

    #[test]
    fn a_crate_that_is_too_large_and_a_cycle_are_wrong() {
        let source = |name: &str, text: &str| Source {
            module: vec![name.into()],
            path: PathBuf::new(),
            text: text.into(),
        };
        let sources = [source("a", "use super::b::B;"), source("b", "use crate::a::A;")];
        let one = |lines| Crate { name: "one".into(), lines, cycles: cycles::cycles(&sources) };
        let wrong = wrong(&[one(MOST_LINES), one(MOST_LINES + 1)]);
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        assert_eq!(wrong[0], "one: a cycle: a needs b");
        assert!(wrong[2].starts_with("one: 12001 lines"), "{wrong:?}");
    }
}
