//! The node's answers on the control socket.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use winddown_host::OneThread;
use winddown_shared::{
    KillError, KillReason, KillRequest, Lifecycle, Pod, PodKiller, PodRef, PodUid, Runtime,
    StatusOverride, critical, error_chain,
};

use crate::plugin::ShutdownAnswers;
use crate::{Node, SettingsSource};
use winddown_control::api::{
    Check, ConfigView, DrainEvent, DrainRequest, ErrorCode, Health, KillAnswer, KillBody, LogQuery,
    NoticeBody, PreemptionPlan, ReleaseAnswer, ReportList, StartPlan, Status, WithdrawAnswer,
};
use winddown_control::{ActApi, ApiError, HealthApi, LogBlocks, PlanApi, ReportApi, StatusApi};

impl<R: Runtime> StatusApi for Node<R> {
    async fn refresh(&self) {
        futures_util::future::join_all(self.0.sections.iter().map(|section| section.refresh()))
            .await;
    }

    fn status(&self) -> Status {
        self.picture()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.core.changes.subscribe()
    }

    fn config(&self) -> ConfigView {
        let SettingsSource { file, warnings, yaml, .. } = self.0.settings.borrow().source.clone();
        let file = file.map(|f| f.display().to_string()).unwrap_or_default();
        ConfigView { file, yaml, warnings }
    }

    fn metrics(&self) -> String {
        self.0.core.recorders.metrics.text(self.facts())
    }
}

impl<R: Runtime> HealthApi for Node<R> {
    fn health(&self) -> Health {
        // Taking the workers' lock proves that no step holds it.
        let _ = self.0.core.workers.has_restart_requests();
        let tasks = match critical::failure() {
            Some(failure) => Check::failed("tasks", failure.to_string()),
            None => Check::passed("tasks"),
        };
        Health { checks: vec![Check::passed("workers"), tasks] }
    }

    fn readiness(&self) -> Health {
        let core = &self.0.core;
        let read = core.wanted.borrow().is_some();
        let manifests = if read {
            Check::passed("manifests")
        } else {
            Check::failed("manifests", "the directory has not been read yet")
        };
        let runtime = match core.runtime_health() {
            Ok(()) => Check::passed("runtime"),
            Err(why) => Check::failed("runtime", why),
        };
        let plugins = self.0.sections.iter().filter_map(|section| section.readiness());
        Health { checks: plugins.chain([runtime, manifests]).collect() }
    }
}

impl<R: Runtime> PlanApi for Node<R> {
    #[cfg(feature = "shutdown")]
    async fn shutdown_plan(&self, within: Option<Duration>) -> winddown_control::api::ShutdownPlan {
        match self.0.answers.shutdown.as_ref() {
            Some(shutdown) => shutdown.plan(within).await,
            None => Default::default(),
        }
    }

    fn start_plan(&self) -> Result<StartPlan, ApiError> {
        self.has_no_kubelet("starts them")?;
        Ok(self.0.answers.start.as_ref().map(|start| start.plan()).unwrap_or_default())
    }

    fn preemption_plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError> {
        self.has_no_kubelet("makes room for them")?;
        let preemption = self.0.answers.preemption.as_ref();
        let none = || not_here("this agent terminates no pod for another");
        preemption.ok_or_else(none)?.plan(manifest, strategy)
    }

    #[cfg(feature = "eviction")]
    async fn eviction_plan(
        &self,
        signal: Option<&str>,
    ) -> Result<winddown_control::api::EvictionPlan, ApiError> {
        self.has_no_kubelet("evicts them when a resource runs short")?;
        let eviction = self.0.answers.eviction.as_ref();
        let none = || not_here("this agent evicts nothing");
        eviction.ok_or_else(none)?.plan(signal.map(str::to_owned)).await
    }
}

impl<R: Runtime> ActApi for Node<R> {
    async fn kill(
        &self,
        namespace: &str,
        name: &str,
        body: KillBody,
    ) -> Result<KillAnswer, ApiError> {
        let pod = self.find(namespace, name, body.uid.as_deref())?;
        if body.restart {
            self.comes_back(&pod)?;
        }
        let request = KillRequest::new(KillReason::Operator)
            .with_grace(body.grace_seconds.map(Duration::from_secs))
            .with_status(Some(StatusOverride::failed(
                "Terminated",
                "Pod was terminated because an operator requested it.",
                None,
            )));
        let begun = Instant::now();
        let mut answer = KillAnswer {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: pod.uid().to_string(),
            ..KillAnswer::default()
        };
        match self.0.core.workers.kill_pod(pod.clone(), request).await {
            Ok(stopped) if stopped.stopped_at.is_some_and(|at| at < begun) => {
                answer.already_terminated = true;
            }
            Ok(stopped) => {
                let forced = stopped.containers.iter().filter(|c| c.forced);
                answer.forced = forced.map(|c| c.name.to_string()).collect();
            }
            Err(KillError::Deadline { still_running, .. }) => {
                answer.still_running = true;
                answer.message = match still_running.is_empty() {
                    true => "which of its containers is not known".to_owned(),
                    false => still_running.join(", "),
                };
            }
            Err(error @ KillError::Refused { .. }) => {
                return Err(ApiError::new(ErrorCode::Conflict, error.to_string()));
            }
            Err(KillError::WorkersGone { .. }) => return Err(ApiError::kill_cut_short()),
            Err(error) => return Err(ApiError::new(ErrorCode::Internal, error.to_string())),
        }
        let stays = || !answer.still_running && self.0.core.runtime.has_completed(&pod);
        answer.completed = body.restart && stays();
        answer.took_seconds = begun.elapsed().as_secs_f64();
        Ok(answer)
    }

    async fn release(&self, namespace: &str, name: &str) -> Result<ReleaseAnswer, ApiError> {
        self.shutdown()?;
        match &self.0.answers.release {
            Some(release) => release.release(namespace.to_owned(), name.to_owned()).await,
            None => Err(holds_none(namespace, name)),
        }
    }

    async fn drain(
        &self,
        request: DrainRequest,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        self.shutdown()?.drain(request)
    }

    async fn give_notice(
        &self,
        body: NoticeBody,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        self.shutdown()?.give_notice(body).await
    }

    async fn withdraw_notice(&self) -> WithdrawAnswer {
        match &self.0.answers.shutdown {
            Some(shutdown) => shutdown.withdraw_notice().await,
            None => WithdrawAnswer::default(),
        }
    }
}

impl<R: Runtime> ReportApi for Node<R> {
    async fn reports(&self) -> Result<ReportList, ApiError> {
        self.shutdown()?.reports().await
    }

    async fn report(&self, id: &str) -> Result<serde_json::Value, ApiError> {
        let shutdown = self.shutdown()?;
        match &self.0.answers.start {
            Some(start) if id == "start" => start.report().await,
            _ => shutdown.report(id.to_owned()).await,
        }
    }

    async fn log(
        &self,
        namespace: &str,
        name: &str,
        query: LogQuery,
    ) -> Result<LogBlocks, ApiError> {
        self.open_log(namespace, name, query).await
    }
}

impl<R: Runtime> Node<R> {
    fn shutdown(&self) -> Result<&dyn ShutdownAnswers, ApiError> {
        let none = || not_here("this agent terminates no pods before a shutdown");
        self.0.answers.shutdown.as_deref().ok_or_else(none)
    }

    /// Refuses a restart of a pod that would not start again here.
    fn comes_back(&self, pod: &Pod) -> Result<(), ApiError> {
        let refuse =
            |why: String, hint: &str| Err(ApiError::new(ErrorCode::Conflict, why).with_hint(hint));
        let name = pod.pod_ref();
        // What is left of an earlier manifest's pod makes way for the pod of the present one.
        if !pod.is_static() && !pod.is_runtime_only() {
            return refuse(
                format!("{name} is a pod of the API server: its controller creates another one"),
                "`winddown kill POD` terminates it",
            );
        }
        if !self.0.core.gate.reasons().is_empty() {
            return refuse(
                format!("{name} would not start again: this node admits no pods"),
                "`winddown status` says why",
            );
        }
        Ok(())
    }

    fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Result<Pod, ApiError> {
        let is_it = |pod: &PodRef| *pod.name == *name && *pod.namespace == *namespace;
        let is_asked_for = |found: &PodUid| uid.is_none_or(|uid| found.as_str() == uid);
        let workers = self.workers();
        let left = workers.running().runtime_only;
        let left = left.iter().find(|pod| is_it(&pod.pod_ref()) && is_asked_for(&pod.uid));
        // The pod of a manifest that changed while no agent ran; that of the new one waits for it.
        if let Some(left) = left.filter(|left| workers.is_termination_requested(&left.uid)) {
            return Ok(Pod::of_runtime(left));
        }
        let all = workers.snapshot().into_iter();
        let named: Vec<_> =
            all.filter(|s| s.pod.as_ref().is_some_and(|p| is_it(p.pod_ref()))).collect();
        if named.is_empty() {
            return Err(self.why_not_found(namespace, name, left.is_some()));
        }
        // One that runs, or terminates, may be listed next to one of the same name that waits for it or has terminated.
        let found = named.into_iter().filter(|s| is_asked_for(&s.uid)).min_by_key(|s| {
            let runs = matches!(s.lifecycle, Lifecycle::Syncing | Lifecycle::Terminating);
            (!runs, s.lifecycle)
        });
        found.and_then(|s| s.pod).ok_or_else(|| {
            let text = format!("the pod {namespace}/{name} on this node has another UID");
            ApiError::new(ErrorCode::NotFound, text).with_hint("`winddown status -o wide` shows it")
        })
    }

    /// Why there is no such pod to terminate. `runs`: without a manifest.
    fn why_not_found(&self, namespace: &str, name: &str, runs: bool) -> ApiError {
        if runs {
            let text = format!("no manifest of the pod {namespace}/{name} can be read");
            return ApiError::new(ErrorCode::NotFound, text).with_hint(
                "correct or remove its manifest (`winddown status` names it); a drain terminates the pod as it is",
            );
        }
        let said = self.0.core.statuses.all();
        let is_it = |pod: &PodRef| *pod.name == *name && *pod.namespace == *namespace;
        if let Some(said) = said.iter().find(|said| is_it(said.pod.pod_ref())) {
            let why = said.status.message.as_deref().unwrap_or("it has not started");
            let text = format!("the pod {namespace}/{name} does not run: {why}");
            return ApiError::new(ErrorCode::Conflict, text)
                .with_hint("`winddown status` shows it");
        }
        let text = format!("there is no pod {namespace}/{name} on this node");
        ApiError::new(ErrorCode::NotFound, text).with_hint(LISTED)
    }
}

const LISTED: &str = "`winddown status` lists the pods";

impl<R: Runtime> Node<R> {
    /// Fails beside a kubelet, which `does` to its pods what the agent is asked about.
    fn has_no_kubelet(&self, does: &str) -> Result<(), ApiError> {
        if !self.0.core.fit.admits_all() {
            return Ok(());
        }
        let what = format!("with `mode: companion` the kubelet has the pods and {does}");
        Err(ApiError::new(ErrorCode::Conflict, what)
            .with_hint("`winddown plan shutdown` is what this agent does"))
    }
}

fn not_here(what: &str) -> ApiError {
    ApiError::new(ErrorCode::NotFound, what)
}

/// The answer to the release of a pod that holds no shutdown.
pub(crate) fn holds_none(namespace: &str, name: &str) -> ApiError {
    let text = format!("the pod {namespace}/{name} holds no shutdown of this node");
    ApiError::new(ErrorCode::NotFound, text).with_hint("`winddown status` lists those that do")
}

/// Runs disk work off the async threads, one piece at a time.
pub(crate) async fn blocking<T: Send + 'static>(
    reading: &OneThread,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |_| Err(ApiError::new(ErrorCode::Internal, "reading the disk failed"));
    reading.run(|()| work()).await.unwrap_or_else(failed)
}

/// The answer when a report cannot be read.
pub(crate) fn unreadable(error: &dyn std::error::Error) -> ApiError {
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(std::io::ErrorKind::PermissionDenied) => {
            ApiError::new(ErrorCode::Forbidden, error_chain(error))
                .with_hint("run it again with sudo")
        }
        _ => ApiError::new(ErrorCode::Internal, error_chain(error))
            .with_hint("check the disk with the state directory"),
    }
}
