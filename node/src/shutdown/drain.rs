//! Drains: ends all pods while the node stays up.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use futures_util::future::maybe_done;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use winddown_notices::{Drain, OperatorSource, OperatorSubject};
use winddown_shared::{
    BootClock, Event, GateReason, KillReason, Lifecycle, Mutex, NodeEndListener, PodKiller,
    PodSnapshot, RequestReport, Runtime, critical,
};
use winddown_shutdown::{
    DrainOrder, Outcome, PodEnd, PodReport, ProgressPhase, ProgressSender, RecordStore,
    ReportStore, RunRecord, ShutdownReport,
};

use super::Joined;
use crate::links::Draining;
use winddown_control::ApiError;
use winddown_control::api::{self, DrainEvent, DrainStatus, ErrorCode};

/// How long the end of a drain waits for its run, which may be waiting for a disk.
const STOPPED_WITHIN: Duration = Duration::from_secs(5);

/// How long the end of a drain waits for its report on disk.
const REPORT_WITHIN: Duration = Duration::from_secs(2);

pub(super) struct OperatorDrain {
    /// Allows one at a time.
    turn: Arc<Semaphore>,
    pub(super) state: watch::Sender<Draining<DrainRun>>,
    /// Where the record of its run is kept.
    records: Vec<Arc<dyn RecordStore>>,
    /// The run of this boot that an earlier agent was in the middle of, or has not reported, until this one does.
    carried: Mutex<Option<RunRecord>>,
}

#[derive(Clone, Default)]
pub(super) struct DrainRun {
    /// Spares the pods that have not been asked to end.
    cancel: CancellationToken,
    progress: ProgressSender,
}

// === impl OperatorDrain ===

impl OperatorDrain {
    /// Finds how far the drain has come that an earlier agent of this boot has not finished or reported. Blocks on the disk.
    pub(super) fn of_boot(
        records: Vec<Arc<dyn RecordStore>>,
        boot: (&str, &BootClock),
        operator: &OperatorSource,
        reports: &ReportStore,
    ) -> Self {
        let goes_on = operator.earlier_drain().and_then(|d| (!d.is_over).then_some(d.begun));
        let carried = RunRecord::of_drain(&records, boot, goes_on, reports);
        let (turn, state) = (Arc::new(Semaphore::new(1)), watch::Sender::default());
        Self { turn, state, records, carried: Mutex::new(carried) }
    }
}

impl<R: Runtime> Joined<R> {
    /// Closes admission and starts a drain that may take `time`, as a task of its own: it continues
    /// without its caller, until [`end_drain`](Self::end_drain) calls it off.
    pub(super) fn start_drain(
        self: &Arc<Self>,
        time: Option<Duration>,
        requested_by: Option<RequestReport>,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        let begun = self.core.boot_clock.now();
        self.go_on_with(Drain { time, begun, is_over: false, requested_by }, None)
    }

    /// Starts the rest of a drain, of which an earlier agent may have `carried` out a part.
    fn go_on_with(
        self: &Arc<Self>,
        mut drain: Drain,
        carried: Option<RunRecord>,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        if self.progress.subscribe().borrow().phase == ProgressPhase::Ending {
            return Err(ApiError::new(ErrorCode::Conflict, "the node is shutting down already"));
        }
        let Ok(turn) = Arc::clone(&self.drain.turn).try_acquire_owned() else {
            return Err(ApiError::new(ErrorCode::Conflict, "a drain is under way already")
                .with_hint("follow it with `winddown status --watch`"));
        };
        self.core.gate.shut(GateReason::Drain);
        let run = DrainRun::default();
        self.drain.state.send_replace(Draining::InProgress(run.clone()));
        // The next agent may have another policy, but the drain still has the time that it was given.
        drain.time.get_or_insert_with(|| DrainOrder::default_time(&self.policy.borrow()));
        let node = Arc::clone(self);
        let (tx, rx) = mpsc::unbounded_channel();
        critical::spawn("drain", async move {
            node.operator.store_drain(Some(drain.clone())).await;
            let was_warned = node.operator.problem(&[OperatorSubject::Drain]).is_some();
            // An agent that stops leaves the drain to the next one.
            let Some(report) = node.run_drain(&drain, carried, &run, &tx).await else { return };
            // Even if the disk hangs, the drain can be ended, and the caller hears of its end.
            let mut keep = pin!(maybe_done(node.keep(report.clone())));
            if report.outcome == Outcome::Cancelled {
                // Pods that come back do not wait for the disk.
                node.lift_drain().await;
            } else {
                let _ = timeout(REPORT_WITHIN, keep.as_mut()).await;
                node.operator.store_drain(Some(Drain { is_over: true, ..drain })).await;
                node.drain.state.send_replace(Draining::Done);
            }
            drop(turn);
            let _ = timeout(REPORT_WITHIN, keep.as_mut()).await;
            if !was_warned {
                node.warn(OperatorSubject::Drain, &tx);
            }
            // So late that when the caller learns of it, a new agent does not repeat the drain, and it can be ended.
            send_end(&report, &tx);
            keep.await;
        });
        Ok(rx)
    }

    /// Ends the drain: pods come back unless something else keeps them out. A drain in progress is called off, which
    /// spares the pods that it has not asked to end.
    pub(super) async fn end_drain(&self) {
        if let Draining::InProgress(run) = &*self.drain.state.borrow() {
            run.cancel.cancel();
        }
        let Ok(Ok(_turn)) = timeout(STOPPED_WITHIN, self.drain.turn.acquire()).await else {
            return;
        };
        if self.core.gate.reasons().contains(GateReason::Drain) {
            let carried = self.drain.carried.lock().take();
            self.lift_drain().await;
            if let Some(record) = carried {
                let report = record.report_of_drain(&self.core.boot_clock, &self.core.wall);
                let _ = timeout(REPORT_WITHIN, self.keep(report)).await;
            }
        } else {
            // The disk may not have taken the end of an earlier one.
            self.operator.store_drain(None).await;
        }
    }

    /// Ends the drain on disk first, so that no agent that starts meanwhile resumes it.
    async fn lift_drain(&self) {
        self.operator.store_drain(None).await;
        self.drain.state.send_replace(Draining::No);
        self.core.workers.lame_duck(GateReason::Drain, false);
        self.core.gate.lift(GateReason::Drain);
    }

    /// Keeps the node drained if an earlier agent of this boot has drained it.
    pub(super) fn keep_drained(&self) {
        if let Some(drain) = self.operator.earlier_drain() {
            tracing::info!("the node is drained: no pod is admitted until `winddown undrain`");
            self.core.gate.shut(GateReason::Drain);
            self.core.workers.lame_duck(GateReason::Drain, true);
            self.drain.state.send_replace(match drain.is_over {
                true => Draining::Done,
                false => Draining::InProgress(DrainRun::default()),
            });
        }
    }

    /// Resumes the drain that an earlier agent of this boot has not finished, for the rest of its time, or reports it.
    pub(super) fn go_on_draining(self: &Arc<Self>) {
        let carried = self.drain.carried.lock().take();
        if let Some(drain) = self.operator.earlier_drain().filter(|drain| !drain.is_over)
            && self.core.gate.reasons().contains(GateReason::Drain)
        {
            if let Err(error) = self.go_on_with(drain, carried) {
                tracing::info!("cannot continue the drain that an earlier agent began: {error}");
            }
        } else if let Some(run) = carried {
            let report = run.report_of_drain(&self.core.boot_clock, &self.core.wall);
            let node = Arc::clone(self);
            critical::spawn("report of a drain", async move { node.keep(report).await });
        }
    }

    /// The drain in progress, or one whose time was over before all pods had terminated, if there is one.
    pub(super) fn drain_status(&self) -> Option<DrainStatus> {
        let (running, pods_unknown) = self.left();
        let state = self.drain.state.borrow();
        let run = match &*state {
            Draining::No => return None,
            Draining::InProgress(run) => run,
            Draining::Done => {
                let pods = self.core.workers.snapshot();
                let ends = |pod: &&PodSnapshot| pod.lifecycle == Lifecycle::Terminating;
                let pods_remaining = pods.iter().filter(ends).count();
                let progress =
                    api::ShutdownProgress { phase: api::Phase::Done, ..Default::default() };
                let is_left = pods_remaining > 0 || pods_unknown;
                return is_left.then_some(DrainStatus { pods_remaining, pods_unknown, progress });
            }
        };
        let progress = run.progress.subscribe().borrow().clone();
        let failed: usize = progress.groups.iter().map(|group| group.failed).sum();
        let pods_remaining = running.saturating_sub(failed);
        Some(DrainStatus { pods_remaining, pods_unknown, progress: self.progress_of(&progress) })
    }

    /// Returns `None` if the agent stops meanwhile.
    async fn run_drain(
        &self,
        drain: &Drain,
        carried: Option<RunRecord>,
        run: &DrainRun,
        events: &mpsc::UnboundedSender<DrainEvent>,
    ) -> Option<ShutdownReport> {
        let tell = Arc::new(Tell {
            happened: Mutex::new(self.core.recorders.decisions.listen()),
            events: events.clone(),
        });
        let order = DrainOrder {
            policy: Arc::clone(&self.policy.borrow()),
            time: drain.time,
            requested_by: drain.requested_by.clone(),
            recorder: self.core.recorder(),
            progress: run.progress.clone(),
            clock: self.core.wall.clone(),
            boot_clock: self.core.boot_clock.clone(),
            boot_id: self.core.identity.boot_id.clone(),
            records: self.drain.records.clone(),
            carried,
        };
        let running = self.core.workers.running();
        let (pods_unknown, pods) = (!running.known, running.into_pods());
        let planned = order.plan(&pods);
        // A missing listener is fine: the drain continues.
        let _ = events.send(DrainEvent::Started {
            groups: planned.groups.iter().filter(|g| !g.pods.is_empty()).count(),
            pods: planned.pod_count(),
            seconds: planned.deadline.as_secs_f64(),
            pods_unknown,
        });
        self.warn(OperatorSubject::Drain, events);
        let remark = self.offered.get().and_then(|offered| offered.drain_remark);
        let remark = remark.filter(|_| pods.iter().any(|pod| !pod.is_static())).map(str::to_owned);
        let whose_word = self.core.runtime_health().err();
        for message in remark.into_iter().chain(whose_word.clone()) {
            let _ = events.send(DrainEvent::Warning { message });
        }
        let following = tokio::spawn(Arc::clone(&tell).follow());
        let workers = Arc::new(self.core.workers.clone());
        let report = winddown_shutdown::drain(&workers, order, &run.cancel);
        let report = unless_stopped(&self.core.stop, report).await;
        following.abort();
        let mut report = report?;
        report.warnings.extend(whose_word);
        tell.so_far();
        Some(report)
    }

    /// Tells the caller what the next agent will not know.
    pub(super) fn warn(&self, of: OperatorSubject, events: &mpsc::UnboundedSender<DrainEvent>) {
        if let Some(message) = self.operator.problem(&[of]) {
            let _ = events.send(DrainEvent::Warning { message });
        }
    }

    /// Stores the report next to those of shutdowns, or leaves that to later attempts.
    async fn keep(&self, report: ShutdownReport) {
        if let Ok(Err(error)) = self.kept.unstored.store(report).await {
            tracing::error!(
                log_kind = "reportLost",
                error,
                "the report of the drain is lost unless the disk takes it before the node goes down; retrying"
            );
        }
    }
}

/// Carries out a run until the agent stops; `None` then. Workers that stop give up on every pod, and a run that hears of
/// that takes its group for over, and records it for the next agent. So unlike with `run_until_cancelled`, the run is not
/// polled again.
async fn unless_stopped<T>(stop: &CancellationToken, run: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        done = run => Some(done),
    }
}

/// Forwards to the caller what is recorded about the groups of the drain and about pods.
struct Tell {
    /// The events of the whole node. The end of a pod is in it before the end of its group.
    happened: Mutex<mpsc::UnboundedReceiver<Event>>,
    events: mpsc::UnboundedSender<DrainEvent>,
}

impl Tell {
    /// Forwards what happens.
    async fn follow(self: Arc<Self>) {
        poll_fn(|context| {
            let mut happened = self.happened.lock();
            loop {
                match ready!(happened.poll_recv(context)) {
                    Some(event) => self.forward(&event),
                    None => return Poll::Ready(()),
                }
            }
        })
        .await;
    }

    /// Forwards what has happened so far.
    fn so_far(&self) {
        let mut happened = self.happened.lock();
        while let Ok(event) = happened.try_recv() {
            self.forward(&event);
        }
    }

    fn forward(&self, event: &Event) {
        if let Some(told) = drain_event(event, KillReason::Drain) {
            let _ = self.events.send(told);
        }
    }
}

/// Converts an event for an operator who follows the run for the reason `run`: none for the groups of another run, which may
/// be in progress at the same time.
pub(super) fn drain_event(event: &Event, run: KillReason) -> Option<DrainEvent> {
    Some(match event {
        Event::GroupStarted { reason, .. } | Event::GroupFinished { reason, .. }
            if *reason != run =>
        {
            return None;
        }
        Event::GroupStarted { priority, name, pods, allowed, .. } => DrainEvent::GroupStarted {
            priority: *priority,
            name: name.as_deref().map(str::to_owned),
            pods: *pods,
            seconds: allowed.as_secs_f64(),
        },
        Event::GroupFinished { priority, name, took, left, .. } => DrainEvent::GroupFinished {
            priority: *priority,
            name: name.as_deref().map(str::to_owned),
            took_seconds: took.as_secs_f64(),
            still_running: *left,
        },
        Event::PodStopped { pod, took, forced, .. } => DrainEvent::PodTerminated {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            took_seconds: took.as_secs_f64(),
            forced: !forced.is_empty(),
        },
        _ => return None,
    })
}

fn send_end(report: &ShutdownReport, events: &mpsc::UnboundedSender<DrainEvent>) {
    for (_, pod) in report.pods() {
        if let Some(told) = remaining(pod) {
            let _ = events.send(told);
        }
    }
    let _ = events.send(DrainEvent::Finished {
        terminated: report.pods().filter(|(_, pod)| pod.end.has_terminated()).count(),
        forced: report.count(PodEnd::Killed),
        still_running: report.pods().filter(|(_, pod)| pod.end.is_left()).count(),
        took_seconds: report.took.as_secs_f64(),
        pods_unknown: report.pods_unknown,
        cancelled: report.outcome == Outcome::Cancelled,
    });
}

/// The event of a pod that was asked to end and goes on; none for all others.
fn remaining(pod: &PodReport) -> Option<DrainEvent> {
    let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
    let message = pod.error.clone().unwrap_or_default();
    match pod.end {
        PodEnd::StillRunning | PodEnd::Terminating => {
            Some(DrainEvent::PodStillRunning { namespace, name, message })
        }
        PodEnd::NotDrainable => Some(DrainEvent::PodNotDrained { namespace, name, message }),
        PodEnd::Exited
        | PodEnd::NotRunning
        | PodEnd::Killed
        | PodEnd::Gone
        | PodEnd::Spared
        | PodEnd::Survives => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_run_takes_no_further_step_once_the_agent_stops() {
        let (stop, pods_given_up) = (CancellationToken::new(), CancellationToken::new());
        let mut steps = 0;
        let run = async {
            pods_given_up.cancelled().await;
            steps += 1;
        };
        let stopping = async {
            stop.cancel();
            pods_given_up.cancel();
        };
        // Both have happened when the run is polled again.
        let (done, ()) = tokio::join!(unless_stopped(&stop, run), stopping);
        assert_eq!((done, steps), (None, 0));
    }
}
