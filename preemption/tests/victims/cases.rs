//! The recorded cases, and builders of pods for other cases.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1 as api;
use serde::Deserialize;
use serde_json::{Value, json};
use winddown_preemption::{NoVictims, Requirement, Selection, Strategy, select};
use winddown_shared::{Pod, ResourceName};

const ROWS: usize = 1500;

/// A recorded case.
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) preemptor: Pod,
    pub(crate) pods: Vec<Pod>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) victims: Vec<String>,
    pub(crate) error: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    preemptor: api::Pod,
    pods: Vec<api::Pod>,
    requirements: Vec<Asked>,
    victims: Vec<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Asked {
    resource: String,
    quantity: i64,
}

impl Case {
    fn new(text: &str) -> Self {
        let row: Row = serde_json::from_str(text).unwrap();
        let name = |asked: &Asked| (ResourceName::from(asked.resource.as_str()), asked.quantity);
        Self {
            id: row.id,
            preemptor: Pod::new(row.preemptor).unwrap(),
            pods: row.pods.into_iter().map(|pod| Pod::new(pod).unwrap()).collect(),
            requirements: row.requirements.iter().map(name).collect(),
            victims: row.victims,
            error: row.error,
        }
    }

    pub(crate) fn select(&self, strategy: Strategy) -> Result<Selection, NoVictims> {
        select(&self.preemptor, &self.pods, &self.requirements, strategy)
    }
}

fn corpus(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus").join(file)
}

/// All rows of the corpus. They are read only once, because that takes longer than any test of them.
pub(crate) fn rows() -> &'static [Case] {
    static ALL: LazyLock<Vec<Case>> = LazyLock::new(|| {
        let file = File::open(corpus("preemption-kubelet-1.36.jsonl.gz")).unwrap();
        let lines = BufReader::new(GzDecoder::new(file)).lines();
        lines.map(|line| Case::new(&line.unwrap())).collect()
    });
    assert_eq!(ALL.len(), ROWS);
    &ALL
}

/// The full nodes.
pub(crate) fn nodes() -> &'static [Case; 3] {
    static ALL: LazyLock<[Case; 3]> = LazyLock::new(|| {
        [110, 500, 2000].map(|pods| {
            let text = std::fs::read_to_string(corpus(&format!("bench-{pods}.json"))).unwrap();
            Case::new(&text)
        })
    });
    &ALL
}

/// A builder of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodSpec {
    /// Millicores.
    pub(crate) cpu: i64,
    /// Bytes.
    pub(crate) memory: i64,
    pub(crate) gpus: i64,
    pub(crate) priority: Option<i32>,
    pub(crate) is_static: bool,
    pub(crate) is_daemon: bool,
    pub(crate) is_ending: bool,
    /// The hour in which it was created.
    pub(crate) born: Option<i64>,
    /// Whether the limits equal the requests.
    pub(crate) is_limited: bool,
}

impl PodSpec {
    pub(crate) fn pod(&self, name: &str) -> Pod {
        let time = |hour: i64| format!("2026-11-20T{hour:02}:00:00Z");
        let source = if self.is_static { "file" } else { "api" };
        let owners =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]);
        let mut requests = json!({});
        for (name, amount, unit) in [
            ("cpu", self.cpu, "m"),
            ("memory", self.memory, ""),
            ("example.com/gpu", self.gpus, ""),
        ] {
            if amount > 0 {
                requests[name] = json!(format!("{amount}{unit}"));
            }
        }
        let limits = if self.is_limited { requests.clone() } else { json!({}) };
        made(json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("uid-{name}"),
                "annotations": {"kubernetes.io/config.source": source},
                "ownerReferences": if self.is_daemon { owners } else { json!([]) },
                "deletionTimestamp": self.is_ending.then(|| time(23)),
                "creationTimestamp": self.born.map(time),
            },
            "spec": {
                "priority": self.priority,
                "containers": [{
                    "name": "main",
                    "resources": {"requests": requests, "limits": limits},
                }],
            },
        }))
    }
}

/// An API pod without resource requests.
pub(crate) fn api_pod(name: &str, priority: Option<i32>) -> Pod {
    PodSpec { priority, ..PodSpec::default() }.pod(name)
}

fn made(object: Value) -> Pod {
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

/// A hash of the name.
pub(crate) fn mixed(seed: u64, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, name).hash(&mut hasher);
    hasher.finish()
}
