use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use serde_json::Value;

use super::crates::for_tests::{key, made_up};
use super::{bill, crates, licences};
use crate::repository;

/// The crates that the program links. Cargo takes seconds to list them.
static LINKED: LazyLock<Vec<crates::Crate>> =
    LazyLock::new(|| crates::linked(&repository()).unwrap());

#[test]
fn the_program_s_crates_are_listed_with_checksums_and_tools_of_the_tests_are_not() {
    let linked = &*LINKED;
    let named = |name| linked.iter().find(|one| one.key.0 == name);
    assert!(named("tokio").unwrap().checksum.as_ref().unwrap().len() == 64);
    assert!(named("winddown-shutdown").unwrap().checksum.is_none());
    assert!(named("insta").is_none() && named("xtask").is_none() && named("cc").is_none());
    let program = named("winddown").unwrap();
    assert!(program.uses.contains(&named("winddown-daemon").unwrap().key));
}

#[test]
fn every_crate_of_the_program_has_a_licence_s_text() {
    let page = licences::text(&repository(), &LINKED).unwrap();
    assert!(page.contains("\ntokio 1."), "{}", &page[..2000]);
    assert!(page.contains("Permission is hereby granted, free of charge"));
    assert!(!page.contains("\nwinddown-shutdown "), "our own crates are no third party's");
}

#[test]
fn a_crate_without_a_text_has_its_sibling_s_or_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let [with, without] = ["with", "without"].map(|name| dir.path().join(name));
    fs::create_dir(&with).unwrap();
    fs::create_dir(&without).unwrap();
    fs::write(with.join("LICENSE-MIT"), "One text\r\n").unwrap();
    let mut told = made_up("told", "MIT", &with);
    let mut untold = made_up("untold", "MIT", &without);
    told.checksum = Some("a".to_owned());
    untold.checksum = told.checksum.clone();
    let pair = [told.clone(), untold.clone()];
    let error = licences::text(dir.path(), &pair).unwrap_err().to_string();
    assert!(error.starts_with("untold 1.0.0 is under MIT and no text"), "{error}");

    told.repository = Some("https://example.org/both.git".to_owned());
    untold.repository = Some("https://example.org/both/tree/main/untold".to_owned());
    let page = licences::text(dir.path(), &[told, untold]).unwrap();
    assert!(page.contains("\ntold 1.0.0, untold 1.0.0\n"), "{page}");
    assert_eq!(page.matches("One text").count(), 1, "{page}");
}

#[test]
fn a_bill_names_every_crate_once_and_what_uses_what_and_is_the_same_twice() {
    let mut program = made_up("winddown", "Apache-2.0", "/".as_ref());
    let mut library = made_up("library", "MIT OR Apache-2.0", "/".as_ref());
    library.checksum = Some("ab".repeat(32));
    program.uses.push(key("library"));
    let crates = [library, program];
    let text = bill::json(&crates, 1_700_000_000).unwrap();
    assert_eq!(text, bill::json(&crates, 1_700_000_000).unwrap());
    let bill: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(bill["metadata"]["component"]["name"], "winddown");
    assert_eq!(bill["components"][0]["purl"], "pkg:cargo/library@1.0.0");
    assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    let references: BTreeSet<&str> = bill["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|one| one["dependsOn"].as_array().unwrap())
        .map(|used| used.as_str().unwrap())
        .collect();
    assert_eq!(references, BTreeSet::from(["pkg:cargo/library@1.0.0"]));
}
