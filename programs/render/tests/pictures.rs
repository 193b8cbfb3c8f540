//! The page and the text of the documentation are exactly what the code makes of the recorded runs of
//! `make pages PICTURES=1`. `WINDDOWN_BLESS=1` writes them.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::path::Path;

use winddown_render::report;
use winddown_shutdown::ShutdownReport;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn example(name: &str) -> ShutdownReport {
    let path = root().join(format!("programs/render/tests/reports/{name}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_page_of_the_documentation_is_up_to_date() {
    let path = root().join("docs/img/report-30-pods.html");
    let page = report::html(&example("thirty"));
    if std::env::var_os("WINDDOWN_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "{} is out of date: WINDDOWN_BLESS=1 writes it", path.display());
}

#[test]
fn the_text_of_the_documentation_is_up_to_date() {
    let path = root().join("docs/reference/report.md");
    let mut docs = fs::read_to_string(&path).unwrap();
    let text = report::text(&example("five"), false);
    if std::env::var_os("WINDDOWN_BLESS").is_some() {
        let (before, rest) = docs.split_once("```text\n").unwrap();
        let (_, after) = rest.split_once("```\n").unwrap();
        docs = format!("{before}```text\n{text}```\n{after}");
        fs::write(path, &docs).unwrap();
    }
    assert!(docs.contains(&text), "docs/reference/report.md does not show this:\n{text}");
}
