//! Plans of cases in JSON: a configuration and pods in, groups out. For checking a configuration
//! without a node, and for comparison with other implementations.

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde::{Deserialize, Serialize};
use winddown_shared::{GoDuration, IdentityError, Pod};

use crate::policy::go_text;
use crate::{Group, GroupPeriod, Plan, Policy, PolicyError, plan};

/// Why a line could not be planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanLineError {
    /// The line is not JSON, or does not have the expected shape.
    #[error(
        "not a plan request; expected an object with \"config\" and \"pods\" as in \
         {{\"id\":\"a\",\"config\":{{\"shutdownGracePeriod\":\"30s\"}},\"pods\":[]}}"
    )]
    Syntax(#[source] serde_json::Error),
    /// A period is negative, or is not a duration.
    #[error("config.{field}: {value:?} is not a duration of zero or more; write it like \"1m30s\"")]
    Period {
        /// The field's name.
        field: &'static str,
        /// The field's value.
        value: String,
    },
    /// The configuration contradicts itself.
    #[error("config")]
    Policy(#[source] PolicyError),
    /// The identity of a pod is incomplete.
    #[error("pods[{index}]")]
    Pod {
        /// The pod's index in the list, from 0.
        index: usize,
        /// The part that is missing.
        source: IdentityError,
    },
}

/// Plans one case, `{"id", "config", "pods"}`.
///
/// `config` holds the shutdown fields of the configuration file, `pods` full pod objects. Other fields are
/// ignored. Everything that `config` leaves out is off, including the order by roles. The default
/// namespace is `default`; a pod without a UID is identified by its index.
///
/// # Errors
/// Fails if the text is not such a request, or if its configuration is invalid.
pub fn plan_case(case: &str) -> Result<PlanAnswer, PlanLineError> {
    let request: Request = serde_json::from_str(case).map_err(PlanLineError::Syntax)?;
    let policy = request.config.policy()?;
    let pods = Pod::of_cases(request.pods)
        .map_err(|(index, source)| PlanLineError::Pod { index, source })?;
    let plan = plan(&pods, &policy, None);
    Ok(PlanAnswer::new(request.id, &plan))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(default)]
    id: Option<serde_json::Value>,
    config: Config,
    pods: Vec<api::Pod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    shutdown_grace_period: Option<String>,
    shutdown_grace_period_critical_pods: Option<String>,
    shutdown_grace_period_by_pod_priority: Option<Vec<GroupPeriod>>,
    #[serde(default)]
    shutdown_order: Order,
    shutdown_endpoint_drain_period: Option<String>,
}

/// The `shutdownOrder` field. Unlike in the configuration file, it defaults to the kubelet's order.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Order {
    Role,
    #[default]
    Priority,
}

/// The answer to a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PlanAnswer {
    /// The case's own `id`, whatever it is; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<serde_json::Value>,
    /// The groups, in the order of their end.
    pub groups: Vec<AnswerGroup>,
    /// The pods that would be killed at once, because graceful shutdown is off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_protected: Vec<AnswerPod>,
    /// The time of all groups together: `30s`.
    pub period_requested: String,
}

/// Pods that are terminated together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AnswerGroup {
    /// The lowest priority that falls into the group.
    pub priority: i32,
    /// What its pods are for, where that puts them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'static, str>>,
    /// The group's time, in seconds.
    pub shutdown_grace_period_seconds: u64,
    /// Its pods.
    pub pods: Vec<AnswerPod>,
}

/// A pod in the answer to a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AnswerPod {
    /// `metadata.name`.
    pub name: String,
    /// The time between its SIGTERM and SIGKILL, in seconds.
    pub grace_seconds: u64,
}

// === impl Config ===

impl Config {
    fn policy(self) -> Result<Policy, PlanLineError> {
        let total = period("shutdownGracePeriod", self.shutdown_grace_period)?;
        let critical =
            period("shutdownGracePeriodCriticalPods", self.shutdown_grace_period_critical_pods)?;
        let drain = period("shutdownEndpointDrainPeriod", self.shutdown_endpoint_drain_period)?;
        let policy = match self.shutdown_grace_period_by_pod_priority {
            Some(groups) if !groups.is_empty() => {
                if !total.is_zero() || !critical.is_zero() {
                    return Err(PlanLineError::Policy(PolicyError::BothForms));
                }
                Policy::by_priority(groups)
            }
            _ => match self.shutdown_order {
                Order::Role => Policy::by_role(total, critical),
                Order::Priority => Policy::from_periods(total, critical),
            },
        };
        policy.map(|policy| policy.with_endpoint_drain(drain)).map_err(PlanLineError::Policy)
    }
}

// === impl PlanAnswer ===

impl PlanAnswer {
    fn new(id: Option<serde_json::Value>, plan: &Plan) -> Self {
        let answer = |pod: &Pod, grace: Duration| AnswerPod {
            name: pod.name().to_string(),
            grace_seconds: grace.as_secs(),
        };
        let group = |group: &Group| AnswerGroup {
            priority: group.priority,
            name: group.name(),
            shutdown_grace_period_seconds: group.allowed.as_secs(),
            pods: group.pods.iter().map(|planned| answer(&planned.pod, planned.grace)).collect(),
        };
        let at_once = plan.not_protected.iter().map(|pod| answer(pod, Duration::ZERO));
        Self {
            id,
            groups: plan.groups.iter().map(group).collect(),
            not_protected: at_once.collect(),
            period_requested: go_text(plan.requested),
        }
    }
}

fn period(field: &'static str, text: Option<String>) -> Result<Duration, PlanLineError> {
    let Some(value) = text else { return Ok(Duration::ZERO) };
    let parsed = value.parse::<GoDuration>().ok().and_then(|go| Duration::try_from(go).ok());
    parsed.ok_or(PlanLineError::Period { field, value })
}
