//! Stops containers through the container runtime: beside the kubelet, or in its place.

use std::borrow::Cow;
use std::convert::Infallible;

use super::plan::{Absence, StopStep, StopView, next_step, runs_hooks};
use super::*;
use crate::local_node::ContainerStop;
use winddown_shared::{Retry, StoppedContainers};

impl<A: EndPods, N: KubeletHost> StopCore<A, N> {
    /// Stops the pod's containers through the container runtime as soon as the plan says so (`plan.rs`). Resolves when
    /// they have exited for good.
    pub(super) async fn stop_directly(
        &self,
        pod: &Pod,
        runtime_uid: &PodUid,
        grace: &Grace,
        request: &StopRequest,
    ) {
        let mut retries = Retry::KUBELET_POD.backoff();
        loop {
            let mut step = StopStep::Wait;
            let is_done = loop {
                let may_change = matches!(step, StopStep::Wait | StopStep::BesideKubelet);
                tokio::select! {
                    is_done = self.carry_out(step, pod, runtime_uid, grace, request) => break is_done,
                    // The kubelet may turn out to be no help. What winddown does in its place, it does to the end.
                    next = self.step_after(step, pod, request), if may_change => step = next,
                    never = self.leave_to_kubelet(pod, runtime_uid, request), if step == StopStep::Wait => {
                        match never {}
                    }
                }
            };
            if is_done {
                return;
            }
            sleep(retries.next_delay()).await;
        }
    }

    /// Records that the API server had accepted what an earlier agent asked for, even if it is unavailable by now, if that
    /// agent has left the pod's hooks to the kubelet. Never returns.
    pub(super) async fn learn_of_begun_hooks(
        &self,
        pod: &Pod,
        runtime_uid: &PodUid,
        request: &StopRequest,
    ) -> Infallible {
        if facts::has_pre_stop(pod) && self.with_begun_hooks().await.contains(runtime_uid) {
            request.accepted();
        }
        pending().await
    }

    /// The pods whose hooks an earlier agent has left to the kubelet, as soon as the container runtime says which of them
    /// run. Cancel-safe.
    async fn with_begun_hooks(&self) -> Vec<PodUid> {
        let mut retries = Retry::KUBELET_POD.backoff();
        loop {
            match self.node.with_begun_hooks().await {
                Ok(pods) => return pods,
                Err(_) => sleep(retries.next_delay()).await,
            }
        }
    }

    /// Records that the kubelet may be running the pod's hooks, once the API server has accepted its end. Never returns.
    async fn leave_to_kubelet(
        &self,
        pod: &Pod,
        runtime_uid: &PodUid,
        request: &StopRequest,
    ) -> Infallible {
        if !facts::has_pre_stop(pod) {
            return pending().await;
        }
        request.until(|asked| asked.accepted.is_some()).await;
        if self.is_going_down() {
            // One that is gone runs none.
            self.kubelet.seen().await;
        }
        let _runs_hooks = self.kubelets_hooks.subscribe();
        let mut retries = Retry::KUBELET_POD.backoff();
        while !self.kubelet.is_held() {
            match self.node.hooks_begin(runtime_uid).await {
                Ok(()) => break,
                Err(error) => {
                    let pod = pod.pod_ref();
                    tracing::warn!(%pod, "cannot record that the kubelet runs preStop hooks: {error}");
                    sleep(retries.next_delay()).await;
                }
            }
        }
        pending().await
    }

    /// Carries out one step. Returns whether the pod's containers have exited for good.
    async fn carry_out(
        &self,
        step: StopStep,
        pod: &Pod,
        runtime_uid: &PodUid,
        grace: &Grace,
        request: &StopRequest,
    ) -> bool {
        match step {
            StopStep::Wait => pending().await,
            StopStep::BesideKubelet => {
                request.stopping();
                let _stops = self.known.stops(pod.uid());
                match self.stop_within(pod, runtime_uid, grace, false).await {
                    // A kubelet that has just learnt of the end may have been about to start them.
                    Ok(stopped) if !stopped.ran => {
                        self.kubelet.held().await;
                        false
                    }
                    Ok(stopped) => {
                        request.remark_stopped(&stopped);
                        true
                    }
                    Err(error) => {
                        tracing::debug!(pod = %pod.pod_ref(), "left to the kubelet: {error}");
                        false
                    }
                }
            }
            StopStep::InsteadOfKubelet(absence) => {
                let may_run_hooks = matches!(absence, Absence::Api | Absence::Unlisted);
                if may_run_hooks && self.learns_before_hold(pod, grace, request).await {
                    return false;
                }
                self.kubelet.hold().await;
                // The shutdown may have been cancelled meanwhile.
                self.may_stop_containers()
                    && self
                        .stop_instead(pod, runtime_uid, grace, &self.why(absence, request), request)
                        .await
                    && (self.kubelet.is_held() || self.runs_nothing(runtime_uid).await)
            }
            StopStep::DespiteKubelet(absence) => {
                self.stop_instead(pod, runtime_uid, grace, &self.why(absence, request), request)
                    .await
                    && self.runs_nothing(runtime_uid).await
            }
        }
    }

    /// Waits until the kubelet runs no more hooks, which its end would cut short, but at most half of the grace period.
    /// Returns whether it learns of the pod's own end meanwhile. Cancel-safe.
    async fn learns_before_hold(&self, pod: &Pod, grace: &Grace, request: &StopRequest) -> bool {
        let has_hooks = facts::has_pre_stop(pod);
        tokio::select! {
            biased;
            () = self.kubelet_runs_no_hooks() => false,
            () = request.until(|asked| asked.reaches_kubelet(has_hooks)) => true,
            () = sleep(grace.remaining() / 2) => false,
        }
    }

    /// Resolves when the kubelet runs no hooks that this agent or an earlier one has left to it. Cancel-safe.
    async fn kubelet_runs_no_hooks(&self) {
        self.kubelets_hooks.closed().await;
        for uid in self.with_begun_hooks().await {
            let runs_nothing = |now: RuntimePodState| now.running.is_empty();
            self.first_snapshot(|all| all.of(&uid).is_ok_and(runs_nothing)).await;
        }
    }

    /// Resolves with the step that follows `step`, as soon as it is another one. Cancel-safe.
    async fn step_after(&self, step: StopStep, pod: &Pod, request: &StopRequest) -> StopStep {
        let (mut going_down, mut kubelet) = (self.config.going_down.clone(), self.kubelet.watch());
        let (mut asked, has_hooks) = (request.watch(), facts::has_pre_stop(pod));
        loop {
            let is_going_down = *going_down.borrow_and_update();
            kubelet.mark_unchanged();
            let now = *asked.borrow_and_update();
            // Once the kubelet learns of the request, nothing depends on whether the server answers.
            let is_open = is_going_down && !now.reaches_kubelet(has_hooks);
            let mut api = is_open.then(|| self.outage.verdict());
            let next = next_step(StopView {
                current: step,
                is_going_down,
                may_stop_without_api: !self.config.waits_for_api,
                is_found: self.known.is_found(pod.uid()),
                is_kubelet_held: self.kubelet.is_held(),
                api: api.as_mut().map(|api| *api.borrow_and_update()).unwrap_or_default(),
                reaches_kubelet: now.reaches_kubelet(has_hooks),
                is_late: now.is_late,
                is_denied: now.is_denied,
                has_hooks,
                is_untold: now.is_untold,
                is_last_call: now.is_last_call && self.poller.is_unanswered(),
                is_over: now.is_over,
            });
            if next != step {
                return next;
            }
            let of_api = async {
                match &mut api {
                    Some(api) => api.changed().await,
                    None => pending().await,
                }
            };
            // The senders live as long as `self` and the request, or the agent is ending.
            tokio::select! {
                Ok(()) = going_down.changed() => {}
                Ok(()) = kubelet.changed() => {}
                Ok(()) = asked.changed() => {}
                Ok(()) = of_api => {}
                else => pending().await,
            }
        }
    }

    /// Why the kubelet does not end the pod, as text for users.
    fn why(&self, absence: Absence, request: &StopRequest) -> Cow<'static, str> {
        let why = match absence {
            Absence::Unlisted => "the API server has not listed the pod",
            Absence::Kubelet if self.kubelet.was_gone() => "the kubelet is gone",
            Absence::Kubelet if !self.outage.fails() => "the kubelet is stopped",
            Absence::Kubelet => "the API server is unavailable",
            Absence::Untold => "its grace was shortened while the kubelet ran its preStop hooks",
            Absence::Late => "the kubelet did not terminate the pod in time",
            Absence::Runtime => {
                "the kubelet cannot terminate the pod without the container runtime"
            }
            Absence::Api | Absence::Denied => match request.refusal() {
                Some(text) => {
                    return format!("the API server refuses to delete it ({text})").into();
                }
                None if self.outage.fails() => "the API server is unavailable",
                None if request.now().accepted.is_some() => {
                    "the API server accepted its deletion and did not show it in time"
                }
                None => "the API server did not accept its deletion in time",
            },
        };
        why.into()
    }

    /// Stops the containers of a pod that the kubelet does not end. Returns whether the container runtime did.
    async fn stop_instead(
        &self,
        pod: &Pod,
        runtime_uid: &PodUid,
        grace: &Grace,
        why: &str,
        request: &StopRequest,
    ) -> bool {
        tracing::warn!(pod = %pod.pod_ref(), "{why}: its containers are stopped through the runtime");
        request.stopping();
        let is_first = request.instead();
        if is_first {
            request.remark(format!(
                "{why}: its containers were stopped through the container runtime"
            ));
        }
        let is_told = !runs_hooks(request.now().accepted, self.kubelet.held_at());
        let with_hook: Vec<_> = facts::with_pre_stop(pod).collect();
        let is_concerned = !request.now().is_instead && !with_hook.is_empty();
        let hooks = is_concerned && !grace.remaining().is_zero() && !is_told;
        request.runs_hooks(hooks && !self.kubelet.is_held());
        let stopped = self.stop_within(pod, runtime_uid, grace, hooks).await;
        request.runs_hooks(false);
        if let Ok(stopped) = &stopped {
            request.stopped_instead();
            request.remark_stopped(stopped);
            let is_cut = self.kubelet.is_held() || request.now().is_untold;
            if is_concerned && is_told && stopped.ran && is_cut {
                let names = with_hook.join(", ");
                request.remark(format!("the preStop hook of {names} may have been cut short"));
            }
        }
        if let Err(error) = &stopped {
            tracing::warn!(pod = %pod.pod_ref(), "cannot stop the pod's containers: {error}");
        }
        stopped.is_ok()
    }

    /// Stops containers through the runtime, with a new request whenever the grace period is shortened. `runs_hooks`:
    /// whether their preStop hooks run before; then the new request comes when just the time for the stop signal is left.
    pub(super) async fn stop_within(
        &self,
        pod: &Pod,
        runtime_uid: &PodUid,
        grace: &Grace,
        mut runs_hooks: bool,
    ) -> Result<StoppedContainers, NodeError> {
        let mut grace = grace.clone();
        loop {
            let (end, left) = (grace.kill_at(), grace.remaining().max(Grace::SHORTEST));
            let stop = ContainerStop { grace: left, runs_hooks, sidecars: facts::sidecars(pod) };
            tokio::select! {
                stopped = self.node.stop(runtime_uid, &stop) => return stopped,
                () = is_to_be_asked_again(&mut grace, end, runs_hooks) => runs_hooks = false,
            }
        }
    }
}

/// Resolves when the grace period is shorter than until `end`, and containers that were asked to stop until then are to
/// be asked again: at once, or if their hooks run, when just the time for the stop signal is left. Cancel-safe.
async fn is_to_be_asked_again(grace: &mut Grace, end: Instant, runs_hooks: bool) {
    loop {
        let (new_end, now) = (grace.kill_at(), Instant::now());
        let last_call = new_end.checked_sub(Grace::SHORTEST).filter(|_| runs_hooks).unwrap_or(now);
        tokio::select! {
            () = sleep_until(last_call), if new_end < end => return,
            () = grace.changed() => {}
        }
    }
}
