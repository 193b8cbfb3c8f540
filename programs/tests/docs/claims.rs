//! Pages that claim what tests show: each test that they name exists. docs/explanation/reliability.md also says with which
//! versions of systemd; a program writes that.

use std::collections::{BTreeMap, BTreeSet};
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

/// The versions of systemd with which a text of tests of nodes runs those that it defines, or that named one.
fn versions(text: &str, test: Option<&str>) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    for piece in text.split("on_each_release!(").skip(1) {
        let (head, _) = piece.split_once(':').unwrap_or_default();
        if test.is_none_or(|test| head.trim_end().ends_with(test)) {
            found.extend(["257", "262"]);
            found.extend((!head.contains("since 257")).then_some("252"));
        }
    }
    // A test of its own: from its attribute to the next one.
    let is_it = |one: &&str| test.is_none_or(|test| one.contains(&format!("fn {test}(")));
    for one in text.split("#[tokio::test").skip(1).filter(is_it) {
        let signs = [("Suite::Sid", "262"), ("Suite::Trixie", "257"), ("Need::Controllers", "257")];
        let later = signs.iter().find(|(sign, _)| one.contains(sign));
        found.insert(later.map_or("252", |(_, version)| version));
    }
    found
}

/// The last cell of a row of the page on reliability.
fn versions_of(shown_by: &str) -> String {
    let folder = root().join("tests/node/tests");
    let named: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
    let is_file = |name: &&&str| name.ends_with(".rs");
    let tests: Vec<&str> =
        named.iter().filter(|name| name.contains("_") && !is_file(name)).copied().collect();
    let mut found = BTreeSet::new();
    for file in named.iter().filter(is_file) {
        let text = std::fs::read_to_string(folder.join(file));
        let text = text.unwrap_or_else(|error| panic!("{file}, named by the page: {error}"));
        let whole = versions(&text, None);
        assert!(!whole.is_empty(), "{file} has no test");
        // A macro of the file's own may define a test that the page names.
        let here: Vec<_> = tests.iter().filter(|test| text.contains(**test)).collect();
        assert_eq!(here.len(), tests.len(), "{file} has not all of {tests:?}");
        for test in here {
            let of_test = versions(&text, Some(test));
            found.extend(if of_test.is_empty() { whole.clone() } else { of_test });
        }
        found.extend(tests.is_empty().then_some(whole).into_iter().flatten());
    }
    assert!(!found.is_empty(), "no test of a node shows it: {shown_by}");
    found.into_iter().collect::<Vec<_>>().join(", ")
}

#[test]
fn the_page_on_reliability_names_tests_that_are_there_and_the_versions_of_systemd_that_they_run_with()
 {
    let path = root().join("docs/explanation/reliability.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, table) = page.split_once("| promise | shown by | systemd |\n").expect("the table");
    let (table, after) = table.split_once("\n\n").expect("the end of the table");
    let mut rows: Vec<String> = table.lines().map(str::to_owned).collect();
    assert!(rows.len() >= 12, "{}", rows.len());
    for row in rows.iter_mut().skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [promise, shown_by, _] = cells.as_slice() else { panic!("not three cells: {row}") };
        *row = format!("|{promise} | {shown_by} | {} |", versions_of(shown_by));
    }
    let written =
        format!("{before}| promise | shown by | systemd |\n{}\n\n{after}", rows.join("\n"));
    if std::env::var_os("WINDDOWN_WRITE_PAGES").is_some() {
        std::fs::write(&path, &written).expect("the page");
        return;
    }
    assert!(page == written, "`make pages` writes the last cells: {rows:#?}");
}
