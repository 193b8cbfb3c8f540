//! Preemption as JSON: a pod that does not fit and the other pods in, victims out. For trying a
//! strategy without a node, and for comparison with other implementations.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use serde::{Deserialize, Serialize};
use winddown_shared::{IdentityError, Pod, ResourceName};

use crate::{
    ConsideredVictim, Criterion, PreemptionExplanation, Proof, Requirement, Strategy, explain,
    select,
};

/// Options for [`plan_case`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// How victims are chosen.
    pub strategy: Strategy,
    /// Whether to explain for every pod why it is chosen or kept.
    pub explain: bool,
}

/// Why a case could not be planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The text is not JSON, or does not have the expected shape.
    #[error(
        "not a preemption case; expected an object with \"preemptor\", \"pods\" and \
         \"requirements\" as in {{\"id\":\"a\",\"preemptor\":{{}},\"pods\":[],\
         \"requirements\":[{{\"resource\":\"cpu\",\"quantity\":100}}]}}"
    )]
    Syntax(#[source] serde_json::Error),
    /// The identity of the arriving pod is incomplete.
    #[error("preemptor")]
    Preemptor(#[source] IdentityError),
    /// The identity of another pod is incomplete.
    #[error("pods[{index}]")]
    Pod {
        /// The pod's index in the list, from 0.
        index: usize,
        /// The part that is missing.
        source: IdentityError,
    },
}

/// Plans one case, `{"id", "preemptor", "pods", "requirements"}`.
///
/// `preemptor` and `pods` are pod objects. A requirement has a `resource` and a `quantity`: cpu in
/// millicores, `pods` in pods, all others in base units. Other fields are ignored. The default namespace
/// is `default`; a pod without a UID is identified by its index. If no set of victims is enough, the
/// answer says so in `error`; the call still succeeds.
///
/// # Errors
/// Fails if the text is not such a case.
pub fn plan_case(case: &str, options: &PlanOptions) -> Result<PreemptionAnswer, CaseError> {
    let case: Case = serde_json::from_str(case).map_err(CaseError::Syntax)?;
    let preemptor =
        Pod::of_case(case.preemptor, || "preemptor".into()).map_err(CaseError::Preemptor)?;
    let pods =
        Pod::of_cases(case.pods).map_err(|(index, source)| CaseError::Pod { index, source })?;
    let requirements: Vec<Requirement> = case
        .requirements
        .into_iter()
        .map(|asked| (ResourceName::from(asked.resource.as_str()), asked.quantity))
        .collect();
    Ok(if options.explain {
        PreemptionAnswer::explained(
            case.id,
            &explain(&preemptor, &pods, &requirements, options.strategy),
            &pods,
            &preemptor,
            options.strategy,
        )
    } else {
        let chosen = select(&preemptor, &pods, &requirements, options.strategy);
        let chosen = chosen.map(|selection| selection.victims).map_err(|error| error.to_string());
        PreemptionAnswer::new(case.id, chosen, &pods)
    })
}

#[derive(Deserialize)]
struct Case {
    #[serde(default)]
    id: Option<serde_json::Value>,
    preemptor: api::Pod,
    pods: Vec<api::Pod>,
    requirements: Vec<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    resource: String,
    quantity: i64,
}

/// The answer to a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PreemptionAnswer {
    /// The case's own `id`, whatever it is; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<serde_json::Value>,
    /// The names of the pods that would end, in that order.
    pub victims: Vec<String>,
    /// Why no pod would end.
    pub error: Option<String>,
    /// The reasons, if they were asked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<AnswerReasons>,
}

/// Why pods would end or stay.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AnswerReasons {
    /// With `--explain`: how the victims were chosen.
    pub strategy: &'static str,
    /// With `--explain`: the last criterion by which no set is known to be better; null if nothing is claimed.
    pub shown: Option<Criterion>,
    /// With `--explain`: every pod, and why it would be preempted or kept.
    pub candidates: Vec<AnswerCandidate>,
}

/// A pod that was considered.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AnswerCandidate {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    pub qos: &'static str,
    /// Whether it is a static pod, or of a system priority class.
    pub critical: bool,
    /// Whether the arriving pod may end it.
    pub preemptable: bool,
    /// `spec.priority`; null when unset.
    pub priority: Option<i32>,
    /// What it requests, in thousandths of a CPU.
    pub cpu_milli: i64,
    /// What it requests, in bytes.
    pub memory_bytes: i64,
    /// What its end would give back, by resource.
    pub frees: BTreeMap<String, i64>,
    /// How far what it frees is from what is lacking.
    pub distance: f64,
    /// Whether it is terminating already.
    pub terminating: bool,
    /// Whether it is one of the victims.
    pub taken: bool,
    /// Why it would end or stay, in one word.
    pub reason: &'static str,
    /// By what another pod is the better choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criterion: Option<Criterion>,
    /// The reason, human-readable.
    pub text: String,
}

// === impl PreemptionAnswer ===

impl PreemptionAnswer {
    fn new(
        id: Option<serde_json::Value>,
        chosen: Result<Vec<usize>, String>,
        pods: &[Pod],
    ) -> Self {
        let (victims, error) = match chosen {
            Ok(victims) => (victims, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let victims = victims.into_iter().map(|place| pods[place].name().to_string()).collect();
        Self { id, victims, error, reasons: None }
    }

    fn explained(
        id: Option<serde_json::Value>,
        explanation: &PreemptionExplanation<'_>,
        pods: &[Pod],
        preemptor: &Pod,
        strategy: Strategy,
    ) -> Self {
        let chosen = explanation.chosen.as_ref();
        let victims = chosen.map(|selection| selection.victims.clone());
        let shown = match chosen.map(|selection| selection.proof) {
            Ok(Proof::UpTo(criterion)) => Some(criterion),
            _ => None,
        };
        let candidates = explanation.considered.iter();
        let candidates = candidates.map(|considered| AnswerCandidate::new(considered, preemptor));
        let reasons =
            AnswerReasons { strategy: strategy.as_str(), shown, candidates: candidates.collect() };
        let victims = victims.map_err(ToString::to_string);
        Self { reasons: Some(reasons), ..Self::new(id, victims, pods) }
    }
}

// === impl AnswerCandidate ===

impl AnswerCandidate {
    fn new(considered: &ConsideredVictim<'_>, preemptor: &Pod) -> Self {
        let pod = considered.pod;
        let requests = pod.accounted_requests();
        let frees = considered.frees.iter();
        Self {
            name: pod.name().to_string(),
            namespace: pod.namespace().to_string(),
            qos: pod.qos().as_str(),
            critical: pod.is_critical(),
            preemptable: preemptor.may_preempt(pod),
            priority: pod.priority(),
            cpu_milli: requests.cpu_milli(),
            memory_bytes: requests.memory_bytes(),
            frees: frees.map(|(resource, amount)| (resource.to_string(), *amount)).collect(),
            distance: considered.distance,
            terminating: considered.is_ending,
            taken: matches!(considered.verdict, crate::VictimVerdict::Taken(_)),
            reason: considered.verdict.code(),
            criterion: match considered.verdict {
                crate::VictimVerdict::Worse(criterion) => Some(criterion),
                _ => None,
            },
            text: considered.verdict.to_string(),
        }
    }
}
