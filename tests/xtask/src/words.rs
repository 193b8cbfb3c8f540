//! Counts the words of the documentation at two commits.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::scenarios::git;

mod by_hand;

/// The file that contains the sums.
const NOTEBOOK: &str = "tests/bench/notebook.md";
const START: &str = "<!-- Written by `cargo run -p xtask -- words`. -->";
const END: &str = "<!-- End of it. -->";

/// Prints the number of words of each page of docs/ at two commits, and writes the sums into the notebook.
///
/// # Errors
/// A commit does not exist, or the notebook has no place for the sums.
pub(crate) fn show(repository: &Path, before: &str, after: &str) -> Result<()> {
    let counted = [before, after].map(|commit| count(repository, commit));
    let [old, new] = counted;
    let (old, new) = (old?, new?);
    let mut pages: Vec<&String> = old.keys().chain(new.keys()).collect();
    pages.sort();
    pages.dedup();
    for page in pages {
        let words = |at: &BTreeMap<String, usize>| {
            at.get(page).map_or_else(|| "-".to_owned(), ToString::to_string)
        };
        println!("{:>8} {:>8}  {page}", words(&old), words(&new));
    }
    let table = sums(repository, &[(before, &old), (after, &new)])?;
    println!("\n{table}");
    let path = repository.join(NOTEBOOK);
    let text = std::fs::read_to_string(&path)?;
    let text = replaced(&text, &table).with_context(|| format!("{NOTEBOOK} has no {START}"))?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {NOTEBOOK}"))
}

/// The number of words of each page of docs/ that people write.
fn count(repository: &Path, commit: &str) -> Result<BTreeMap<String, usize>> {
    let listed = git(repository, &["ls-tree", "-r", "--name-only", commit, "docs/"])?;
    let pages = listed.lines().filter(|name| name.ends_with(".md") && !by_hand::is_generated(name));
    pages
        .map(|page| {
            let text = git(repository, &["show", &format!("{commit}:{page}")])?;
            Ok((page.to_owned(), by_hand::words_by_hand(&text)))
        })
        .collect()
}

fn sums(repository: &Path, commits: &[(&str, &BTreeMap<String, usize>)]) -> Result<String> {
    let mut table = "| commit | of | pages | words |\n|---|---|---|---|\n".to_owned();
    for (commit, pages) in commits {
        let named = ["log", "-1", "--abbrev=8", "--date=short", "--format=`%h` | %cd", commit];
        let named = git(repository, &named)?;
        let words: usize = pages.values().sum();
        writeln!(table, "| {} | {} | {words} |", named.trim(), pages.len())?;
    }
    Ok(table)
}

fn replaced(old: &str, table: &str) -> Option<String> {
    let (before, rest) = old.split_once(START)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{START}\n\n{}\n\n{END}{after}", table.trim()))
}

#[test]
fn the_sums_have_a_place_in_the_notebook() {
    let text = std::fs::read_to_string(crate::repository().join(NOTEBOOK)).unwrap();
    let new = replaced(&text, "| new |").unwrap();
    assert!(new.contains(&format!("{START}\n\n| new |\n\n{END}\n")), "{new}");
}
