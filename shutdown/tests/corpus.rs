//! Every row of the reference's shutdown corpus: the same groups, grace periods and requested period.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use winddown_shutdown::{PlanLineError, plan_case};

const ROWS: usize = 400;

fn plan_json_line(case: &str) -> Result<String, PlanLineError> {
    plan_case(case).map(|answer| serde_json::to_string(&answer).unwrap())
}

fn corpus() -> io::Result<impl Iterator<Item = io::Result<String>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/corpus/shutdown-kubelet-1.36.jsonl.gz");
    Ok(BufReader::new(GzDecoder::new(File::open(path)?)).lines())
}

#[test]
fn every_row_of_the_shutdown_corpus_is_planned_as_the_kubelet_does() {
    let mut rows = 0;
    for line in corpus().unwrap() {
        let line = line.unwrap();
        let expected: Value = serde_json::from_str(&line).unwrap();
        let planned: Value = serde_json::from_str(&plan_json_line(&line).unwrap()).unwrap();
        let expected = json!({
            "id": expected["id"],
            "groups": expected["groups"],
            "periodRequested": expected["periodRequested"],
        });
        assert_eq!(planned, expected);
        rows += 1;
    }
    assert_eq!(rows, ROWS);
}

#[test]
fn the_answer_has_the_corpus_shape_byte_for_byte() {
    let line = r#"{"id":"a","config":{"shutdownGracePeriodByPodPriority":[{"priority":5,
        "shutdownGracePeriodSeconds":7},{"priority":0,"shutdownGracePeriodSeconds":90}]},
        "pods":[{"metadata":{"name":"p"},"spec":{"containers":[],"priority":9}}]}"#;
    assert_eq!(
        plan_json_line(line).unwrap(),
        r#"{"id":"a","groups":[{"priority":0,"shutdownGracePeriodSeconds":90,"pods":[]},{"priority":5,"shutdownGracePeriodSeconds":7,"pods":[{"name":"p","graceSeconds":7}]}],"periodRequested":"1m37s"}"#
    );
}

#[test]
fn the_order_of_roles_has_to_be_asked_for_and_names_its_groups() {
    let line = r#"{"config":{"shutdownGracePeriod":"30s","shutdownGracePeriodCriticalPods":"10s",
        "shutdownOrder":"role"},"pods":[{"metadata":{"name":"p","annotations":{
        "kubernetes.io/config.source":"file"}},"spec":{"containers":[]}}]}"#;
    let answer: Value = serde_json::from_str(&plan_json_line(line).unwrap()).unwrap();
    let groups = answer["groups"].as_array().unwrap();
    let names: Vec<&str> = groups.iter().filter_map(|group| group["name"].as_str()).collect();
    assert_eq!(
        names,
        ["ordinary pods", "system pods", "pods of the node itself", "control plane", "etcd"]
    );
    assert_eq!(groups[2]["pods"], json!([{"name": "p", "graceSeconds": 10}]));
    let by_priority = line.replace(r#""shutdownOrder":"role""#, r#""shutdownOrder":"priority""#);
    let answer: Value = serde_json::from_str(&plan_json_line(&by_priority).unwrap()).unwrap();
    assert_eq!(answer["groups"][0]["pods"], json!([{"name": "p", "graceSeconds": 20}]));
}

#[test]
fn a_disabled_config_has_no_groups() {
    let line = r#"{"id":1,"config":{},"pods":[{"metadata":{"name":"p"}}]}"#;
    let wanted = r#"{"id":1,"groups":[],"notProtected":[{"name":"p","graceSeconds":0}],"periodRequested":"0s"}"#;
    assert_eq!(plan_json_line(line).unwrap(), wanted);
}

#[test]
fn a_bad_line_is_an_error_that_names_the_field() {
    let chain = |line: &str| {
        let error = plan_json_line(line).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    };
    let config = |config: &str| chain(&format!(r#"{{"config":{config},"pods":[]}}"#));
    assert_eq!(
        config(r#"{"shutdownGracePeriod":"-1s"}"#),
        "config.shutdownGracePeriod: \"-1s\" is not a duration of zero or more; write it like \
         \"1m30s\": "
    );
    assert_eq!(
        config(
            r#"{"shutdownGracePeriod":"1s","shutdownGracePeriodByPodPriority":[{"priority":0,"shutdownGracePeriodSeconds":1}]}"#
        ),
        "config: invalid configuration: Cannot specify both shutdownGracePeriodByPodPriority and \
         shutdownGracePeriod at the same time"
    );
    assert_eq!(
        chain(r#"{"config":{},"pods":[{"metadata":{"name":"a"}},{"metadata":{}}]}"#),
        "pods[1]: metadata.name: a pod needs one"
    );
    assert!(chain("{").starts_with("not a plan request; expected an object"));
    assert!(chain("").starts_with("not a plan request"));
}
