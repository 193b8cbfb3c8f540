//! The page and the text of the documentation are exactly what the code makes of the recorded runs of
//! `make pages PICTURES=1`. `WINDDOWN_BLESS=1` writes them.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
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

/// The report that the recording of the README ends with, read back from its rows: names, graces and times.
fn reread(said: &str) -> ShutdownReport {
    let number = |text: &str| text.trim_end_matches(" s").parse::<f64>().ok();
    let millis = |text: &str| text.replace('.', "").parse::<u64>().ok();
    let cut = |from: &str, to: &str| {
        said.split_once(from).and_then(|(_, rest)| rest.split_once(to)).unwrap().0
    };
    let pod = |row: &str| {
        let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let (namespace, name) = cells[0].split_once('/').unwrap();
        let (grace, own) = cells[1].split_once(" of ").unwrap_or((cells[1], ""));
        let killed = cells.get(5).and_then(|remark| remark.strip_prefix("killed: "));
        json!({
            "namespace": namespace, "name": name, "uid": name, "graceSeconds": number(grace),
            "ownGraceSeconds": number(own), "requestedMs": millis(cells[2]),
            "sigtermMs": millis(cells[3]), "exitMs": millis(cells[4]),
            "outcome": if killed.is_some() { "killed" } else { "exited" },
            "containers": killed.map(|names| vec![names]).unwrap_or_default(),
        })
    };
    let group = |text: &str| {
        let (head, rows) = text.split_once('\n').unwrap();
        let had = head.split(" of ").nth(1).unwrap().split(" · ").next().and_then(number).unwrap();
        let pods: Vec<_> = rows.lines().skip(1).map(pod).collect();
        let all = |name: &str| pods.iter().filter_map(|pod| pod[name].as_u64()).collect::<Vec<_>>();
        let started = all("requestedMs").into_iter().min().unwrap();
        json!({
            "priority": head.split(' ').nth(1).unwrap().parse::<i32>().unwrap(),
            "startedMs": started, "finishedMs": all("exitMs").into_iter().max(),
            "deadlineSeconds": started as f64 / 1000.0 + had, "configuredSeconds": had, "allowedSeconds": had, "pods": pods,
        })
    };
    let budget = number(cut("(budget ", ")"));
    let mut report = serde_json::to_value(example("five")).unwrap();
    report["trigger"] = "drill".into();
    report["outcome"] = "forced".into();
    report["nodeAction"] = Value::Null;
    report["tookSeconds"] = json!(number(cut(" in ", " (")));
    report["budget"] =
        json!({"requestedSeconds": budget, "podsSeconds": budget, "reserveSeconds": 0.0});
    report["startedAt"] = format!("{}Z", cut("\n", " UTC").replace(' ', "T")).into();
    report["node"] = cut("node ", " ·").into();
    report["bootId"] = cut("boot ", "\n").into();
    report["groups"] = said.trim_end().split("\n\n").skip(1).map(group).collect();
    serde_json::from_value(report).unwrap()
}

#[test]
fn the_recording_of_the_readme_ends_with_what_the_program_prints_now() {
    let path = root().join("programs/tests/live/demo.sent");
    let sent = String::from_utf8(fs::read(path).unwrap()).unwrap().replace('\r', "");
    let plain: String = sent
        .split("\u{1b}[")
        .enumerate()
        .map(|(n, piece)| match n {
            0 => piece,
            _ => piece.split_once(|c: char| c.is_ascii_alphabetic()).unwrap().1,
        })
        .collect();
    let (_, plain) = plain.rsplit_once("Forced drill").unwrap();
    let (plain, _) = plain.split_once("Lock released").unwrap();
    let report = reread(plain);
    let now = report::text(&report, true);
    assert!(
        sent.contains(&now),
        "`make pages PICTURES=1` records it anew:\n{now}\n{}",
        report::text(&report, false)
    );
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
fn the_page_explains_ends_of_pods_by_the_words_of_a_report() {
    let page = fs::read_to_string(root().join("docs/reference/report.md")).unwrap();
    for end in [PodEnd::Killed, PodEnd::NotRunning, PodEnd::Gone] {
        let word = format!("`{}`", end.text().word);
        assert!(page.contains(&word), "docs/reference/report.md does not explain {word}");
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
        LastBoot::Unseen { boot_id, agent_stopped_at: None, disk_was_full: false },
    ] {
        let said = format!("`{}`", last.describe().unwrap());
        assert!(page.contains(&said), "docs/reference/report.md does not quote {said}");
    }
}
