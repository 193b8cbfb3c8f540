//! `plan preemption` for cases.

use std::io::Write;

use super::world::run;
use crate::Exit;

/// Returns a case whose single pod has to make room.
fn case(id: &str) -> String {
    let pod = |name: &str, priority: i32| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"priority":{priority},"containers":[
            {{"name":"c","resources":{{"requests":{{"cpu":"100m"}}}}}}]}}}}"#
        )
    };
    let (preemptor, pod) = (pod("dns", 2_000_001_000), pod("a", 0));
    let wanted = r#"[{"resource":"cpu","quantity":100}]"#;
    format!(r#"{{"id":"{id}","preemptor":{preemptor},"pods":[{pod}],"requirements":{wanted}}}"#)
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn plan(text: &str, options: &str) -> super::world::Ran {
    let file = file(text);
    run(&format!("winddown plan preemption -f {} {options}", file.path().display()))
}

#[test]
fn each_case_gets_one_line() {
    let ran = plan(&format!("{}\n{}\n", case("a"), case("b")), "-o json");
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["id"], &lines[1]["id"]), (2, &"a".into(), &"b".into()));
    assert_eq!(ran.exit, Exit::Success);
}

#[test]
fn a_case_that_is_spread_over_lines_is_one_case() {
    let ran = plan(&case("node").replace(',', ",\n  "), "");
    assert_eq!((ran.out.as_str(), ran.exit), ("node: a\n", Exit::Success));
}

#[test]
fn a_case_that_cannot_be_read_is_named_by_its_line_and_the_others_are_answered() {
    let ran = plan(&format!("{}\n{{\"id\":}}\n\n{}\n", case("a").replace('\n', ""), case("c")), "");
    assert_eq!(ran.out, "a: a\nc: a\n");
    assert!(ran.err.lines().next().unwrap().ends_with(":2:7"), "{}", ran.err);
    assert!(ran.err.contains("cases that could not be read: 1"), "{}", ran.err);
    assert_eq!(ran.exit, Exit::Failure);
}

#[test]
fn explained_each_pod_has_a_line_with_its_reason() {
    let ran = plan(&case("a"), "--explain");
    assert!(ran.out.contains("default/a"), "{}", ran.out);
    assert!(ran.out.contains("victim"), "{}", ran.out);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let ran = run("winddown plan preemption -f /nowhere/case.json");
    assert!(ran.err.contains("/nowhere/case.json: cannot be read"), "{}", ran.err);
    assert_eq!(ran.exit, Exit::Failure);
}
