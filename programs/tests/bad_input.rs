//! Broken configurations and manifests, with the exact error for each.
//!
//! The tables are `tests/data/bad/*.txt`: `=== name`, the file, `>>>`, the error. After a deliberate
//! change of a text, `WINDDOWN_BLESS=1 cargo test -p winddown --test all bad_input` writes the new ones;
//! read the difference before it is committed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail the test")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use winddown_config::Config;
use winddown_static_pods::read_manifest;

struct Case<'a> {
    name: &'a str,
    input: &'a str,
    error: &'a str,
}

fn cases(table: &str) -> Vec<Case<'_>> {
    let case = |text| {
        let (name, rest): (&str, &str) = str::split_once(text, '\n').expect("a name");
        let (input, error) = rest.split_once(">>>\n").expect(name);
        Case { name, input, error: error.trim_end() }
    };
    table.split("=== ").skip(1).map(case).collect()
}

/// Compares every case of the table with the result of `read`.
fn check(table: &str, read: impl Fn(&str) -> Option<String>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad").join(table);
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut blessed, mut wrong) = (String::new(), String::new());
    for Case { name, input, error } in cases(&text) {
        let said = read(input).unwrap_or_else(|| "(accepted)".to_owned());
        let _ = write!(blessed, "=== {name}\n{input}>>>\n{said}\n\n");
        if said == "(accepted)" || said != error {
            let _ = write!(wrong, "{name}:\n  wanted {error}\n  got    {said}\n");
        }
    }
    if std::env::var_os("WINDDOWN_BLESS").is_some() {
        std::fs::write(&path, blessed).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn config_error(text: &[u8]) -> Option<String> {
    Config::parse(Path::new("config.yaml"), text).err().map(|error| error.to_string())
}

fn manifest_error(text: &[u8]) -> Option<String> {
    read_manifest(Path::new("web.yaml"), text, "node1").err().map(|error| error.to_string())
}

#[test]
fn each_broken_configuration_is_refused_with_its_exact_text() {
    check("configs.txt", |text| config_error(text.as_bytes()));
}

#[test]
fn each_broken_manifest_is_refused_with_its_exact_text() {
    check("manifests.txt", |text| manifest_error(text.as_bytes()));
}

#[test]
fn the_tables_hold_at_least_sixty_cases() {
    let count = |table: &str| cases(table).len();
    let configs = count(include_str!("data/bad/configs.txt"));
    let manifests = count(include_str!("data/bad/manifests.txt"));
    assert!(configs + manifests >= 60, "{configs} and {manifests}");
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_place() {
    let error = "3:9: this is not UTF-8 text: save the file as UTF-8";
    let text = b"apiVersion: v1\nkind: Pod\nname: \xc3\xa9x\xff\n";
    assert_eq!(manifest_error(text).unwrap(), format!("web.yaml:{error}"));
    assert_eq!(config_error(text).unwrap(), format!("config.yaml:{error}"));
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_parsed() {
    let text = vec![b'#'; 1024 * 1024 + 1];
    let error = "the file is larger than 1048576 bytes";
    assert_eq!(manifest_error(&text).unwrap(), format!("web.yaml: {error}"));
    assert_eq!(config_error(&text).unwrap(), format!("config.yaml: {error}"));
}

#[test]
fn nesting_that_is_too_deep_is_refused_with_its_place() {
    let text = format!("a: {}{}\n", "[".repeat(200), "]".repeat(200));
    let error = manifest_error(text.as_bytes()).unwrap();
    assert_eq!(error, "web.yaml:1:67: nested deeper than 64 levels");
    let text = format!("a: {}\n", "[".repeat(200_000));
    assert!(manifest_error(text.as_bytes()).is_some());
}

#[test]
fn a_file_that_is_wrong_everywhere_is_answered_with_the_first_fifty() {
    let labels: String = (0..40_000).map(|n| format!("    k{n}/: v\n")).collect();
    let text = format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels:\n{labels}");
    let error = manifest_error(text.as_bytes()).unwrap();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 51);
    let last = lines[50].split_once(": ").unwrap().1;
    assert_eq!(last, "more errors follow; fix these first");
    let fields: String = (0..40_000).map(|n| format!("k{n}: v\n")).collect();
    let text = format!("apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n{fields}");
    assert_eq!(config_error(text.as_bytes()).unwrap().lines().count(), 51);
}
