//! Stops the containers of one pod: through the runtime, and by their processes while it does not answer.
//!
//! A kubelet that comes to stop the pod as well asks the runtime, which sends each container one stop signal. So nothing is
//! signalled past a runtime that answers.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until, timeout};
use winddown_shared::{Grace, PodUid, Retry, RuntimeError, StoppedContainers, error_chain};

use super::super::client::CallError;
use super::super::first_processes::ForeignProcess;
use super::super::foreign_hooks::{self, HookEnd};
use super::super::foreign_pods::may_run;
use super::super::foreign_turns::{self, StopTurn};
use super::super::{api, blocking, caused, failed, labels, pod_groups};
use super::PodContainers;

/// Added to a grace period, whether the runtime or this agent sends SIGKILL: the stop signal takes a moment to reach the
/// container.
const ON_THE_WAY: Duration = Duration::from_millis(250);
/// A runtime that has had a request for so long has sent the stop signal.
const SIGNAL_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a runtime may take to answer that has answered none of the last stops: other pods wait for their turn.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(100);

/// The containers of a pod.
struct KnownContainers {
    containers: Vec<api::Container>,
    /// Whether the runtime has listed them now. Otherwise it did at the last look.
    is_answered: bool,
}

/// How one container is stopped.
#[derive(Clone, Copy)]
struct HowToStop {
    grace: Duration,
    runs_hooks: bool,
    is_answered: bool,
}

impl PodContainers {
    /// Stops the pod's containers, each with SIGKILL when `grace` is over, up to a quarter of a second later, and at least
    /// [`Grace::SHORTEST`] after its stop signal. Resolves when none of them runs.
    ///
    /// * `runs_hooks`: each container's preStop hook, as a kubelet recorded it, runs before its stop signal, within `grace`.
    /// * `sidecars`: these are asked one after the other, each when all other containers and the sidecars before it have
    ///   exited, or when the time for their own end comes. All others are asked at once.
    ///
    /// If the runtime does not answer within a quarter of `grace` and at most two seconds, the containers that ran at the
    /// last [`look`](Self::look) are ended by their first processes, without hooks but those that sleep.
    ///
    /// Dropping the future abandons the wait; hooks and stops continue.
    ///
    /// # Errors
    /// One of the containers could not be stopped; the others are. Or the runtime did not answer, and it is unknown whether
    /// any runs.
    pub async fn stop(
        &self,
        uid: &PodUid,
        grace: Duration,
        runs_hooks: bool,
        sidecars: &[String],
    ) -> Result<StoppedContainers, RuntimeError> {
        let KnownContainers { mut containers, is_answered } = self.known(uid, grace).await?;
        let groups = self.processes.pod_groups(uid, &containers);
        let sandboxes: Vec<Arc<str>> =
            containers.iter().map(|container| (*container.pod_sandbox_id).into()).collect();
        let (ran, without_runtime) = (!containers.is_empty(), !is_answered);
        let mut all = StoppedContainers { ran, without_runtime, ..StoppedContainers::default() };
        containers.retain(|container| is_answered || !self.processes.has_ended(&container.id));
        let turns = foreign_turns::of(containers, sidecars);
        let how = HowToStop { grace, runs_hooks, is_answered };
        let stops = turns.into_iter().map(|(container, turn)| {
            // A call that is dropped may make the runtime forget the kill that was to follow.
            tokio::spawn(self.clone().stop_one(container, turn, how))
        });
        for stopped in join_all(stops).await {
            match stopped {
                Ok(Ok((_, HookEnd::Ran))) => {}
                Ok(Ok((name, HookEnd::DidNotRun))) => all.without_hook.extend(name),
                Ok(Ok((name, HookEnd::BegunBefore))) => all.hook_begun_before.extend(name),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(failed("stopping the pod's containers was cut short")),
            }
        }
        let is_known = is_answered
            || groups.is_empty()
            || blocking(move || Ok(pod_groups::are_empty(&groups, &sandboxes))).await?;
        if is_known { Ok(all) } else { Err(pod_groups::unknown(uid)) }
    }

    /// The pod's containers that run; if the runtime does not answer, those that ran at the last look, if there are any.
    async fn known(&self, uid: &PodUid, grace: Duration) -> Result<KnownContainers, RuntimeError> {
        let mut listed = pin!(self.list(Some(uid)));
        let patience = match self.is_silent.load(Ordering::Relaxed) {
            true => SILENCE_TIMEOUT,
            false => Grace::signal_time(grace),
        };
        let answer = timeout(patience, &mut listed).await;
        let seen = match &answer {
            Ok(Ok(_)) => Vec::new(),
            Ok(Err(_)) | Err(_) => self.processes.of_pod(uid),
        };
        let Some(first) = seen.first() else {
            let all = match answer {
                Ok(answer) => answer?,
                Err(_) => listed.await?,
            };
            let containers = all.into_iter().filter(may_run).collect();
            return Ok(KnownContainers { containers, is_answered: true });
        };
        let (pod, _) = labels::title(&first.labels);
        tracing::warn!(
            pod,
            "the container runtime does not respond: terminating a pod by its known processes"
        );
        self.is_silent.store(true, Ordering::Relaxed);
        Ok(KnownContainers { containers: seen, is_answered: false })
    }

    /// Stops one container when its turn has come. Returns its name, and what its hook has come to, if that was to run.
    async fn stop_one(
        self,
        container: api::Container,
        turn: StopTurn,
        HowToStop { grace, runs_hooks, is_answered }: HowToStop,
    ) -> Result<(Option<String>, HookEnd), RuntimeError> {
        let begun = Instant::now();
        let mut ended = HookEnd::Ran;
        if let Some(hook) = foreign_hooks::of(&container).filter(|_| runs_hooks) {
            let (client, begun_hooks) = (&self.client, &self.begun_hooks);
            ended = match is_answered || hook.sleep.is_some() {
                true => {
                    foreign_hooks::run(client, begun_hooks, &self.program, &container, hook, grace)
                        .await
                }
                false => HookEnd::DidNotRun,
            };
        }
        let last_call = grace.saturating_sub(Grace::signal_time(grace));
        let _ = timeout(last_call.saturating_sub(begun.elapsed()), turn.comes()).await;
        self.processes.hold_mounts(&container.id);
        let process = self.processes.ordinary(&container.id);
        let ends_at = (begun + grace).max(Instant::now() + Grace::SHORTEST);
        match process {
            Some(process) if !is_answered => {
                process.end(ends_at + ON_THE_WAY).await.map_err(not_stopped)?;
            }
            process => self.stop_until(&container.id, process.as_deref(), ends_at).await?,
        }
        Ok((container.labels.get(labels::CONTAINER_NAME).cloned(), ended))
    }

    /// Has the runtime send the stop signal, and SIGKILL soon after `ends_at`. What it fails to do is done without it.
    async fn stop_until(
        &self,
        id: &str,
        process: Option<&ForeignProcess>,
        ends_at: Instant,
    ) -> Result<(), RuntimeError> {
        let (now, kill_at) = (Instant::now(), ends_at + ON_THE_WAY);
        let passed_on = async {
            sleep_until(now + SIGNAL_TIMEOUT).await;
            process.inspect(|process| process.was_asked());
            pending::<Infallible>().await
        };
        let stopped = tokio::select! {
            stopped = self.client.stop_container(id, ends_at - now) => stopped,
            () = sleep_until(kill_at) => self.kill(id, process.is_some()).await,
            never = passed_on => match never {},
        };
        match (stopped, process) {
            (Err(error), Some(process)) => {
                tracing::debug!(
                    id,
                    error = error_chain(&error),
                    "ending a container without the runtime"
                );
                process.end(kill_at).await.map_err(not_stopped)
            }
            (stopped, _) => stopped.map_err(not_stopped),
        }
    }

    /// Has the runtime send SIGKILL. It is not waited for as long if that can be done without it.
    async fn kill(&self, id: &str, is_ordinary: bool) -> Result<(), CallError> {
        let killed = self.client.stop_container(id, Duration::ZERO);
        if !is_ordinary {
            return killed.await;
        }
        let after = Retry::RUNTIME_KILL.within(Retry::KILL_TIMEOUT).next().unwrap_or_default();
        let late = |_| Err(CallError::Timeout { call: "StopContainer", after });
        timeout(after, killed).await.unwrap_or_else(late)
    }
}

fn not_stopped(why: impl std::error::Error + Send + Sync + 'static) -> RuntimeError {
    caused("stopping the pod's containers", why)
}
