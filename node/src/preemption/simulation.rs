//! Simulates preemption for the control API.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::watch;
use winddown_preemption::{ConsideredVictim, PreemptionHandler, Strategy, explain_admission};
use winddown_shared::status::StatusEntry;
use winddown_shared::{Outlook, Pod, ResourceName, Runtime, WAITING_FOR_PREEMPTION, fit_failures};

use crate::core::Core;
use crate::fit::NodeResources;
use crate::plugin::PreemptionAnswers;
use winddown_control::ApiError;
use winddown_control::api::{
    ConsideredPod, ErrorCode, InsufficientResource, NodeResource, PreemptionCase, PreemptionPlan,
    RoomVerdict, WaitingPod,
};
use winddown_static_pods::read_manifest;

/// Explains how a pod would be admitted, and which pods would be preempted for it.
pub(super) struct Rooms<R: Runtime> {
    pub(super) core: Arc<Core<R>>,
    pub(super) strategy: watch::Receiver<Strategy>,
}

impl<R: Runtime> PreemptionAnswers for Rooms<R> {
    /// Plans with `strategy`, or the one in force.
    fn plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError> {
        let strategy = strategy.map(str::parse::<Strategy>).transpose();
        let wrong = |error| ApiError::new(ErrorCode::BadRequest, format!("strategy: {error}"));
        let strategy = strategy.map_err(wrong)?.unwrap_or_else(|| *self.strategy.borrow());
        let asked = manifest.map(|text| self.pod_of(text)).transpose()?;
        let found = self.core.fit.found();
        let mut plan =
            PreemptionPlan { strategy: strategy.as_str().to_owned(), ..Default::default() };
        plan.resources = found.as_deref().map(|found| self.resources(found)).unwrap_or_default();
        plan.waiting = self.waiting();
        plan.pod = asked.map(|pod| self.case(&pod, found.as_deref(), strategy));
        Ok(plan)
    }
}

impl<R: Runtime> Rooms<R> {
    /// The pod of a manifest. One that is wanted from a file already is the same pod: its UID depends on the file.
    fn pod_of(&self, manifest: &[u8]) -> Result<Pod, ApiError> {
        let wrong = |error: &dyn Error| ApiError::new(ErrorCode::BadRequest, error.to_string());
        let asked = read_manifest(Path::new("manifest"), manifest, &self.core.identity.name)
            .map_err(|error| wrong(&error))?;
        let wanted = self.core.wanted.borrow().clone();
        let mut wanted = wanted.iter().flat_map(|wanted| &wanted.pods);
        let is_it = |pod: &&Pod| pod.is_static() && pod.full_name() == asked.full_name();
        let Some(known) = wanted.find(is_it) else { return Ok(asked) };
        let mut object = api::Pod::clone(&asked);
        object.metadata.uid = Some(known.uid().to_string());
        Pod::new(object).map_err(|error| wrong(&error))
    }

    fn resources(&self, found: &NodeResources) -> Vec<NodeResource> {
        let others = self.core.workers.others();
        let used = others.used();
        let allocatable = &found.view.allocatable;
        let resource = |(name, capacity): (&ResourceName, i64)| NodeResource {
            name: name.to_string(),
            capacity,
            allocatable: allocatable.get(name),
            used: match name {
                ResourceName::Pods => used.pods,
                _ => used.requests.get(name),
            },
        };
        found.whole.iter().map(resource).collect()
    }

    /// The pods for which room is reserved.
    fn held(&self) -> impl Iterator<Item = StatusEntry> {
        let said = self.core.statuses.all().into_iter();
        said.filter(|s| s.status.reason.as_deref() == Some(WAITING_FOR_PREEMPTION))
    }

    fn waiting(&self) -> Vec<WaitingPod> {
        let mut waiting: Vec<WaitingPod> = self
            .held()
            .map(|entry| WaitingPod {
                namespace: entry.pod.namespace().to_string(),
                name: entry.pod.name().to_string(),
                priority: entry.pod.priority_or_zero(),
                has_no_priority: entry.pod.priority().is_none(),
                message: entry.status.message.clone().unwrap_or_default(),
            })
            .collect();
        waiting.sort_unstable_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        waiting
    }

    /// Asks what the intake would make of a new pod, without acting on the result.
    fn case(&self, pod: &Pod, found: Option<&NodeResources>, strategy: Strategy) -> PreemptionCase {
        let workers = &self.core.workers;
        let mut others = workers.others();
        self.held().for_each(|held| others.reserve(&held.pod));
        let mut case = PreemptionCase { pod: pod.pod_ref().to_string(), ..Default::default() };
        if let Some(found) = found {
            // Only a critical pod can wait for those that are terminating.
            let in_time = workers.others_in_time(&others);
            let others = if pod.is_critical() { &in_time } else { &others };
            let failures = fit_failures(pod, &found.view, &others.used_without(pod, &found.view));
            let short = failures.iter().filter_map(|failure| failure.shortfall());
            let lacking: Vec<(ResourceName, i64)> =
                short.map(|(name, amount)| (name.clone(), amount)).collect();
            if !lacking.is_empty() && pod.is_critical() {
                let why = explain_admission(pod, others.non_terminating(), &lacking, strategy);
                case.considered = why.considered.iter().map(considered).collect();
            }
            let lack = |(name, amount): (ResourceName, i64)| InsufficientResource {
                name: name.to_string(),
                amount,
            };
            case.insufficient = lacking.into_iter().map(lack).collect();
        }
        let admission = self.core.admission(Some(Arc::new(PreemptionHandler::new(strategy))));
        match workers.outlook(&admission, pod, &others) {
            Outlook::Starts => case.verdict = RoomVerdict::Starts,
            Outlook::Waits(message) => {
                case.verdict = RoomVerdict::Waits;
                case.message = message.to_string();
            }
            Outlook::Preempts(plan) => {
                case.verdict = RoomVerdict::Preempts;
                case.message = plan.message.to_string();
                case.victims = plan.victims.iter().map(|v| v.pod.pod_ref().to_string()).collect();
            }
            Outlook::Refused(rejection) => {
                case.verdict = RoomVerdict::Rejected;
                case.reason = rejection.reason.to_string();
                case.message = rejection.message.to_string();
            }
        }
        case
    }
}

fn considered(one: &ConsideredVictim<'_>) -> ConsideredPod {
    ConsideredPod {
        pod: one.pod.pod_ref().to_string(),
        qos: one.pod.qos().as_str().to_owned(),
        priority: one.pod.priority_or_zero(),
        has_no_priority: one.pod.priority().is_none(),
        distance: one.distance,
        why: one.verdict.code().to_owned(),
        text: one.verdict.to_string(),
    }
}
