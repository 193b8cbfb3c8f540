//! What the kubelet took from its files, and what we do.

#![allow(clippy::disallowed_methods, reason = "tests read what was recorded for them")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use winddown_shared::GoDuration;

use super::super::MergedConfiguration;
use super::Root;

#[derive(Deserialize)]
struct Row {
    name: String,
    files: BTreeMap<String, String>,
    accepted: bool,
    #[serde(default)]
    values: BTreeMap<String, Json>,
}

/// The file and its drop-ins as doctor and `install` read them.
fn read(row: &Row) -> MergedConfiguration {
    let root = Root::with(&[]);
    row.files.iter().for_each(|(file, text)| root.put(&format!("etc/kubernetes/{file}"), text));
    let there = |path: &'static str| {
        let path = Path::new(path);
        let name = path.file_name().unwrap().to_str().unwrap();
        row.files.keys().any(|file| file.starts_with(name)).then_some(path)
    };
    let (file, drop_ins) = (there("/etc/kubernetes/config.yaml"), there("/etc/kubernetes/conf.d"));
    MergedConfiguration::read(root.0.path(), file, drop_ins, None).unwrap()
}

/// A kubelet that does not start says nothing of what its files mean: only those that it starts with are compared.
#[test]
fn each_configuration_that_a_kubelet_starts_with_means_the_same() {
    let path = "/../../tests/corpus/kubelet-configuration-1.36.jsonl.gz";
    let file = File::open(format!("{}{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut compared = 0;
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let row: Row = serde_json::from_str(&line.unwrap()).unwrap();
        let (ours, name) = (read(&row), &row.name);
        // Its tag is not understood, and that is said.
        if !row.accepted || name == "tag" {
            continue;
        }
        assert_eq!(ours.problem, None, "{name}");
        let periods = ours.periods();
        let theirs = |field: &str| row.values.get(field).cloned().unwrap_or_default();
        let groups = periods.groups.iter().map(|group| {
            let seconds = group.shutdown_grace_period_seconds;
            json!({"priority": group.priority, "shutdownGracePeriodSeconds": seconds})
        });
        let groups: Vec<Json> = groups.collect();
        let of_kubelet = theirs("shutdownGracePeriodByPodPriority");
        let of_kubelet = of_kubelet.as_array().cloned().unwrap_or_default();
        assert_eq!(groups, of_kubelet, "{name}");
        for (field, value) in [
            ("shutdownGracePeriod", &periods.total),
            ("shutdownGracePeriodCriticalPods", &periods.critical),
        ] {
            let theirs = theirs(field);
            let theirs = theirs.as_str().unwrap_or("0s").parse::<GoDuration>();
            assert_eq!(value.parse::<GoDuration>(), theirs, "{name}: {field}");
        }
        let endpoint = ours.endpoint.map(|endpoint| endpoint.value);
        let default = "unix:///run/containerd/containerd.sock".to_owned();
        let endpoint = Json::String(endpoint.unwrap_or(default));
        assert_eq!(endpoint, theirs("containerRuntimeEndpoint"), "{name}");
        compared += 1;
    }
    assert!(compared > 150, "{compared}");
}
