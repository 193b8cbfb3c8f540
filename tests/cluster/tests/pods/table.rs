//! The table of scenarios names tests that exist.

use std::collections::BTreeSet;
use std::path::Path;

/// Names of functions in the sources below a folder.
fn functions(folder: &Path, all: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let named = text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
            all.extend(named.map(str::to_owned));
        }
    }
}

#[test]
fn every_scenario_of_the_table_is_a_test_or_a_file() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tests = BTreeSet::new();
    for folder in
        ["cluster/src", "cluster/client/src", "cluster/references/src", "tests/cluster/tests"]
    {
        functions(&repository.join(folder), &mut tests);
    }
    let table =
        std::fs::read_to_string(repository.join("tests/cluster/tests/pods/README.md")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with('|'));
    let named: Vec<_> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 60, "the table was read: {}", named.len());
    let is_there = |name: &str| match name.strip_suffix(".rs") {
        Some(_) => repository.join(name).is_file(),
        None => tests.contains(name),
    };
    let lacking: Vec<_> = named.iter().filter(|name| !is_there(name)).collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}
