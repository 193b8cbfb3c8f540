//! The page and the text of the documentation are exactly what the code makes of the recorded runs of
//! `make pages PICTURES=1`. `WINDDOWN_BLESS=1` writes them.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use winddown_render::report;
use winddown_shutdown::{LastBoot, Outcome, PodEnd, PodReport, ShutdownReport};

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

#[test]
fn the_table_of_outcomes_in_the_documentation_is_up_to_date() {
    const HEAD: &str = "| first word | `outcome` | meaning |\n|---|---|---|\n";
    let path = root().join("docs/reference/report.md");
    let docs = fs::read_to_string(&path).unwrap();
    let row = |outcome: Outcome| {
        let (text, name) = (outcome.text(), serde_json::to_value(outcome).unwrap());
        format!("| {} | `{}` | {} |\n", text.word, name.as_str().unwrap(), text.meaning)
    };
    let table: String = Outcome::ALL.map(row).concat();
    let (before, rest) = docs.split_once(HEAD).unwrap();
    let (kept, after) = rest.split_once("\n\n").unwrap();
    if std::env::var_os("WINDDOWN_BLESS").is_some() {
        fs::write(path, format!("{before}{HEAD}{table}\n{after}")).unwrap();
    } else {
        assert_eq!(format!("{kept}\n"), table, "WINDDOWN_BLESS=1 writes it");
    }
}

#[test]
fn what_to_look_at_after_a_shutdown_is_sorted_by_words_that_a_report_begins_with() {
    let page = fs::read_to_string(root().join("docs/how-to/troubleshooting.md")).unwrap();
    let (_, table) = page.split_once("| the report says | look at |\n").unwrap();
    let rows = table.lines().map(str::trim_start).take_while(|line| line.starts_with('|')).skip(1);
    let said: Vec<&str> =
        rows.map(|row| row[1..].trim_start().split([',', ' ']).next().unwrap()).collect();
    let known: Vec<&str> =
        Outcome::ALL.map(|outcome| outcome.text().word).into_iter().chain(["still"]).collect();
    assert_eq!(said.len(), 5, "{said:?}");
    assert!(said.iter().all(|word| known.contains(word)), "{said:?} are not all in {known:?}");
}

#[test]
fn the_documentation_quotes_what_is_said_of_the_last_boot() {
    let run = |outcome, seconds: f64, ends: &[PodEnd], name: &str| {
        let mut run = example("five");
        (run.outcome, run.took) = (outcome, Duration::from_secs_f64(seconds));
        let mut pod = run.groups[0].pods[0].clone();
        (pod.namespace, pod.name) = ("default".to_owned(), name.to_owned());
        let of = |end: &PodEnd| PodReport { end: *end, ..pod.clone() };
        run.groups.truncate(1);
        run.groups[0].pods = ends.iter().map(of).collect();
        Box::new(run)
    };
    let (gone, killed) = (PodEnd::Exited, PodEnd::Killed);
    let (ending, spared) = (PodEnd::Terminating, PodEnd::Spared);
    let clean = run(Outcome::Clean, 8.2, &[gone; 5], "");
    let forced = run(Outcome::Forced, 20.0, &[gone, gone, gone, gone, killed], "web");
    let cut = run(Outcome::CutOff, 12.0, &[gone, gone, gone, ending, spared, spared], "db");
    let page = fs::read_to_string(root().join("docs/reference/report.md")).unwrap();
    let boot_id = String::new();
    for last in [
        LastBoot::Reported(clean),
        LastBoot::Reported(forced),
        LastBoot::Recorded(cut),
        LastBoot::Unseen { boot_id, agent_stopped_at: None },
    ] {
        let said = format!("`{}`", last.describe().unwrap());
        assert!(page.contains(&said), "docs/reference/report.md does not quote {said}");
    }
}
