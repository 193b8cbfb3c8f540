//! tests/security.md: each test that it names exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{members, root};

/// A row of the table: what is tried, and the tests of each package that try it.
struct Row {
    tried: String,
    tests: Vec<(String, String)>,
}

fn rows(page: &str) -> Vec<Row> {
    let (_, table) = page.split_once("| what is tried |").expect("the table");
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(row).collect()
}

/// The last cell is `package `test`, `test`; package `test``.
fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
    let [tried, _, tests] = cells.as_slice() else { panic!("not three cells: {line}") };
    let of_package = |part: &str| {
        let (package, names) = part.trim().split_once(' ').expect(part);
        let names = names.split('`').skip(1).step_by(2);
        names.map(|name| (package.to_owned(), name.to_owned())).collect::<Vec<_>>()
    };
    Row { tried: tried.trim().to_owned(), tests: tests.split(';').flat_map(of_package).collect() }
}

/// Returns the directory of each package of the workspace.
fn packages() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for folder in members() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let name =
            manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        found.extend(name.map(|name| (name.to_owned(), folder)));
    }
    found
}

/// The names of the tests below `folder`: functions with an attribute that ends in `test`.
fn tests(folder: &Path, found: &mut Vec<String>) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    {
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
                    is_test = true;
                } else if let Some((_, rest)) = line.split_once("fn ") {
                    let name = rest.split('(').next().unwrap_or_default();
                    found.extend(std::mem::take(&mut is_test).then(|| name.to_owned()));
                }
            }
        }
    }
}

#[test]
fn every_test_that_the_page_on_security_names_is_there() {
    let page = std::fs::read_to_string(root().join("tests/security.md")).expect("the page");
    let packages = packages();
    let mut sources: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let rows = rows(&page);
    assert!(rows.len() >= 20, "{}", rows.len());
    for Row { tried, tests: named } in &rows {
        assert!(!named.is_empty(), "no test shows: {tried}");
        for (package, name) in named {
            let folder =
                packages.get(package).unwrap_or_else(|| panic!("no package {package}: {tried}"));
            let there = sources.entry(package).or_insert_with(|| {
                let mut found = Vec::new();
                ["src", "tests"].iter().for_each(|part| tests(&folder.join(part), &mut found));
                found
            });
            assert!(
                there.contains(name),
                "{package} has no test {name}, which is to show: {tried}"
            );
        }
    }
}
