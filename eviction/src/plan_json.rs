//! Rankings from JSON lines: a signal, pods and what they use in, the order in which they would be
//! ended out. For checking without a node, and for comparing with other implementations.

use std::collections::HashMap;

use k8s_openapi::api::core::v1 as api;
use serde::{Deserialize, Serialize};
use winddown_shared::{IdentityError, Pod};

use crate::observation::signed;
use crate::policy::Policy;
use crate::rank::{Ranked, rank};
use crate::signal::{Resource, Signal, UnknownSignal};

/// Why a line could not be ranked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanLineError {
    /// Not JSON, or not of the expected shape.
    #[error(
        "not a ranking request; expected an object with \"signal\", \"pods\" and \"stats\" as in \
         {{\"id\":\"a\",\"signal\":\"memory.available\",\"pods\":[],\"stats\":[]}}"
    )]
    Syntax(#[source] serde_json::Error),
    /// A name that is no signal.
    #[error("signal")]
    Signal(#[source] UnknownSignal),
    /// A pod without an identity.
    #[error("pods[{index}]")]
    Pod {
        /// Its place in the list, from 0.
        index: usize,
        /// What it lacks.
        #[source]
        source: IdentityError,
    },
    /// The answer could not be written; not expected to happen.
    #[error("the ranking could not be written as JSON")]
    Output(#[source] serde_json::Error),
}

/// Ranks one line: `{"id", "signal", "pods", "stats"}` in, `{"id", "order"}` out, and `"pods"` with
/// the figures if `explain`.
///
/// `pods` holds full pod objects, `stats` what they use: `name`, and `namespace` where two pods have
/// one name, `memoryWorkingSetBytes`, `processCount`, `diskUsedBytes`, `inodesUsed`. Other fields are
/// ignored. The order is the kubelet's, in which pods without figures come first; `explain` says who
/// would be passed over. A pod without a namespace is in `default`, one without a UID is named by its
/// place.
///
/// # Errors
/// The line is not such a request.
pub fn plan_json_line(line: &str, explain: bool) -> Result<String, PlanLineError> {
    let request: Request = serde_json::from_str(line).map_err(PlanLineError::Syntax)?;
    let signal: Signal = request.signal.parse().map_err(PlanLineError::Signal)?;
    let pods = Pod::of_cases(request.pods)
        .map_err(|(index, source)| PlanLineError::Pod { index, source })?;
    let used = usages(signal, request.stats);
    let mut ranked: Vec<Ranked<'_>> = pods
        .iter()
        .map(|pod| {
            let exact = used.get(&(Some(pod.namespace().to_string()), pod.name().to_string()));
            let usage = exact.or_else(|| used.get(&(None, pod.name().to_string())));
            Ranked { pod, usage: usage.copied().flatten(), growth: None }
        })
        .collect();
    rank(signal, &mut ranked);
    let answer = Answer {
        id: request.id,
        order: ranked.iter().map(|ranked| &**ranked.pod.name()).collect(),
        pods: explain.then(|| explained(signal, &ranked)),
    };
    serde_json::to_string(&answer).map_err(PlanLineError::Output)
}

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    id: Option<serde_json::Value>,
    signal: String,
    pods: Vec<api::Pod>,
    #[serde(default)]
    stats: Vec<Stats>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    name: String,
    namespace: Option<String>,
    memory_working_set_bytes: Option<u64>,
    process_count: Option<u64>,
    disk_used_bytes: Option<u64>,
    inodes_used: Option<u64>,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<serde_json::Value>,
    order: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<Vec<Explained<'a>>>,
}

/// One pod of an explained ranking.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained<'a> {
    namespace: &'a str,
    name: &'a str,
    priority: i32,
    usage: Option<i64>,
    request: i64,
    exceeds_request: Option<bool>,
    verdict: &'static str,
}

type Usages = HashMap<(Option<String>, String), Option<i64>>;

/// By namespace and name. What is measured but lacks this figure uses nothing, as for the kubelet.
fn usages(signal: Signal, stats: Vec<Stats>) -> Usages {
    let figure = |stats: &Stats| match signal.resource() {
        Resource::Memory => stats.memory_working_set_bytes,
        Resource::EphemeralStorage => stats.disk_used_bytes,
        Resource::Inodes => stats.inodes_used,
        Resource::Pids => stats.process_count,
    };
    stats
        .into_iter()
        .map(|stats| {
            let usage = signed(figure(&stats).unwrap_or(0));
            ((stats.namespace, stats.name), Some(usage))
        })
        .collect()
}

fn explained<'a>(signal: Signal, ranked: &[Ranked<'a>]) -> Vec<Explained<'a>> {
    let policy = Policy::new(Vec::new(), false);
    let mut chosen = false;
    let explain = |ranked: &Ranked<'a>| Explained {
        namespace: ranked.pod.namespace(),
        name: ranked.pod.name(),
        priority: ranked.pod.priority_or_zero(),
        usage: ranked.usage,
        request: ranked.request(signal),
        exceeds_request: ranked.exceeds(signal),
        verdict: match ranked.usage {
            _ if policy.spares(ranked.pod) => "critical",
            None => "notMeasured",
            Some(_) if std::mem::replace(&mut chosen, true) => "notNeeded",
            Some(_) => "chosen",
        },
    };
    ranked.iter().map(explain).collect()
}
