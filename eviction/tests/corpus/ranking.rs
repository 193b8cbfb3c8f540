//! The eviction order.

use serde_json::Value;
use winddown_eviction::{RankLineError, plan_case};

const FILE: &str = "eviction-ranking-kubelet-1.36.jsonl.gz";

fn plan_json_line(case: &str, explain: bool) -> Result<String, RankLineError> {
    plan_case(case, explain).map(|answer| serde_json::to_string(&answer).unwrap())
}

#[test]
fn every_recorded_ranking_is_the_same() {
    let rows = crate::rows::rows(FILE);
    assert_eq!(rows.len(), 400);
    for row in &rows {
        let recorded: Value = serde_json::from_str(row).unwrap();
        let answer: Value = serde_json::from_str(&plan_json_line(row, false).unwrap()).unwrap();
        assert_eq!(answer["id"], recorded["id"]);
        assert_eq!(answer["order"], recorded["order"], "{}", recorded["id"]);
    }
}

#[test]
fn a_ranking_does_not_depend_on_the_order_in_which_pods_are_listed() {
    for row in crate::rows::rows(FILE).iter().take(100) {
        let mut turned: Value = serde_json::from_str(row).unwrap();
        turned["pods"].as_array_mut().unwrap().reverse();
        turned["stats"].as_array_mut().unwrap().reverse();
        let answer = plan_json_line(&turned.to_string(), false).unwrap();
        assert_eq!(answer, plan_json_line(row, false).unwrap());
    }
}

#[test]
fn an_explanation_says_the_order_and_the_figures_and_who_would_be_ended() {
    let line = r#"{"id":1,"signal":"memory.available","pods":[
        {"metadata":{"name":"new"},"spec":{"containers":[{"name":"c"}]}},
        {"metadata":{"name":"hog"},"spec":{"containers":[{"name":"c","resources":
            {"requests":{"memory":"1Mi"}}}]}},
        {"metadata":{"name":"etcd","annotations":{"kubernetes.io/config.source":"file"}},
            "spec":{"containers":[{"name":"c"}]}}],
        "stats":[{"name":"hog","memoryWorkingSetBytes":2097152},
                 {"name":"etcd","memoryWorkingSetBytes":9}]}"#;
    let answer: Value = serde_json::from_str(&plan_json_line(line, true).unwrap()).unwrap();
    let told: Vec<(&str, &str)> = answer["pods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| (pod["name"].as_str().unwrap(), pod["verdict"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("new", "notMeasured"), ("hog", "chosen"), ("etcd", "critical")]);
    assert_eq!(answer["pods"][1]["request"], 1_048_576);
    assert_eq!(answer["pods"][1]["exceedsRequest"], true);
}

#[test]
fn a_line_that_is_no_request_is_an_error_that_says_what_is_expected() {
    let error = |line: &str| plan_json_line(line, false).unwrap_err().to_string();
    assert!(error("{").starts_with("not a ranking request; expected an object"));
    assert_eq!(error(r#"{"signal":"cpu","pods":[]}"#), "signal");
    assert_eq!(error(r#"{"signal":"pid.available","pods":[{}]}"#), "pods[0]");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}", cut in 0..2000_usize, row in 0..400_usize) {
        let _ = plan_json_line(&text, true);
        let rows = crate::rows::rows(FILE);
        let beginning = winddown_shared::display::truncated(&rows[row], cut);
        proptest::prop_assert!(plan_json_line(beginning, true).is_err() || beginning == rows[row]);
    }
}
