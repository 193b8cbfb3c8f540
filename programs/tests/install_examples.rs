//! The example pods: they are valid and supported, and can be rehearsed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use winddown_config::Config;
use winddown_node::policy_of;
use winddown_runtimes::process::check_supported;
use winddown_shared::Pod;
use winddown_static_pods::read_manifest;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples")
}

fn pods() -> BTreeMap<String, Pod> {
    let mut pods = BTreeMap::new();
    for entry in fs::read_dir(examples().join("node")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let bytes = fs::read(&path).unwrap();
        let pod = read_manifest(&path, &bytes, "node").unwrap_or_else(|e| panic!("{name}: {e}"));
        pods.insert(name, pod);
    }
    pods
}

#[test]
fn a_dozen_pods_that_the_process_runtime_can_run() {
    let pods = pods();
    assert_eq!(pods.len(), 12);
    let names: BTreeSet<String> = pods.values().map(|pod| pod.full_name().to_string()).collect();
    assert_eq!(names.len(), 12, "a name is there twice: {names:?}");
    for (name, pod) in &pods {
        let refused = check_supported(pod);
        assert!(refused.is_empty(), "{name}: {refused:?}");
    }
}

#[test]
fn the_pods_fill_each_of_the_configurations_three_groups() {
    let path = examples().join("node-config.yaml");
    let (config, warnings) = Config::load(&path).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(config.shutdown.total().as_secs(), 15);
    let mut groups = BTreeMap::new();
    for pod in pods().values() {
        let group = match pod.priority().unwrap() {
            ..100_000 => "applications",
            100_000..2_000_000_000 => "stores",
            _ => "node",
        };
        *groups.entry(group).or_insert(0) += 1;
    }
    assert_eq!(groups, BTreeMap::from([("applications", 8), ("stores", 2), ("node", 2)]));
}

#[test]
fn every_example_says_what_it_shows() {
    for name in pods().keys() {
        let text = fs::read_to_string(examples().join("node").join(name)).unwrap();
        assert!(text.starts_with("# "), "{name}");
    }
}

#[test]
fn the_pods_end_in_the_order_of_what_they_are_for_where_roles_are_configured() {
    let (config, _) = Config::load(&examples().join("spot-config.yaml")).unwrap();
    let pods: Vec<Pod> = pods().into_values().collect();
    let plan = winddown_shutdown::plan(&pods, &policy_of(&config.shutdown), None);
    let groups: Vec<_> = plan
        .groups
        .iter()
        .filter(|group| !group.pods.is_empty())
        .map(|group| {
            let name = group.name().unwrap().into_owned();
            format!("{name}: {}, {}", group.pods.len(), group.latest_end.as_secs())
        })
        .collect();
    assert_eq!(
        groups,
        [
            "ordinary pods: 8, 40",
            "ordinary pods, priority 100000: 2, 60",
            "pods of the node itself: 2, 90"
        ]
    );
    assert_eq!(plan.endpoint_drain.as_secs(), 10);
    assert_eq!(plan.warnings(), []);
}
