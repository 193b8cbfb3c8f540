//! The pictures of the documentation are exactly what the code draws for the recorded runs of `make pages PICTURES=1`.
//! `WINDDOWN_BLESS=1` redraws them.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::path::Path;

use winddown_render::report;
use winddown_shutdown::ShutdownReport;

/// The reports, and their pictures in the documentation.
const PICTURES: [(&str, &str); 3] = [
    ("five", "docs/img/report-5-pods.svg"),
    ("thirty", "docs/img/report-30-pods.svg"),
    ("twohundred", "docs/img/report-200-pods.svg"),
];

/// The report of the page that the documentation shows.
const PAGE: (&str, &str) = ("thirty", "docs/img/report-30-pods.html");

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn example(name: &str) -> ShutdownReport {
    let path = root().join(format!("programs/render/tests/reports/{name}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_pictures_of_the_documentation_are_up_to_date() {
    let bless = std::env::var_os("WINDDOWN_BLESS").is_some();
    let pictures = PICTURES.map(|(name, picture)| (picture, report::svg(&example(name))));
    let page = (PAGE.1, report::html(&example(PAGE.0)));
    for (picture, drawn) in pictures.into_iter().chain([page]) {
        let path = root().join(picture);
        if bless {
            fs::write(&path, &drawn).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == drawn, "{picture} is out of date: WINDDOWN_BLESS=1 draws it anew");
    }
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
