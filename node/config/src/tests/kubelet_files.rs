//! What the kubelet takes its configuration files for, and what we do.

#![allow(clippy::disallowed_methods, reason = "tests read what was recorded for them")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value as Json;
use winddown_shared::{GoDuration, Quantity};

use super::*;

/// The fields in which something is refused here that a kubelet starts with; docs/differences.md names each.
const REFUSED_HERE: [&str; 16] = [
    "shutdownGracePeriod",
    "shutdownGracePeriodByPodPriority",
    "evictionHard",
    "evictionSoft",
    "evictionMinimumReclaim",
    "evictionSoftGracePeriod",
    "evictionPressureTransitionPeriod",
    "staticPodPath",
    "fileCheckFrequency",
    "containerRuntimeEndpoint",
    "clusterDomain",
    "containerLogMaxSize",
    "nodeStatusUpdateFrequency",
    "nodeStatusReportFrequency",
    "nodeLeaseDurationSeconds",
    "registerWithTaints",
];
/// Files that a kubelet does not start with, for a reason that is none here.
const ACCEPTED_HERE: [&str; 28] = [
    // Nothing is no duration for it.
    "shutdownGracePeriod: null",
    "nodeStatusUpdateFrequency: ~",
    "imageMinimumGCAge: ~",
    // These fields are not used.
    "groups: gate off",
    "gates: text as a gate",
    "text as a bool",
    "enforceNodeAllocatable: [system-reserved]",
    "imageGCHighThresholdPercent: 101",
    "imageGCHighThresholdPercent: 0",
    "maxParallelImagePulls: 0",
    "oomScoreAdj: -1001",
    "hairpinMode: x",
    "logging: {format: x}",
    "memorySwap: {swapBehavior: X}",
    "topologyManagerPolicy: x",
    "readOnlyPort: 70000",
    "kubeAPIQPS: -1",
    "crashLoopBackOff: {maxContainerRestartPeriod: 0s}",
    // Huge pages can be reserved here.
    "systemReserved: {hugepages-2Mi: 2Mi}",
    "kubeReserved: {hugepages-2Mi: 2Mi}",
    // Left out with a warning.
    "clusterDNS: [1]",
    // It rounds badly, or cleans no path.
    "containerLogMaxSize: 1.5Mi",
    "podLogsDir: /var/log/",
    "podLogsDir: /var//log",
    "podLogsDir: /var/log/é",
    // A zero is no size, whether written as a number or a text.
    "containerLogMaxSize: 0",
    // It takes the first document, of YAML 1.1.
    "a directive of 1.2",
    "empty document first",
];
/// The fields whose value is another, as the page says.
const OTHER_VALUES: [&str; 9] = [
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "shutdownGracePeriodByPodPriority",
    "evictionHard",
    "enforceNodeAllocatable",
    "containerRuntimeEndpoint",
    "clusterDomain",
    "resolvConf",
    "podLogsDir",
];

#[derive(Deserialize)]
struct Row {
    name: String,
    files: BTreeMap<String, String>,
    accepted: bool,
    #[serde(default)]
    values: BTreeMap<String, Json>,
}

/// The files without drop-ins: those are for a kubelet alone.
fn rows() -> impl Iterator<Item = Row> {
    let path = "/../../tests/corpus/kubelet-configuration-1.36.jsonl.gz";
    let file = File::open(format!("{}{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    let rows = lines.map(|line| serde_json::from_str::<Row>(&line.unwrap()).unwrap());
    rows.filter(|row| row.files.keys().eq(["config.yaml"]))
}

/// Whether two values are the same; durations, sizes and paths may be spelt differently.
fn is_same(one: &Json, other: &Json) -> bool {
    fn spelt<T: std::str::FromStr + PartialEq>(one: &str, other: &str) -> bool {
        one.parse::<T>().is_ok_and(|one| other.parse::<T>().is_ok_and(|other| one == other))
    }
    match (one, other) {
        (Json::String(one), Json::String(other)) => {
            spelt::<GoDuration>(one, other)
                || spelt::<Quantity>(one, other)
                || Path::new(one) == Path::new(other)
        }
        (Json::Object(one), Json::Object(other)) => {
            let same = |(key, one)| other.get(key).is_some_and(|other| is_same(one, other));
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}

#[test]
fn each_file_of_a_kubelet_is_accepted_or_refused_as_by_it_or_differs_as_the_page_says() {
    let (mut refused, mut accepted, mut others) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for row in rows() {
        let text = row.files["config.yaml"].as_bytes();
        let name = &row.name;
        match (Config::parse(Path::new("/etc/kubernetes/config.yaml"), text), row.accepted) {
            (Err(_), false) => {}
            (Err(ConfigError::Invalid(problems)), true) => {
                for problem in problems.list() {
                    let field = problem.field.split(['[', '.']).next().unwrap().to_owned();
                    let tag = field.is_empty() && problem.message.contains("tag");
                    let known = REFUSED_HERE.contains(&&*field);
                    assert!(known || tag, "{name}: {problem}");
                    refused.extend(known.then_some(field));
                }
            }
            (Err(error), true) => panic!("{name}: {error}"),
            (Ok(_), false) => {
                assert!(ACCEPTED_HERE.contains(&name.as_str()), "{name} is accepted");
                accepted.insert(name.clone());
            }
            (Ok((config, _)), true) => {
                for (field, ours) in reference::entries(&config) {
                    let same = row.values.get(field).is_none_or(|theirs| is_same(theirs, &ours));
                    assert!(same || OTHER_VALUES.contains(&field), "{name}: {field} is {ours}");
                    others.extend((!same).then_some(field));
                }
            }
        }
    }
    let page = include_str!("../../../../docs/differences.md");
    for field in REFUSED_HERE {
        assert!(refused.contains(field), "{field} is refused by both");
        assert!(page.contains(&format!("`{field}`")), "{field} is not on the page");
    }
    assert_eq!(accepted.len(), ACCEPTED_HERE.len(), "{accepted:?}");
    assert_eq!(others, OTHER_VALUES.into(), "these differ");
}

#[test]
fn what_stands_behind_the_object_of_a_kubelets_json_is_refused_at_its_line() {
    let object =
        r#"{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}"#;
    let parsed = |text: &str| Config::parse(Path::new("config.json"), text.as_bytes());
    for text in [object, &format!("\n{object}\n\n")] {
        parsed(text).unwrap();
    }
    // What a tool that edits YAML by lines makes of it.
    for text in [format!("{object}\nshutdownGracePeriod: 0s\n"), format!("{object}\nxx")] {
        let error = parsed(&text).unwrap_err().to_string();
        assert!(error.contains("config.json:2") && error.contains("JSON"), "{error}");
    }
}
