//! The kinds of lines, their catalog and their documentation agree.

use std::collections::BTreeSet;
use std::process::Command;

use winddown_daemon::logging::KINDS;

use crate::written::is_on_page;

/// Fields that a catalog text may name, as the journal has them.
const FIELDS: [&str; 12] = [
    "POD_NAMESPACE",
    "POD_NAME",
    "POD_CONTAINER",
    "EXIT_CODE",
    "REASON",
    "SIGNAL",
    "PREEMPTOR",
    "CONDITION",
    "TOOK_SECONDS",
    "GRACE_SECONDS",
    "SET_BY",
    "SOURCE",
];

fn catalog() -> String {
    std::fs::read_to_string(super::repository().join("programs/packaging/catalog/winddown.catalog"))
        .unwrap()
}

/// Id and text of each entry.
fn entries(catalog: &str) -> Vec<(&str, &str)> {
    let parts = catalog.split("\n-- ").skip(1);
    parts.map(|part| part.split_once('\n').unwrap()).collect()
}

#[test]
fn each_kind_of_line_has_a_text_in_the_catalog() {
    let catalog = catalog();
    let described: BTreeSet<&str> = entries(&catalog).into_iter().map(|(id, _)| id).collect();
    let known: BTreeSet<&str> = KINDS.iter().map(|kind| kind.id).collect();
    assert_eq!(described, known);
}

#[test]
fn the_page_on_logs_has_each_kind_of_line() {
    let rows =
        KINDS.iter().map(|kind| format!("| `{}` | {} | `{}` |\n", kind.name, kind.phase, kind.id));
    let table =
        "| kind | phase | MESSAGE_ID |\n|---|---|---|\n".to_owned() + &rows.collect::<String>();
    is_on_page("docs/reference/logs.md", "the kinds of lines", &table);
}

#[test]
fn catalog_texts_name_only_fields_that_lines_have() {
    for (id, text) in entries(&catalog()) {
        let names = text.split('@').skip(1).step_by(2);
        for name in names {
            assert!(FIELDS.contains(&name), "{id} names {name}");
        }
        assert_eq!(text.matches('@').count() % 2, 0, "{id}: a lonely @");
        assert!(text.starts_with("Subject: "), "{id}");
        assert!(text.lines().all(|line| line.len() <= 110), "{id}: a line is too long");
    }
}

#[test]
fn every_kind_that_a_statement_names_is_known() {
    let mut named = BTreeSet::new();
    let mut folders = super::sources();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let marks = match path.to_string_lossy().contains("api/decision") {
                    true => ["told.pod(\"", ".node(\""].as_slice(),
                    false => &["log_kind = \""],
                };
                for mark in marks {
                    let kinds = text.split(mark).skip(1);
                    named.extend(kinds.map(|rest| rest.split('"').next().unwrap().to_owned()));
                }
            }
        }
    }
    let known: BTreeSet<String> = KINDS.iter().map(|kind| kind.name.to_owned()).collect();
    assert!(named.len() >= 10, "{named:?}");
    assert!(named.is_subset(&known), "{:?}", named.difference(&known));
}

#[test]
fn the_journal_takes_the_catalog_and_finds_every_text() {
    let test = "the_journal_takes_the_catalog_and_finds_every_text";
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("usr/lib/systemd/catalog");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(root.path().join("var/lib/systemd/catalog")).unwrap();
    std::fs::write(folder.join("winddown.catalog"), catalog()).unwrap();
    let journalctl = |arguments: &[&str]| {
        let root = format!("--root={}", root.path().display());
        Command::new("journalctl").arg(root).args(arguments).output()
    };
    let Ok(updated) = journalctl(&["--update-catalog"]) else {
        let why = "no journalctl; apt install systemd";
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{why}");
        println!("SKIPPED: {test}: {why}");
        return;
    };
    let said = String::from_utf8_lossy(&updated.stderr).into_owned();
    assert!(updated.status.success() && said.is_empty(), "{said}");
    let listed = journalctl(&["--list-catalog"]).unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for kind in &KINDS {
        assert!(listed.contains(&format!("{} winddown: ", kind.id)), "{}: {listed}", kind.name);
    }
}
