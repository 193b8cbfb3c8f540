//! One table of what each runtime makes of each field of a pod (`rows`). It has every field that the API's own types
//! have, says what the runtimes' checks say, names the tests that show what is done, and is docs/pod-fields.md.
//!
//! A row names, for each runtime, the test that shows the field supported or refused, or the reason why the runtime may
//! ignore it. Only the runtime's `check_supported` has the text of a refusal; `make pages` copies it into the page. If a
//! newer version of the API has fields without a row, the test names them.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PodSpec;

use api::Fields;
use table::{Group, Kind, RUNTIMES};

mod api;
mod page;
mod rows;
mod table;

/// Set by `make pages`, which writes the page.
const WRITE: &str = "WINDDOWN_WRITE_PAGES";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Fields without a row, and rows without a field. Of a struct that no runtime looks into no rows are needed.
fn gaps(structs: &BTreeMap<&'static str, Fields>, table: &[Group]) -> Vec<String> {
    let mut found = Vec::new();
    // An ephemeral container has the fields of a container, and its target.
    let mut known = BTreeSet::from(["PodSpec", "EphemeralContainer"]);
    let mut left = vec!["PodSpec"];
    while let Some(name) = left.pop() {
        let groups = || table.iter().filter(|group| group.of == name);
        for (field, holds) in &structs[name] {
            let rows = || groups().flat_map(|group| &group.rows).filter(|row| row.field == *field);
            if rows().next().is_none() {
                found.push(format!("{name}.{field} has no row"));
            }
            let is_done =
                rows().flat_map(|row| &row.verdicts).any(|v| matches!(v.kind, Kind::Yes(_)));
            left.extend(holds.filter(|holds| is_done && known.insert(holds)));
        }
        let rows = groups().flat_map(|group| &group.rows);
        let extra = rows.filter(|row| !structs[name].contains_key(row.field));
        found.extend(extra.map(|row| format!("{name} has no field {}", row.field)));
    }
    let other = table.iter().filter(|group| !known.contains(group.of));
    found.extend(other.map(|group| format!("{} is nothing that a runtime looks into", group.of)));
    found
}

#[test]
fn every_field_of_a_pod_has_a_row_and_every_row_a_field() {
    assert_eq!(gaps(&api::structs::<PodSpec>(), &rows::all()), Vec::<String>::new());
}

#[test]
fn a_field_of_a_newer_api_and_a_row_of_an_older_one_are_found() {
    let (mut structs, table) = (api::structs::<PodSpec>(), rows::all());
    structs.get_mut("PodSpec").unwrap().insert("ofTomorrow", None);
    structs.get_mut("Container").unwrap().insert("rulesOfTomorrow", Some("RuleOfTomorrow"));
    structs.get_mut("VolumeMount").unwrap().remove("subPathExpr");
    let mut found = gaps(&structs, &table);
    found.sort();
    let expected = [
        "Container.rulesOfTomorrow has no row",
        "PodSpec.ofTomorrow has no row",
        "VolumeMount has no field subPathExpr",
    ];
    assert_eq!(found, expected);
}

#[test]
fn rows_are_in_order() {
    for group in rows::all() {
        assert!(group.rows.is_sorted_by(|a, b| a.field < b.field), "{} at {}", group.of, group.at);
    }
}

#[test]
fn each_runtime_refuses_what_the_table_says_and_nothing_else() {
    let mut wrong = Vec::new();
    for group in &rows::all() {
        for (row, runtime) in group.rows.iter().flat_map(|row| RUNTIMES.map(|one| (row, one))) {
            let verdict = row.verdict(runtime);
            let is_no = matches!(verdict.kind, Kind::No);
            let but = verdict.but.iter().map(|value| (value, true));
            for (value, refused) in [(&row.sample, is_no)].into_iter().chain(but) {
                let refusal = group.refusal(runtime, row, value);
                let right = match &refusal {
                    Some(refusal) => refused && refusal.is_own && !refusal.why.is_empty(),
                    None => !refused,
                };
                if !right {
                    let said = refusal.map_or("accepted".to_owned(), |refusal| refusal.to_string());
                    wrong.push(format!("{runtime}: {} = {value}: {said}", group.path(row)));
                }
            }
            if matches!(verdict.kind, Kind::Left) {
                let left = table::left_out(&group.pod(row, &row.sample));
                assert_eq!(left.unwrap().field, group.path(row));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_test_that_a_row_names_is_there() {
    let mut sources = Vec::new();
    read_sources(&root(), &mut sources);
    assert!(sources.len() > 500, "{}", sources.len());
    let verdicts =
        rows::all().into_iter().flat_map(|group| group.rows).flat_map(|row| row.verdicts);
    let names: BTreeSet<&str> = verdicts
        .flat_map(|verdict| match verdict.kind {
            Kind::Yes(test) => [Some(test), verdict.resolved],
            _ => [None, verdict.resolved],
        })
        .flatten()
        .collect();
    let is_there = |name: &&str| sources.iter().any(|text| has_test(text, name));
    let missing: Vec<&str> = names.into_iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

fn has_test(text: &str, name: &str) -> bool {
    // A scenario stands in the list of a macro, which makes a test of it for each runtime.
    let is_listed = || text.lines().any(|line| line.trim() == name);
    let is_test = || {
        let (before, _) = text.split_once(&format!("fn {name}("))?;
        let attributes = before.lines().rev().take(4).filter(|line| line.trim().starts_with("#["));
        Some(attributes.into_iter().any(|line| line.contains("test")))
    };
    text.contains(name) && (is_listed() || is_test().unwrap_or(false))
}

fn read_sources(directory: &Path, sources: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            read_sources(&path, sources);
        } else if name.ends_with(".rs") {
            sources.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_page_is_that_of_the_table() {
    let (path, page) = (root().join("docs/pod-fields.md"), page::page(&rows::all()));
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/pod-fields.md is not that of the table: run `make pages`");
}
