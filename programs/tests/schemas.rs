//! Checks the program's real output against its JSON schemas with an independent validator.

#![allow(clippy::expect_used, clippy::panic, reason = "clippy does not see that helpers are tests")]

mod answers;
mod broken;
mod validator;

use std::path::Path;

use answers::answers;
use serde_json::{Value, json};
use validator::{is_there, judge};

use crate::agent::winddown;

/// The schemas of everything that `schema --list` names.
fn schemas() -> Vec<(String, Value)> {
    let output = winddown().args(["schema", "--list"]).output().expect("the program runs");
    let names = String::from_utf8(output.stdout).expect("text");
    let of = |name: &str| answers(winddown().args(["schema", name])).remove(0);
    names.lines().map(|name| (name.to_owned(), of(name))).collect()
}

/// Real answers, each with the name of its schema.
fn collected() -> Vec<(&'static str, Value)> {
    let mut all: Vec<(&'static str, Value)> = Vec::new();
    let mut add = |name, values: Vec<Value>| all.extend(values.into_iter().map(|v| (name, v)));
    let bed = answers::start();
    let notice = bed.root().join("run/winddown/notice");
    add("status", answers(&mut bed.ask(&["status", "-o", "json"])));
    add("plan-shutdown", answers(&mut bed.ask(&["plan", "shutdown", "-o", "json"])));
    add("plan-start", answers(&mut bed.ask(&["plan", "start", "-o", "json"])));
    add("start-report", answers(&mut bed.ask(&["report", "--start", "-o", "json"])));
    add("plan-preemption", answers(&mut bed.ask(&["plan", "preemption", "-o", "json"])));
    let manifest = bed.root().join("large.yaml");
    std::fs::write(&manifest, LARGE).expect("written");
    let manifest = manifest.to_string_lossy().into_owned();
    let ask = ["plan", "preemption", "-f", &manifest, "--explain", "-o", "json"];
    add("plan-preemption", answers(&mut bed.ask(&ask)));
    add("plan-eviction", answers(&mut bed.ask(&["plan", "eviction", "--explain", "-o", "json"])));
    add("release", answers(&mut bed.ask(&["release", "web-n1", "-o", "json"])));
    add("kill", answers(&mut bed.ask(&["kill", "web-n1", "-o", "json"])));
    add("termination-notice", answers::termination_notice(&bed, "operator"));
    // Too far ahead to start a drain by itself.
    std::fs::write(&notice, "12h\n").expect("written");
    add("drain", answers(&mut bed.ask(&["drain", "--timeout", "10s", "-o", "json"])));
    add("termination-notice", answers::termination_notice(&bed, "drain"));
    add("status", answers(&mut bed.ask(&["status", "-o", "json"])));
    add("report", answers(&mut bed.ask(&["report", "-o", "json"])));
    add("report-list", answers(&mut bed.ask(&["report", "--list", "-o", "json"])));
    std::fs::remove_file(&notice).expect("removed");
    add("undrain", answers(&mut bed.ask(&["undrain", "-o", "json"])));
    add("doctor", answers(winddown().args(["doctor", "-o", "json"])));
    add("version", answers(winddown().args(["version", "-o", "json"])));
    for (name, command, case) in CASES {
        let file = bed.root().join("cases.jsonl");
        std::fs::write(&file, format!("{case}\n")).expect("written");
        let file = file.to_string_lossy().into_owned();
        for explain in [&[][..], &["--explain"]] {
            if explain.is_empty() || *command != "shutdown" {
                let ask = [&["plan", *command, "-f", &file, "-o", "json"], explain].concat();
                add(name, answers(winddown().args(ask)));
            }
        }
    }
    all
}

#[test]
fn every_answer_in_json_is_as_its_schema_says_and_has_no_field_that_the_schema_does_not_name() {
    let test =
        "every_answer_in_json_is_as_its_schema_says_and_has_no_field_that_the_schema_does_not_name";
    if !is_there(test) {
        return;
    }
    let open = schemas();
    let answers = collected();
    // Validators of users accept additional fields, which a later version may add; here they are mistakes.
    let schemas: Vec<(String, Value)> =
        open.iter().map(|(name, schema)| (name.clone(), closed(schema))).collect();
    let schema = |name: &str| &schemas.iter().find(|(n, _)| n == name).expect("listed").1;
    let cases: Vec<_> = schemas.iter().map(|(_, schema)| (schema, None)).collect();
    for ((name, _), said) in schemas.iter().zip(judge(&cases)) {
        assert_eq!(said, "ok", "{name}");
        let asked = answers.iter().any(|(n, _)| n == name);
        assert!(asked || name == "config", "{name}: no answer is held against it");
    }
    let cases: Vec<_> = answers.iter().map(|(name, v)| (schema(name), Some(v))).collect();
    for ((name, answer), said) in answers.iter().zip(judge(&cases)) {
        assert_eq!(said, "ok", "{name}: {answer:#}");
    }
    let mut of_later = Vec::new();
    for (name, answer) in answers.iter().filter(|(name, _)| !name.ends_with("-line")) {
        assert_eq!(answer["apiVersion"], "winddown.dev/v1alpha1", "{name}");
        assert!(answer["kind"].is_string(), "{name}");
        let schema = &open.iter().find(|(n, _)| n == name).expect("listed").1;
        let mut more = answer.clone();
        more["unknownField"] = json!(1);
        of_later.push((name, schema, more));
    }
    let cases: Vec<_> = of_later.iter().map(|(_, schema, more)| (*schema, Some(more))).collect();
    for ((name, ..), said) in of_later.iter().zip(judge(&cases)) {
        assert_eq!(said, "ok", "{name}");
    }
    // Simulates fields that a later version adds without changing the schema.
    let grown: Vec<(&str, String, Value)> = answers
        .iter()
        .flat_map(|(name, answer)| grown(answer).into_iter().map(move |(at, v)| (*name, at, v)))
        .collect();
    let cases: Vec<_> = grown.iter().map(|(name, _, v)| (schema(name), Some(v))).collect();
    for ((name, at, _), said) in grown.iter().zip(judge(&cases)) {
        let free = ["/fields", "/frees"].iter().any(|map| at.ends_with(map));
        assert!(free || said != "ok", "{name}: {at} may have fields that the schema does not name");
    }
}

#[test]
fn the_list_of_reports_names_each_value_that_a_report_may_have() {
    let schemas = schemas();
    let schema = |name: &str| &schemas.iter().find(|(other, _)| other == name).expect("there").1;
    for (kind, field) in [("Outcome", "outcome"), ("Trigger", "trigger")] {
        let values = schema("report")["$defs"][kind]["oneOf"].as_array().expect("values");
        assert!(values.len() >= 5, "{values:?}");
        let list = &schema("report-list")["$defs"];
        assert_eq!(list[kind]["oneOf"].as_array(), Some(values), "{field}");
        let said = &list["ReportEntry"]["properties"][field]["$ref"];
        assert_eq!(said.as_str(), Some(&*format!("#/$defs/{kind}")), "{field}");
    }
}

#[test]
fn a_configuration_that_the_agent_accepts_is_as_the_schema_says() {
    if !is_there("a_configuration_that_the_agent_accepts_is_as_the_schema_says") {
        return;
    }
    let schema = answers(winddown().args(["config", "schema"])).remove(0);
    let default = winddown().args(["config", "default"]).output().expect("the program runs");
    let mut files = vec![("default".to_owned(), String::from_utf8(default.stdout).expect("text"))];
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    for entry in std::fs::read_dir(examples).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            let text = std::fs::read_to_string(&path).expect("text");
            files.push((path.display().to_string(), text));
        }
    }
    assert!(files.len() >= 3);
    files.extend(broken::GOOD.iter().map(|fields| ((*fields).to_owned(), whole(fields))));
    let values: Vec<Value> = files.iter().map(|(_, text)| yaml(text)).collect();
    let cases: Vec<_> = values.iter().map(|value| (&schema, Some(value))).collect();
    for ((name, _), said) in files.iter().zip(judge(&cases)) {
        assert_eq!(said, "ok", "{name}");
    }
    for fields in broken::GOOD {
        assert_eq!(check(&whole(fields)), Some(0), "{fields}");
    }
}

#[test]
fn broken_configurations_are_refused_by_the_agent_and_by_the_schema_where_it_can_know() {
    let test = "broken_configurations_are_refused_by_the_agent_and_by_the_schema_where_it_can_know";
    if !is_there(test) {
        return;
    }
    let schema = answers(winddown().args(["config", "schema"])).remove(0);
    let values: Vec<Value> = broken::BROKEN.iter().map(|(f, _)| yaml(&whole(f))).collect();
    let cases: Vec<_> = values.iter().map(|value| (&schema, Some(value))).collect();
    for ((fields, known), said) in broken::BROKEN.iter().zip(judge(&cases)) {
        assert_eq!(check(&whole(fields)), Some(3), "the agent accepts {fields}");
        assert_eq!(said != "ok", *known, "{fields}: {said}");
    }
    for head in ["", "kind: Configuration\n", "apiVersion: winddown.dev/v2\nkind: Configuration\n"]
    {
        let value = if head.is_empty() { json!({}) } else { yaml(head) };
        assert_eq!(check(head), Some(3), "{head}");
        assert_ne!(judge(&[(&schema, Some(&value))]), ["ok"], "{head}");
    }
}

fn whole(fields: &str) -> String {
    format!("apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n{fields}\n")
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The exit code of `config check`.
fn check(text: &str) -> Option<i32> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    let command = &mut winddown();
    command.args(["config", "check"]).arg(file.path()).output().expect("it runs").status.code()
}

/// Returns the schema without support for additional fields.
fn closed(schema: &Value) -> Value {
    let mut closed = schema.clone();
    close(&mut closed);
    closed
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let is_one_of = object.contains_key("oneOf");
            for (key, below) in object.iter_mut() {
                match (key.as_str(), below) {
                    // The fields of a variant are checked together with the fields next to it.
                    ("oneOf", Value::Array(variants)) => {
                        for variant in variants {
                            if let Some(properties) = variant.get_mut("properties") {
                                close(properties);
                            }
                        }
                    }
                    (_, below) => close(below),
                }
            }
            if object.get("properties").is_some_and(Value::is_object) {
                let open = if is_one_of { "unevaluatedProperties" } else { "additionalProperties" };
                object.entry(open).or_insert(json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Returns the answer with one additional field, once for each kind of object in it.
fn grown(answer: &Value) -> Vec<(String, Value)> {
    let mut places = std::collections::BTreeMap::new();
    objects(answer, "", "", &mut places);
    let grow = |(kind, place): (String, String)| {
        let mut answer = answer.clone();
        if let Some(Value::Object(object)) = answer.pointer_mut(&place) {
            object.insert("nobodyKnowsThis".to_owned(), json!(1));
        }
        (kind, answer)
    };
    places.into_iter().map(grow).collect()
}

fn objects(
    value: &Value,
    kind: &str,
    place: &str,
    places: &mut std::collections::BTreeMap<String, String>,
) {
    match value {
        Value::Object(object) => {
            places.entry(kind.to_owned()).or_insert_with(|| place.to_owned());
            for (key, value) in object {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                objects(value, &format!("{kind}/{key}"), &format!("{place}/{escaped}"), places);
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                objects(item, &format!("{kind}/*"), &format!("{place}/{n}"), places);
            }
        }
        _ => {}
    }
}

/// A critical pod that does not fit on this machine.
const LARGE: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: large, namespace: kube-system}
spec:
  priority: 2000000000
  hostNetwork: true
  containers:
  - name: main
    image: host
    command: [sleep, '1']
    resources: {requests: {cpu: '9000', memory: 900Ti}}
";

/// Schema, command and case.
const CASES: &[(&str, &str, &str)] = &[
    (
        "plan-shutdown-line",
        "shutdown",
        r#"{"id":1,"config":{"shutdownGracePeriod":"30s","shutdownOrder":"role"},"pods":[{"metadata":{"name":"a","uid":"a","namespace":"x"},"spec":{"priority":1,"containers":[]}}]}"#,
    ),
    (
        "plan-preemption-line",
        "preemption",
        r#"{"id":"a","preemptor":{"metadata":{"name":"p","uid":"p"},"spec":{"priority":2000000000,"containers":[]}},"pods":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}},{"metadata":{"name":"b"},"spec":{"priority":7,"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}],"requirements":[{"resource":"cpu","quantity":500}]}"#,
    ),
    (
        "plan-eviction-line",
        "eviction",
        r#"{"id":"a","signal":"memory.available","pods":[{"metadata":{"name":"a","namespace":"x"},"spec":{"containers":[]}}],"stats":[{"name":"a","namespace":"x","memoryWorkingSetBytes":5}]}"#,
    ),
];
