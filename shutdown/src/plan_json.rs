//! Plans as JSON lines: a configuration and pods in, groups out. For checking a configuration
//! without a node, and for comparison with other implementations.

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde::{Deserialize, Serialize};
use winddown_shared::{GoDuration, IdentityError, Pod};

use crate::policy::go_text;
use crate::{GroupPeriod, Plan, Policy, PolicyError, plan};

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
        #[source]
        source: IdentityError,
    },
    /// The answer could not be serialized. This is not expected to happen.
    #[error("the plan could not be written as JSON")]
    Output(#[source] serde_json::Error),
}

/// Plans one line: `{"id", "config", "pods"}` in, `{"id", "groups", "periodRequested"}` out, with `notProtected` where a
/// shutdown would kill pods at once.
///
/// `config` holds the shutdown fields of the configuration file, `pods` full pod objects. Other fields are
/// ignored. Everything that `config` leaves out is off, including the order by roles. The default
/// namespace is `default`; a pod without a UID is identified by its index.
///
/// # Errors
/// Fails if the line is not such a request, or if its configuration is invalid.
pub fn plan_json_line(line: &str) -> Result<String, PlanLineError> {
    let request: Request = serde_json::from_str(line).map_err(PlanLineError::Syntax)?;
    let policy = request.config.policy()?;
    let pods = Pod::of_cases(request.pods)
        .map_err(|(index, source)| PlanLineError::Pod { index, source })?;
    let plan = plan(&pods, &policy, None);
    serde_json::to_string(&PlanAnswer::new(request.id, &plan)).map_err(PlanLineError::Output)
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanAnswer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<serde_json::Value>,
    groups: Vec<AnswerGroup<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_protected: Vec<AnswerPod<'a>>,
    period_requested: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnswerGroup<'a> {
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'static, str>>,
    shutdown_grace_period_seconds: u64,
    pods: Vec<AnswerPod<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnswerPod<'a> {
    name: &'a str,
    grace_seconds: u64,
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

impl<'a> PlanAnswer<'a> {
    fn new(id: Option<serde_json::Value>, plan: &'a Plan) -> Self {
        let pods = |group: &'a crate::Group| {
            let pod = |planned: &'a crate::PlannedPod| AnswerPod {
                name: planned.pod.name(),
                grace_seconds: planned.grace.as_secs(),
            };
            group.pods.iter().map(pod).collect()
        };
        let groups = plan
            .groups
            .iter()
            .map(|group| AnswerGroup {
                priority: group.priority,
                name: group.name(),
                shutdown_grace_period_seconds: group.allowed.as_secs(),
                pods: pods(group),
            })
            .collect();
        let not_protected = plan.not_protected.iter();
        let not_protected =
            not_protected.map(|pod| AnswerPod { name: pod.name(), grace_seconds: 0 });
        Self {
            id,
            groups,
            not_protected: not_protected.collect(),
            period_requested: go_text(plan.requested),
        }
    }
}

fn period(field: &'static str, text: Option<String>) -> Result<Duration, PlanLineError> {
    let Some(value) = text else { return Ok(Duration::ZERO) };
    let parsed = value.parse::<GoDuration>().ok().and_then(|go| Duration::try_from(go).ok());
    parsed.ok_or(PlanLineError::Period { field, value })
}
