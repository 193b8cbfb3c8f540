//! The fallback for when the run itself is broken: stops all pods at once, without a plan or an order.
//!
//! A bug that occurs at each attempt would keep every agent from stopping any pod. So this shares no code
//! with the planner and the run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::critical::panic_text;
use winddown_shared::{KillRequest, Pod};

use super::signals::SignalState;
use super::{ShutdownController, Transition};
use crate::EndingPods;
use crate::budget::whole_seconds;
use crate::run_context::RunContext;
use crate::{Budget, GroupReport, PodEnd, PodReport, RunOrder};

impl<K: EndingPods> ShutdownController<K> {
    /// Requests all running pods to stop, and waits until they have stopped, the time is over, or `cancel` is
    /// cancelled. Pods that become known in the meantime are included. Also returns whether all pods are known.
    pub(super) async fn end_all(
        &self,
        order: RunOrder,
        mut context: watch::Receiver<RunContext>,
        cancel: &CancellationToken,
    ) -> (GroupReport, bool) {
        let (started, budget) = (order.started, context.borrow().budget);
        let begun = started.elapsed();
        let mut more = self.parts.killer.more_known();
        let mut reports: Vec<PodReport> = Vec::new();
        let mut kills = FuturesUnordered::new();
        let known = loop {
            let running = self.parts.killer.running();
            let known = running.known;
            if cancel.is_cancelled() {
                break known;
            }
            for pod in running.into_pods() {
                if reports.iter().any(|report| report.uid == pod.uid().as_str()) {
                    continue;
                }
                let (at, report) = (reports.len(), asked(&pod, started, budget));
                let request = KillRequest::new(order.reason)
                    .with_grace(Some(report.grace))
                    .with_deadline(started.checked_add(budget.kills_until()))
                    .with_status(order.status.clone());
                reports.push(report);
                let kill = self.end_one(pod, request);
                kills.push(async move { (at, kill.await) });
            }
            // A kill is only requested when it is first polled, so poll all of them, even if it is late.
            while let Some(Some((at, ended))) = kills.next().now_or_never() {
                note(&mut reports[at], ended, started);
            }
            if known && kills.is_empty() {
                break true;
            }
            let until = started + context.borrow_and_update().budget.abandon_at();
            if Instant::now() >= until {
                break known;
            }
            tokio::select! {
                biased;
                Some((at, ended)) = kills.next() => note(&mut reports[at], ended, started),
                () = cancel.cancelled() => {}
                Ok(()) = more.changed() => {}
                // The time may have been shortened.
                Ok(()) = context.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        };
        if cancel.is_cancelled() {
            let ending = reports.iter_mut().filter(|report| report.end == PodEnd::StillRunning);
            ending.for_each(|report| report.end = PodEnd::Terminating);
        }
        (all_pods(budget, (begun, started.elapsed()), reports), known)
    }

    /// Stops one pod. Returns how and when it ended, or why that was not seen.
    async fn end_one(&self, pod: Pod, request: KillRequest) -> Result<(PodEnd, Instant), String> {
        let kill = AssertUnwindSafe(self.parts.killer.kill_pod(pod, request)).catch_unwind();
        match kill.await {
            Ok(Ok(stopped)) => {
                Ok((PodEnd::of(&stopped), stopped.stopped_at.unwrap_or_else(Instant::now)))
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(panic) => {
                Err(format!("the attempt to terminate it panicked: {}", panic_text(&*panic)))
            }
        }
    }

    /// Handles a panic that the run did not survive: without a report or a record, only the pods and the
    /// lock. Releases the lock when the pods are gone or their time is over, if all pods are known. Where shutdowns stop
    /// no pods and none is under way, there is nothing to ask, and the next agent releases the lock. Resumes the
    /// same panic afterwards: what happens then is up to the owner of the process.
    pub(super) async fn last_resort(
        &self,
        signal: &SignalState,
        panic: Box<dyn Any + Send>,
    ) -> Transition {
        let why = panic_text(panic.as_ref());
        tracing::error!(why, "the shutdown controller panicked");
        let policy = self.policy_in_force();
        if signal.ends_the_node() && policy.is_enabled() {
            let work = async {
                let started = signal.since(Instant::now());
                let context = signal.context(&policy, started);
                let order = self.order(self.parts.trigger, started, context.budget);
                let context = watch::Sender::new(context).subscribe();
                let (_, known) = self.end_all(order, context, &CancellationToken::new()).await;
                // If not all pods are known yet, keep the lock: the next agent may still find some.
                if signal.login.preparing && known {
                    self.parts.inhibitor.release().await;
                }
            };
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!("this agent cannot terminate the pods; keeping the lock");
            }
        }
        resume_unwind(panic)
    }
}

/// The group of all pods. `begun` and `ended` count from the start of the shutdown.
fn all_pods(
    budget: Budget,
    (begun, ended): (Duration, Duration),
    pods: Vec<PodReport>,
) -> GroupReport {
    GroupReport {
        priority: 0,
        name: Some("all pods".to_owned()),
        configured: budget.requested,
        allowed: budget.pods,
        latest_end: budget.pods,
        started: Some(begun),
        ended: Some(ended),
        pods,
    }
}

/// Creates the report of a pod that is requested to stop with its own grace period, within the time left.
fn asked(pod: &Pod, started: Instant, budget: Budget) -> PodReport {
    let left = whole_seconds(budget.pods.saturating_sub(started.elapsed()));
    let left = left.max(Duration::from_secs(1));
    let wanted = pod.termination_grace_period();
    let mut report = PodReport::spared(pod, wanted.map_or(left, |own| own.min(left)));
    report.wanted_grace = wanted.filter(|own| *own > left);
    report.asked = Some(started.elapsed());
    report.end = PodEnd::StillRunning;
    report
}

fn note(report: &mut PodReport, ended: Result<(PodEnd, Instant), String>, started: Instant) {
    match ended {
        Ok((end, at)) => {
            report.end = end;
            report.exit = Some(at.saturating_duration_since(started));
        }
        Err(why) => report.error = Some(why),
    }
}
