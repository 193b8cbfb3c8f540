//! `plan eviction`, with a stand-in for the ranking.

use std::io::Write;

use super::world::run;
use crate::cli::Exit;

fn plan(text: &str, options: &str) -> super::world::Ran {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    run(&format!("winddown plan eviction -f {} {options}", file.path().display()))
}

const CASE: &str = r#"{"id":"a","pods":[{"metadata":{"name":"web"}},{"metadata":{"name":"db"}}]}"#;

#[test]
fn each_case_gets_one_line_with_the_order() {
    let ran = plan(&format!("{CASE}\n\n{CASE}\n"), "");
    assert_eq!((ran.out.as_str(), ran.exit), ("a: web, db\na: web, db\n", Exit::Success));
    let ran = plan(CASE, "-o json");
    let line: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(line["order"], serde_json::json!(["web", "db"]));
}

#[test]
fn a_case_that_cannot_be_read_is_named_by_its_line_and_the_others_are_answered() {
    let ran = plan(&format!("{CASE}\n{{\"id\":1}}\n{CASE}\n"), "");
    assert_eq!(ran.out, "a: web, db\na: web, db\n");
    assert!(ran.err.contains("line 2"), "{}", ran.err);
    assert!(ran.err.contains("cases that could not be read: 1"), "{}", ran.err);
    assert_eq!(ran.exit, Exit::Failure);
}

#[test]
fn explained_each_pod_has_a_line_with_the_figures_and_the_reason() {
    let ran = plan(CASE, "--explain");
    assert!(ran.out.contains("default/web"), "{}", ran.out);
    assert!(ran.out.contains("2097152 of"), "{}", ran.out);
    assert!(ran.out.contains("ends: it uses more than it asked for"), "{}", ran.out);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let ran = run("winddown plan eviction -f /nowhere/case.json");
    assert!(ran.err.contains("/nowhere/case.json: cannot be read"), "{}", ran.err);
    assert_eq!(ran.exit, Exit::Failure);
}
