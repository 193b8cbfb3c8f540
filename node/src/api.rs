//! What the control socket asks of the node.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use winddown_eviction::Signal;
use winddown_preemption::Strategy;
use winddown_shared::{
    Inhibitor, KillError, KillReason, KillRequest, LockState, Pod, PodKiller, Runtime,
    StatusOverride,
};

use super::{Node, reports};
use winddown_control::api::{
    Check, ConfigView, DrainEvent, DrainRequest, ErrorCode, EvictionPlan, Health, KillAnswer,
    KillBody, NoticeBody, PlanShrink, PlannedGroup, PlannedPod, PreemptionPlan, ReportList,
    ShutdownPlan, Status, WithdrawAnswer,
};
use winddown_control::{AgentApi, ApiError};

impl<R: Runtime, I: Inhibitor> AgentApi for Node<R, I> {
    fn status(&self) -> Status {
        self.picture()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn shutdown_plan(&self) -> ShutdownPlan {
        let (plan, _) = self.planned();
        let set_by = self.0.inhibitor.state().borrow().delay_set_by.clone();
        let pods_unknown = !self.0.workers.running().known;
        ShutdownPlan { pods_unknown, ..plan_view(&plan, set_by.as_deref()) }
    }

    fn preemption_plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError> {
        let strategy = strategy.map(str::parse::<Strategy>).transpose();
        let wrong = |error| ApiError::new(ErrorCode::BadRequest, format!("strategy: {error}"));
        self.room_plan(manifest, strategy.map_err(wrong)?)
    }

    async fn eviction_plan(&self, signal: Option<&str>) -> Result<EvictionPlan, ApiError> {
        let signal = signal.map(str::parse::<Signal>).transpose();
        let wrong = |error| ApiError::new(ErrorCode::BadRequest, format!("signal: {error}"));
        let signal = signal.map_err(wrong)?;
        self.pressure_plan(signal)
            .await
            .ok_or_else(|| ApiError::new(ErrorCode::NotFound, "this agent evicts nothing"))
    }

    async fn kill(
        &self,
        namespace: &str,
        name: &str,
        body: KillBody,
    ) -> Result<KillAnswer, ApiError> {
        let pod = self.find(namespace, name, body.uid.as_deref())?;
        let request = KillRequest {
            grace: body.grace_seconds.map(Duration::from_secs),
            status: Some(StatusOverride {
                reason: "Terminated".into(),
                message: "Pod was ended because an operator asked for it.".into(),
                disruption_message: None,
            }),
            ..KillRequest::new(KillReason::Operator)
        };
        let begun = Instant::now();
        let mut answer = KillAnswer {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: pod.uid().to_string(),
            ..KillAnswer::default()
        };
        match self.0.workers.kill_pod(pod, request).await {
            Ok(stopped) => {
                let forced = stopped.containers.iter().filter(|c| c.forced);
                answer.forced = forced.map(|c| c.name.to_string()).collect();
            }
            Err(error @ KillError::Deadline { .. }) => {
                answer.still_running = true;
                answer.message = error.to_string();
            }
            Err(error) => {
                return Err(ApiError::new(ErrorCode::Unavailable, error.to_string())
                    .with_hint("the agent is stopping; try again once it has started"));
            }
        }
        answer.took_seconds = begun.elapsed().as_secs_f64();
        Ok(answer)
    }

    async fn drain(
        &self,
        request: DrainRequest,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        self.start_drain(request.timeout_seconds.map(Duration::from_secs))
    }

    async fn give_notice(
        &self,
        body: NoticeBody,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        self.start_notice(body).await
    }

    async fn withdraw_notice(&self) -> WithdrawAnswer {
        self.end_notice().await
    }

    async fn reports(&self) -> Result<ReportList, ApiError> {
        let store = self.0.reports.clone();
        blocking(move || reports::list(&store)).await
    }

    async fn report(&self, id: &str) -> Result<serde_json::Value, ApiError> {
        let (store, id) = (self.0.reports.clone(), id.to_owned());
        blocking(move || reports::find(&store, &id)).await
    }

    fn config(&self) -> ConfigView {
        let configuration = self.configuration();
        ConfigView {
            file: configuration.file.map(|f| f.display().to_string()).unwrap_or_default(),
            yaml: configuration.config.to_yaml(),
            warnings: configuration.warnings,
        }
    }

    fn health(&self) -> Health {
        // Taking the workers' lock shows that no step holds it.
        let _ = self.0.workers.has_restart_requests();
        Health { checks: vec![Check::passed("workers")] }
    }

    fn readiness(&self) -> Health {
        let state = self.0.inhibitor.state().borrow().clone();
        let lock = match &state.lock {
            LockState::Held | LockState::Released => Check::passed("lock"),
            LockState::Waiting { why } | LockState::Absent { why } => {
                Check::failed("lock", why.to_string())
            }
        };
        let read = self.0.manifests.borrow().generation > 0;
        let manifests = if read {
            Check::passed("manifests")
        } else {
            Check::failed("manifests", "the directory has not been read yet")
        };
        let runtime = match self.runtime_health() {
            Ok(()) => Check::passed("runtime"),
            Err(why) => Check::failed("runtime", why),
        };
        Health { checks: vec![lock, runtime, manifests] }
    }

    fn metrics(&self) -> String {
        self.0.metrics.text(self.facts())
    }
}

impl<R: Runtime, I: Inhibitor> Node<R, I> {
    fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Result<Pod, ApiError> {
        let named: Vec<_> = self
            .0
            .workers
            .snapshot()
            .into_iter()
            .filter(|s| {
                s.pod.as_ref().is_some_and(|p| **p.name() == *name && **p.namespace() == *namespace)
            })
            .collect();
        let hint = "list the pods with: winddown status";
        if named.is_empty() {
            let text = format!("there is no pod {namespace}/{name} on this node");
            return Err(ApiError::new(ErrorCode::NotFound, text).with_hint(hint));
        }
        // An old pod that has ended may stand beside the new one of the same name.
        let found = named
            .into_iter()
            .filter(|s| uid.is_none_or(|uid| s.uid.as_str() == uid))
            .min_by_key(|s| s.lifecycle);
        found.and_then(|s| s.pod).ok_or_else(|| {
            let text = format!("the pod {namespace}/{name} on this node has another UID");
            ApiError::new(ErrorCode::NotFound, text).with_hint(hint)
        })
    }
}

/// A plan as the control API shows it.
pub fn plan_view(plan: &winddown_shutdown::Plan, set_by: Option<&str>) -> ShutdownPlan {
    let seconds = |d: Duration| d.as_secs_f64();
    let mut view = ShutdownPlan::new(seconds(plan.requested));
    view.shrunk = plan.shrunk.map(|shrink| PlanShrink {
        available_seconds: seconds(shrink.available),
        set_by: set_by.map(str::to_owned),
    });
    view.endpoint_drain_seconds =
        Some(plan.endpoint_drain).filter(|drain| !drain.is_zero()).map(seconds);
    view.groups = plan
        .groups
        .iter()
        .zip(plan.guaranteed())
        .map(|(group, guaranteed)| PlannedGroup {
            priority: group.priority,
            name: group.name().map(str::to_owned),
            shutdown_grace_period_seconds: seconds(group.allowed),
            latest_end_seconds: Some(seconds(group.latest_end)),
            pods: group.pods.iter().map(|planned| planned_pod(planned, guaranteed)).collect(),
        })
        .collect();
    view.warnings = plan.warnings().iter().map(ToString::to_string).collect();
    view
}

/// A pod whose group is sure of so much time.
fn planned_pod(planned: &winddown_shutdown::PlannedPod, guaranteed: Duration) -> PlannedPod {
    let own = planned.pod.own_grace();
    let grace = own.map_or(planned.grace, |own| own.min(guaranteed));
    PlannedPod {
        namespace: planned.pod.namespace().to_string(),
        name: planned.pod.name().to_string(),
        uid: planned.pod.uid().to_string(),
        priority: planned.pod.priority_or_zero(),
        grace_seconds: grace.as_secs_f64(),
        own_grace_seconds: own.map(|own| own.as_secs_f64()),
    }
}

/// Disk work beside the runtime's own threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal, "reading the disk failed")))
}
