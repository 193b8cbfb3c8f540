//! Which room of the repository may use which: a room is a folder of the root with the crates in it.
//!
//! The table is `workspace.metadata.rooms` of the root's Cargo.toml, beside the list of crates. What only tests use is
//! free.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The largest allowed numbers: of folders in the root, of all entries there, and of crates.
const MOST_FOLDERS: usize = 14;
const MOST_ENTRIES: usize = 26;
const MOST_CRATES: usize = 35;

/// The room whose crates run on no node: they may use everything.
const TESTS: &str = "tests";

/// The page with the map, and the lines between which it is.
const PAGE: &str = "ARCHITECTURE.md";
const START: &str = "<!-- Written by `cargo run -p xtask -- map`. -->\n";
const END: &str = "<!-- End of the map. -->\n";

/// What `cargo metadata` says of the workspace.
#[derive(Deserialize)]
pub(crate) struct Workspace {
    packages: Vec<Package>,
    metadata: Metadata,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Metadata {
    rooms: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    description: Option<String>,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev` or `build`; none for what the crate itself uses.
    kind: Option<String>,
}

/// Prints how many rooms and arrows there are.
///
/// # Errors
/// A room uses another that its row does not list, or there is too much in the root.
pub(crate) fn show(repository: &Path) -> Result<()> {
    let workspace = Workspace::read(repository)?;
    let mut wrong = workspace.wrong();
    wrong.extend(crowded(repository, workspace.packages.len())?);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let arrows = workspace.arrows().keys().filter(|(from, _)| from != TESTS).count();
    println!("{} rooms, {arrows} arrows between them", workspace.metadata.rooms.len());
    Ok(())
}

/// Draws the map into the page.
///
/// # Errors
/// The page has no place for it, or cannot be written.
pub(crate) fn write_map(repository: &Path) -> Result<()> {
    let path = repository.join(PAGE);
    let cannot = || format!("cannot write {}", path.display());
    let text = fs::read_to_string(&path).with_context(cannot)?;
    fs::write(&path, Workspace::read(repository)?.in_page(&text)?).with_context(cannot)
}

/// What the root has too much of.
fn crowded(repository: &Path, crates: usize) -> Result<Vec<String>> {
    let (mut folders, mut entries) = (0, 0);
    let cannot = || format!("cannot read {}", repository.display());
    for entry in repository.read_dir().with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        if [".git", "target"].iter().all(|made| entry.file_name() != *made) {
            entries += 1;
            folders += usize::from(entry.path().is_dir());
        }
    }
    let counted = [
        (folders, MOST_FOLDERS, "folders in the root"),
        (entries, MOST_ENTRIES, "entries in the root"),
        (crates, MOST_CRATES, "crates"),
    ];
    let over = counted.into_iter().filter(|(count, most, _)| count > most);
    Ok(over.map(|(count, most, what)| format!("{count} {what}, and {most} are allowed")).collect())
}

// === impl Workspace ===

impl Workspace {
    /// Asks cargo.
    pub(crate) fn read(repository: &Path) -> Result<Self> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
        let output = cargo.current_dir(repository).output().context("cannot start cargo")?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {why}");
        serde_json::from_slice(&output.stdout).context("cannot read what cargo metadata says")
    }

    /// The page with the present map.
    fn in_page(&self, page: &str) -> Result<String> {
        let parts = page
            .split_once(START)
            .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
        let (before, after) = parts.with_context(|| format!("{PAGE} has no {START}"))?;
        Ok(format!("{before}{START}{}{END}{after}", self.map()))
    }

    /// The rooms with their arrows, without those that follow from others, and what each crate is.
    fn map(&self) -> String {
        let table = &self.metadata.rooms;
        let mut map = "\n```mermaid\ngraph TD\n".to_owned();
        for (from, others) in table {
            let below: BTreeSet<&String> =
                others.iter().filter_map(|other| table.get(other)).flatten().collect();
            for to in others.iter().filter(|to| !below.contains(to)) {
                let _ = writeln!(map, "    {from} --> {to}");
            }
        }
        map.push_str("```\n\n| folder | crate | what it is |\n|---|---|---|\n");
        let mut crates: Vec<_> = self.packages.iter().map(|one| (self.folder(one), one)).collect();
        crates.sort_by_key(|(folder, _)| *folder);
        for (folder, Package { name, description, .. }) in crates {
            let what = description.as_deref().unwrap_or_default();
            let _ = writeln!(map, "| `{folder}` | {name} | {what} |");
        }
        map.push('\n');
        map
    }

    /// The folders of all crates, relative to the root.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        self.packages.iter().map(|package| self.folder(package))
    }

    /// The folder of a crate, relative to the root.
    fn folder<'a>(&self, package: &'a Package) -> &'a str {
        let path = package.manifest_path.strip_prefix(&self.workspace_root);
        let path = path.unwrap_or(&package.manifest_path).trim_start_matches('/');
        path.strip_suffix("/Cargo.toml").unwrap_or(path)
    }

    /// The room of each crate.
    fn rooms(&self) -> BTreeMap<&str, &str> {
        let room = |one| self.folder(one).split('/').next().unwrap_or_default();
        self.packages.iter().map(|one| (&*one.name, room(one))).collect()
    }

    /// Each arrow between two rooms, with one pair of crates that makes it.
    fn arrows(&self) -> BTreeMap<(String, String), (String, String)> {
        let rooms = self.rooms();
        let mut arrows = BTreeMap::new();
        for package in &self.packages {
            let used = package.dependencies.iter().filter(|other| other.kind.is_none());
            for other in used {
                let (Some(from), Some(to)) = (rooms.get(&*package.name), rooms.get(&*other.name))
                else {
                    continue;
                };
                if from != to {
                    let pair = (package.name.clone(), other.name.clone());
                    arrows.entry(((*from).to_owned(), (*to).to_owned())).or_insert(pair);
                }
            }
        }
        arrows
    }

    /// The arrows that the table does not have, and its rows that no arrow needs, one line each.
    fn wrong(&self) -> Vec<String> {
        let arrows = self.arrows();
        let table = &self.metadata.rooms;
        let allowed = |from: &str, to: &str| {
            from == TESTS || table.get(from).is_some_and(|others| others.contains(to))
        };
        let new = arrows.iter().filter(|((from, to), _)| !allowed(from, to)).map(
            |((from, to), (one, other))| format!("{one} uses {other}: {from}/ may not use {to}/"),
        );
        let rows = table.iter().flat_map(|(from, others)| others.iter().map(move |to| (from, to)));
        let unused = rows
            .filter(|(from, to)| !arrows.contains_key(&((*from).clone(), (*to).clone())))
            .map(|(from, to)| format!("{from}/ does not use {to}/: take it out of the table"));
        new.chain(unused).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_room_uses_only_those_below_it_and_the_root_is_not_crowded() {
        let repository = crate::repository();
        let workspace = Workspace::read(&repository).unwrap();
        assert_eq!(workspace.wrong(), [""; 0]);
        assert_eq!(crowded(&repository, workspace.packages.len()).unwrap(), [""; 0]);
    }

    #[test]
    fn the_map_of_the_page_is_that_of_the_crates() {
        let repository = crate::repository();
        let page = fs::read_to_string(repository.join(PAGE)).unwrap();
        let drawn = Workspace::read(&repository).unwrap().in_page(&page).unwrap();
        assert!(drawn == page, "{PAGE} is not up to date: run `cargo run -p xtask -- map`");
    }

    #[test]
    fn an_arrow_that_the_table_does_not_have_is_refused_and_so_is_a_row_without_an_arrow() {
        let package = |room: &str, uses: &[(&str, Option<&str>)]| {
            let dependencies: Vec<_> =
                uses.iter().map(|(name, kind)| json!({"name": name, "kind": kind})).collect();
            json!({"name": room, "manifest_path": format!("/w/{room}/x/Cargo.toml"), "dependencies": dependencies})
        };
        let wrong = |shutdown: &[(&str, Option<&str>)]| {
            let text = json!({
                "workspace_root": "/w",
                "packages": [package("shared", &[]), package("eviction", &[]),
                    package("shutdown", shutdown), package("tests", &[("eviction", None)])],
                "metadata": {"rooms": {"shared": [], "eviction": [], "shutdown": ["shared"]}},
            });
            serde_json::from_value::<Workspace>(text).unwrap().wrong()
        };
        assert_eq!(wrong(&[("shared", None)]), [""; 0]);
        assert_eq!(wrong(&[("shared", None), ("eviction", Some("dev"))]), [""; 0]);
        assert_eq!(
            wrong(&[("shared", None), ("eviction", None)]),
            ["shutdown uses eviction: shutdown/ may not use eviction/"]
        );
        assert_eq!(
            wrong(&[("serde", None)]),
            ["shutdown/ does not use shared/: take it out of the table"]
        );
    }
}
