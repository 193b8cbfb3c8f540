//! The alerts and the dashboard: Prometheus accepts them, each alert fires when it is due and not
//! before, and the agent has every metric that they name.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::written::is_on_page;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn monitoring(file: &str) -> PathBuf {
    repository().join("programs/packaging/monitoring").join(file)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns Prometheus' own checker, installed or unpacked by `tests/node/packages.sh`.
fn promtool_or_skip(test: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let unpacked = cache.or_else(home).unwrap_or_default();
    let unpacked = unpacked.join("winddown/tools/prometheus/usr/bin/promtool");
    let works = |program: &PathBuf| {
        Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
    };
    let found = [PathBuf::from("promtool"), unpacked].into_iter().find(works);
    if found.is_none() {
        let why = "no promtool; tests/node/packages.sh promtool unpacks it";
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{why}");
        println!("SKIPPED: {test}: {why}");
    }
    found
}

fn promtool(program: &Path, args: &[&str], files: &[&Path]) {
    let output = Command::new(program).args(args).args(files).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said));
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap()
}

fn rules() -> Vec<Value> {
    let file = yaml(&monitoring("rules.yaml"));
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&read(&monitoring("grafana.json"))).unwrap()
}

/// Returns every expression of the dashboard, with Grafana's variables filled in, and its place.
fn dashboard_expressions() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((panel["title"].to_string(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
        let expression = annotation["expr"].as_str();
        found.extend(expression.map(|expr| (annotation["name"].to_string(), expr.to_owned())));
    }
    for (_, expression) in &mut found {
        *expression = expression
            .replace("$__rate_interval", "5m")
            .replace("$__interval", "5m")
            .replace("$__range", "6h")
            .replace("$job", ".*")
            .replace("$instance", ".*");
        assert!(!expression.contains('$'), "an unknown variable in {expression}");
    }
    found
}

/// Returns the names of metrics in an expression: words that are followed by neither `(` nor a
/// label's operator, and are no keywords.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    const WORDS: [&str; 10] =
        ["and", "or", "unless", "bool", "offset", "sum", "max", "min", "avg", "count"];
    let mut names = BTreeSet::new();
    // Text in quotes, braces or brackets, and lists of labels, contain no metrics.
    let mut expression = expression.to_owned();
    for list in ["by (", "without (", "on (", "ignoring ("] {
        while let Some(start) = expression.find(list) {
            let end = start + expression[start..].find(')').unwrap();
            expression.replace_range(start..=end, " ");
        }
    }
    let (mut plain, mut depth, mut quoted) = (String::new(), 0, false);
    for c in expression.chars() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth -= 1;
                plain.push(' ');
            }
            _ if depth > 0 => {}
            c => plain.push(c),
        }
    }
    let mut rest = plain.as_str();
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        rest = &rest[start..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        let is_call = after.trim_start().starts_with('(');
        let is_number = name.starts_with(|c: char| c.is_ascii_digit());
        if !is_call && !is_number && !WORDS.contains(&name) {
            names.insert(name.to_owned());
        }
        rest = after;
    }
    names
}

/// Returns the agent's metrics by their names in queries: the table in docs/reference/metrics.md,
/// which `tests/metrics.rs` compares with a scrape, family by family.
fn known_metrics() -> BTreeMap<String, Vec<String>> {
    let page = read(&repository().join("docs/reference/metrics.md"));
    let mut known = BTreeMap::from([("up".to_owned(), Vec::new())]);
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[0].trim_end_matches('`');
        let labels: Vec<String> =
            cells[2].split(',').map(|label| label.trim().trim_matches('`').to_owned()).collect();
        let suffixes: &[&str] =
            if cells[1] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        for suffix in suffixes {
            known.insert(format!("{name}{suffix}"), labels.clone());
        }
    }
    assert!(known.len() > 40, "{known:?}");
    known
}

#[test]
fn names_are_found_in_an_expression() {
    for (expression, wanted) in [
        ("a_b == 0", "a_b"),
        ("sum by (x, le) (rate(c_bucket{job=~\"a b\"}[5m]))", "c_bucket"),
        ("a > bool 0 and time() - b{x=\"d\"} < 6 * 3600", "a b"),
        ("x / on (instance) y", "x y"),
        ("a - (a offset 5m or b * 0) > 0 and max_over_time(c[6h] @ end()) > 0", "a b c"),
    ] {
        let names: Vec<String> = metrics_in(expression).into_iter().collect();
        assert_eq!(names.join(" "), wanted, "{expression}");
    }
}

#[test]
fn every_metric_that_is_named_is_one_of_the_agents() {
    let known = known_metrics();
    let alerts = rules()
        .into_iter()
        .map(|rule| (rule["alert"].to_string(), rule["expr"].as_str().unwrap().to_owned()));
    let mut wrong = String::new();
    for (place, expression) in alerts.chain(dashboard_expressions()) {
        let names = metrics_in(&expression);
        assert!(!names.is_empty(), "{place}: {expression}");
        for name in names.iter().filter(|name| !known.contains_key(*name)) {
            let _ = writeln!(wrong, "{place}: {name}");
        }
    }
    assert!(wrong.is_empty(), "not in docs/reference/metrics.md:\n{wrong}");
}

#[test]
fn every_label_that_a_text_names_is_one_that_its_alert_has() {
    let known = known_metrics();
    for rule in rules() {
        let expression = rule["expr"].as_str().unwrap();
        let names = metrics_in(expression);
        let labels: BTreeSet<&str> =
            names.iter().filter_map(|name| known.get(name)).flatten().map(String::as_str).collect();
        for text in ["summary", "description"] {
            let text = rule["annotations"][text].as_str().unwrap();
            for used in text.split("$labels.").skip(1) {
                let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                assert!(
                    used == "instance" || labels.contains(used),
                    "{}: {used} is no label of {names:?}",
                    rule["alert"]
                );
            }
        }
    }
}

#[test]
fn prometheus_takes_the_alerts_and_each_comes_when_it_is_due() {
    let test = "prometheus_takes_the_alerts_and_each_comes_when_it_is_due";
    let Some(program) = promtool_or_skip(test) else { return };
    promtool(&program, &["check", "rules"], &[&monitoring("rules.yaml")]);
    promtool(&program, &["test", "rules"], &[&monitoring("rules_test.yaml")]);
}

#[test]
fn the_judge_of_alerts_would_say_if_one_did_not_come() {
    let test = "the_judge_of_alerts_would_say_if_one_did_not_come";
    let Some(program) = promtool_or_skip(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    // The same tests must fail for alerts that wait for a day.
    let slow = read(&monitoring("rules.yaml")).replace("for: 2m", "for: 1d");
    std::fs::write(folder.path().join("rules.yaml"), slow).unwrap();
    let tests = folder.path().join("rules_test.yaml");
    std::fs::copy(monitoring("rules_test.yaml"), &tests).unwrap();
    let output = Command::new(program).args(["test", "rules"]).arg(&tests).output().unwrap();
    assert!(!output.status.success());
}

#[test]
fn each_alert_has_a_moment_when_it_comes_one_when_it_does_not_and_a_next_step() {
    let tests = yaml(&monitoring("rules_test.yaml"));
    let (mut silent, mut firing) = (BTreeSet::new(), BTreeSet::new());
    for test in tests["tests"].as_array().unwrap() {
        for case in test["alert_rule_test"].as_array().into_iter().flatten() {
            let name = case["alertname"].as_str().unwrap().to_owned();
            let expected = case["exp_alerts"].as_array().is_some_and(|list| !list.is_empty());
            if expected { &mut firing } else { &mut silent }.insert(name);
        }
        for case in test["promql_expr_test"].as_array().into_iter().flatten() {
            let expression = case["expr"].as_str().unwrap();
            assert!(!case["exp_samples"].as_array().unwrap().is_empty());
            firing.insert(expression.split('"').nth(1).unwrap().to_owned());
        }
    }
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(firing.contains(name), "{name} never comes in rules_test.yaml");
        assert!(silent.contains(name), "{name} never stays away in rules_test.yaml");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(matches!(severity, "warning" | "critical"), "{name}: {severity}");
        let next = rule["annotations"]["description"].as_str().unwrap();
        let does = ["winddown ", "systemctl ", "journalctl "];
        assert!(does.iter().any(|command| next.contains(command)), "{name}: what to do next?");
    }
}

#[test]
fn the_page_on_monitoring_has_each_alert() {
    let row = |rule: &Value| {
        let [name, severity, summary] =
            [&rule["alert"], &rule["labels"]["severity"], &rule["annotations"]["summary"]]
                .map(|value| value.as_str().unwrap());
        let lasts = rule["for"].as_str().unwrap_or_default();
        format!("| `{name}` | {severity} | {lasts} | {} |\n", filled_in(summary))
            .replace("|  |", "| |")
    };
    let table = "| alert | severity | after | says |\n|---|---|---|---|\n".to_owned();
    let rows: String = rules().iter().map(row).collect();
    is_on_page("docs/how-to/monitoring.md", "the alerts", &(table + &rows));
}

/// A text of an alert, with names in place of what Prometheus fills in.
fn filled_in(text: &str) -> String {
    let mut pieces = text.split("{{ $");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (variable, rest) = piece.split_once(" }}").unwrap();
        filled += match variable {
            "labels.instance" => "NODE",
            "value" => "N",
            label => label.trim_start_matches("labels."),
        };
        filled += rest;
    }
    filled
}

#[test]
fn each_alert_names_an_installed_page_and_a_heading_of_it() {
    for rule in rules() {
        let url = rule["annotations"]["runbook_url"].as_str().unwrap_or_default();
        let place = url.strip_prefix("file:///usr/share/doc/winddown/docs/");
        let (page, anchor) = place.and_then(|place| place.split_once('#')).unwrap_or_default();
        assert!(!anchor.is_empty(), "{}: {url:?}", rule["alert"]);
        let text = read(&repository().join("docs").join(page));
        let headings = text.lines().filter(|line| line.starts_with('#'));
        let mut anchors = headings.map(|line| {
            let kept = line.trim_start_matches('#').trim().to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
            kept.collect::<String>().replace(' ', "-")
        });
        assert!(anchors.any(|one| one == anchor), "{}: {url}", rule["alert"]);
    }
}

#[test]
fn prometheus_takes_every_expression_of_the_dashboard() {
    let test = "prometheus_takes_every_expression_of_the_dashboard";
    let Some(program) = promtool_or_skip(test) else { return };
    // As recording rules: promtool has no command for an expression alone.
    let rules: Vec<Value> = dashboard_expressions()
        .into_iter()
        .enumerate()
        .map(|(n, (_, expr))| serde_json::json!({ "record": format!("panel:{n}"), "expr": expr }))
        .collect();
    assert!(rules.len() > 25, "{}", rules.len());
    let file = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dashboard.yaml");
    std::fs::write(&path, file.to_string()).unwrap();
    promtool(&program, &["check", "rules"], &[&path]);
}

#[test]
fn the_dashboard_has_no_panel_without_a_source_a_place_and_an_explanation() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_i64().unwrap() >= 39);
    let variables: Vec<&str> = dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_i64().unwrap()), "{title}: an id twice");
        let at = |side: &str| panel["gridPos"][side].as_i64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title}: beyond the edge");
        for (x, y) in (at("x")..at("x") + at("w"))
            .flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert((x, y)), "{title}: over another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let expression = target["expr"].as_str().unwrap();
            let selectors = expression.matches('{').count();
            let chosen = expression.matches(r#"{job=~"$job", instance=~"$instance""#).count();
            assert_eq!(selectors, chosen, "{title}: shows other nodes than are chosen");
        }
    }
}
