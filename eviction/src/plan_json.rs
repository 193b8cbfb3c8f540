//! Rankings of cases in JSON: reads a signal, pods and their usage, and writes the order in which the pods would be
//! evicted. For checks without a node, and for comparison with other implementations.

use std::collections::HashMap;

use k8s_openapi::api::core::v1 as api;
use serde::{Deserialize, Serialize};
use winddown_shared::{IdentityError, Pod};

use crate::choose::CandidateVerdict;
use crate::observation::signed;
use crate::policy::{Policy, StaticPods};
use crate::rank::{Ranked, rank};
use crate::signal::{CaseStats, Signal, UnknownSignal};

/// Why a line could not be ranked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankLineError {
    /// Not JSON, or not of the expected shape.
    #[error(
        "not a ranking request; expected an object with \"signal\", \"pods\" and \"stats\" as in \
         {{\"id\":\"a\",\"signal\":\"memory.available\",\"pods\":[],\"stats\":[]}}"
    )]
    Syntax(#[source] serde_json::Error),
    /// The signal's name is unknown.
    #[error("signal")]
    Signal(#[source] UnknownSignal),
    /// A pod has no valid identity.
    #[error("pods[{index}]")]
    Pod {
        /// The index of the pod in the list.
        index: usize,
        /// The reason.
        source: IdentityError,
    },
}

/// Ranks the pods of one case, `{"id", "signal", "pods", "stats"}`; with `explain`, the answer has their figures.
///
/// `pods` holds full pod objects, and `stats` their usage: `name`, `namespace` where two pods share a name,
/// `memoryWorkingSetBytes`, `processCount`, `diskUsedBytes`, `inodesUsed`. Other fields are ignored. The order is the
/// kubelet's, in which pods without figures come first; `explain` says which pods would be passed over. A pod without a
/// namespace is in `default`; a pod without a UID gets one from its index.
///
/// # Errors
/// The text is not a valid request.
pub fn plan_case(case: &str, explain: bool) -> Result<EvictionAnswer, RankLineError> {
    let request: Request = serde_json::from_str(case).map_err(RankLineError::Syntax)?;
    let signal: Signal = request.signal.parse().map_err(RankLineError::Signal)?;
    let pods = Pod::of_cases(request.pods)
        .map_err(|(index, source)| RankLineError::Pod { index, source })?;
    let used = usages(signal, request.stats);
    let mut ranked: Vec<Ranked<'_>> = pods
        .iter()
        .map(|pod| {
            let exact = used.get(&(Some(pod.namespace().to_string()), pod.name().to_string()));
            let usage = exact.or_else(|| used.get(&(None, pod.name().to_string())));
            Ranked::new(pod, usage.copied())
        })
        .collect();
    rank(signal, &mut ranked);
    Ok(EvictionAnswer {
        id: request.id,
        order: ranked.iter().map(|ranked| ranked.pod.name().to_string()).collect(),
        pods: explain.then(|| explained(signal, &ranked)),
    })
}

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    id: Option<serde_json::Value>,
    signal: String,
    pods: Vec<api::Pod>,
    #[serde(default)]
    stats: Vec<CaseStats>,
}

/// The answer to a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct EvictionAnswer {
    /// The case's own `id`, whatever it is; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<serde_json::Value>,
    /// The pods as the kubelet would evict them.
    pub order: Vec<String>,
    /// With `--explain`: their figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Vec<AnswerRank>>,
}

/// A pod of an explained ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AnswerRank {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.priority`, 0 when unset.
    pub priority: i32,
    /// Whether `spec.priority` is unset.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_no_priority: bool,
    /// What it uses; null when it was not measured.
    pub usage: Option<i64>,
    /// What it requests.
    pub request: i64,
    /// Whether it uses more than it requests; null when it was not measured.
    pub exceeds_request: Option<bool>,
    /// What would be done with it: `chosen`, `notNeeded`, `critical`, `notMeasured`.
    pub verdict: &'static str,
}

type Usages = HashMap<(Option<String>, String), i64>;

/// Indexes usage by namespace and name. As with the kubelet, a pod with stats that lack this figure uses nothing.
fn usages(signal: Signal, stats: Vec<CaseStats>) -> Usages {
    let one = |stats: CaseStats| {
        let usage = signed(stats.usage(signal.resource()).unwrap_or(0));
        ((stats.namespace, stats.name), usage)
    };
    stats.into_iter().map(one).collect()
}

fn explained(signal: Signal, ranked: &[Ranked<'_>]) -> Vec<AnswerRank> {
    // As the kubelet does.
    let mut policy = Policy::new(Vec::new(), false);
    policy.static_pods = StaticPods::Spared;
    let mut chosen = false;
    let explain = |ranked: &Ranked<'_>| AnswerRank {
        namespace: ranked.pod.namespace().to_string(),
        name: ranked.pod.name().to_string(),
        priority: ranked.pod.priority_or_zero(),
        has_no_priority: ranked.pod.priority().is_none(),
        usage: ranked.usage,
        request: ranked.request(signal),
        exceeds_request: ranked.exceeds(signal),
        verdict: match ranked.usage {
            _ if policy.exempts(ranked.pod) => CandidateVerdict::Critical,
            None => CandidateVerdict::NotMeasured,
            Some(_) if std::mem::replace(&mut chosen, true) => CandidateVerdict::NotNeeded,
            Some(_) => CandidateVerdict::Chosen,
        }
        .as_str(),
    };
    ranked.iter().map(explain).collect()
}
