//! The tasks: one per pod that has something to do, and the timer that wakes them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::WorkersShared;
use super::state::{PodWork, StepOutcome};
use crate::base::critical::panic_text;
use crate::workers::syncer::{PodSyncer, Stop, SyncError, SyncUpdate, Synced};
use crate::{Event, Grace, Pod, PodRef, PodStopped, PodUid, Retry, RuntimePod, error_chain};

/// Carries out the steps of one pod until there is nothing to do.
pub(super) async fn run<S: PodSyncer>(inner: Arc<WorkersShared<S>>, uid: PodUid, generation: u64) {
    let mut work = inner.state.lock().next_work(&uid, generation, Instant::now());
    while let Some(step) = work {
        // Checked here too: a step that completes at once would never reach the check below.
        if inner.shut_down.load(Ordering::Relaxed) {
            return;
        }
        if let PodWork::Sync { update, waited: Some(waited), .. } = &step {
            inner.observer.pod_started(&update.pod, *waited);
        }
        let done = tokio::select! {
            biased;
            // Polled first, so that a step that completes at once does not register with the other branch.
            done = carry_out(&inner.syncer, step) => done,
            () = inner.root.cancelled() => return,
        };
        let stopped =
            matches!(done.outcome, StepOutcome::Stopped(_) | StepOutcome::RuntimePodStopped(_));
        let ended = stopped || matches!(done.outcome, StepOutcome::Finished);
        // Waiters for the termination are notified by `advance` below, and must find it recorded.
        if let Some(StepReport::Event(event)) = &done.told {
            inner.recorder.record(event);
        }
        let followup = {
            let mut state = inner.state.lock();
            state.advance(&uid, generation, done.outcome, inner.resync, Instant::now())
        };
        if followup.earlier {
            inner.timer.notify_one();
        }
        inner.spawn(followup.wake);
        if followup.settled {
            inner.settled.notify_one();
        }
        if stopped {
            inner.left.notify_one();
        }
        if ended {
            inner.ends.send_modify(|n| *n += 1);
        }
        if let Some((operation, took)) = followup.answered {
            inner.observer.step_ended(operation, took);
        }
        if let Some(StepReport::Failure { pod, error }) = done.told {
            let again_in = followup.again_in;
            inner.recorder.record(&Event::SyncFailed { pod, error, again_in });
        }
        work = followup.work;
    }
}

/// Wakes pods when they are due: one timer for all of them, set to the earliest one only.
pub(super) async fn run_timer<S: PodSyncer>(inner: Arc<WorkersShared<S>>) {
    loop {
        let (next, wakes) = {
            let mut state = inner.state.lock();
            let wakes = state.due(Instant::now());
            (state.next_due(), wakes)
        };
        for wake in wakes {
            inner.spawn(Some(wake));
        }
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = inner.root.cancelled() => return,
            () = inner.timer.notified() => {}
            () = due => {}
        }
    }
}

/// The result of a step that was carried out.
struct Done {
    outcome: StepOutcome,
    told: Option<StepReport>,
}

/// What a step reports to others.
enum StepReport {
    Event(Event),
    /// Completed with the retry delay once that is known.
    Failure {
        pod: PodRef,
        error: String,
    },
}

async fn carry_out<S: PodSyncer>(syncer: &S, work: PodWork) -> Done {
    match work {
        PodWork::Sync { update, cancel, .. } => sync(syncer, update, &cancel).await,
        PodWork::Terminate { pod, stop, since } => terminate(syncer, pod, stop, since).await,
        PodWork::TerminateRuntime { pod, grace, since } => {
            terminate_runtime(syncer, (pod, grace, since)).await
        }
        PodWork::Finish { pod } => finish(syncer, pod).await,
    }
}

async fn sync<S: PodSyncer>(syncer: &S, update: SyncUpdate, cancel: &Notify) -> Done {
    let pod = update.pod.clone();
    let result = tokio::select! {
        biased;
        result = caught(syncer.sync_pod(update)) => result,
        // The pod has to terminate: the next step stops whatever this one has started.
        () = cancel.notified() => return Done::quiet(StepOutcome::Interrupted),
    };
    match result {
        Ok(Synced { terminal: true, ended, .. }) => Done::quiet(StepOutcome::Completed(ended)),
        Ok(Synced { again_in, .. }) => Done::quiet(StepOutcome::Synced { again_in }),
        Err(error) => Done::failed(pod.pod_ref().clone(), &error, error.retry),
    }
}

async fn terminate<S: PodSyncer>(syncer: &S, pod: Pod, stop: Stop, since: Option<Instant>) -> Done {
    let (label, reason) = (pod.pod_ref().clone(), stop.until.reason());
    match caught(syncer.sync_terminating_pod(pod, stop)).await {
        Ok(stopped) => {
            let told = since.map(|since| StepReport::of_stop(label, &stopped, since));
            Done { outcome: StepOutcome::Stopped(Arc::new(stopped)), told }
        }
        // It may be refused by now: a shutdown was called off. Another attempt would fail like this one.
        Err(error) => match reason.and_then(|reason| syncer.refuses_stop(&label.uid, reason)) {
            Some(why) => {
                tracing::info!(pod = %label, "termination abandoned: {why}");
                Done::quiet(StepOutcome::Refused(why))
            }
            None => Done::failed(label, &error, Retry::STOP),
        },
    }
}

async fn terminate_runtime<S: PodSyncer>(
    syncer: &S,
    (pod, grace, since): (RuntimePod, Grace, Option<Instant>),
) -> Done {
    let label = pod.pod_ref();
    match caught(syncer.sync_terminating_runtime_pod(pod, grace)).await {
        Ok(stopped) => {
            let told = since.map(|since| StepReport::of_stop(label, &stopped, since));
            Done { outcome: StepOutcome::RuntimePodStopped(Arc::new(stopped)), told }
        }
        Err(error) => Done::failed(label, &error, Retry::STOP),
    }
}

async fn finish<S: PodSyncer>(syncer: &S, pod: Pod) -> Done {
    let label = pod.pod_ref().clone();
    match caught(syncer.sync_terminated_pod(pod)).await {
        Ok(()) => Done::quiet(StepOutcome::Finished),
        Err(error) => Done::failed(label, &error, error.retry),
    }
}

impl StepReport {
    fn of_stop(pod: PodRef, stopped: &PodStopped, since: Instant) -> Self {
        let forced = stopped.containers.iter().filter(|c| c.forced);
        let forced = forced.map(|c| c.name.clone()).collect();
        let (took, remark) = (since.elapsed(), stopped.remark.clone());
        Self::Event(Event::PodStopped { pod, took, forced, remark })
    }
}

impl Done {
    fn quiet(outcome: StepOutcome) -> Self {
        Self { outcome, told: None }
    }

    fn failed(pod: PodRef, error: &SyncError, retry: Retry) -> Self {
        let told = StepReport::Failure { pod, error: error_chain(error) };
        Self { outcome: StepOutcome::Failed(retry), told: Some(told) }
    }
}

/// Turns a panic in one pod's step into a failure of that step only. Not an `async fn`, which would
/// store the step twice.
fn caught<T>(
    step: impl Future<Output = Result<T, SyncError>>,
) -> impl Future<Output = Result<T, SyncError>> {
    AssertUnwindSafe(step).catch_unwind().map(|result| {
        result.unwrap_or_else(|panic| {
            let text = panic_text(panic.as_ref());
            Err(SyncError::new(format!("the step panicked, which is a bug: {text}")))
        })
    })
}
