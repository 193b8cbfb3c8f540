//! The tasks: one per pod that has something to do, and the timer that wakes them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use futures_util::future::{Either, OptionFuture};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::WorkersShared;
use super::state::{PodWork, StepOutcome};
use crate::base::critical::panic_text;
use crate::event::{Recorder, contained};
use crate::workers::syncer::{PodSyncer, Stop, SyncError, SyncUpdate, Synced};
use crate::{
    Event, Grace, KillReason, Pod, PodRef, PodStopped, PodUid, Retry, RuntimePod, error_chain,
};

/// Carries out the steps of one pod until there is nothing to do. Not an `async fn`, which would store its arguments twice.
///
/// Not boxed: a second block of memory that one thread takes and another releases costs more than to move this one, as both
/// wait for the allocator's lock.
pub(super) fn run<S: PodSyncer>(
    inner: Arc<WorkersShared<S>>,
    uid: PodUid,
    generation: u64,
) -> impl Future<Output = ()> + Send {
    let running = inner.tasks.subscribe();
    async move {
        let _running = &running;
        let now = Instant::now();
        let mut work = inner.state.lock().next_work(&uid, generation, now);
        loop {
            let step = std::pin::pin!(OptionFuture::from(begin(&inner, work)));
            let done = tokio::select! {
                biased;
                // Polled first, so that a step that completes at once does not register with the other branch.
                done = step => done,
                () = inner.root.cancelled() => return,
            };
            let Some(done) = done else { return };
            let stopped =
                matches!(done.outcome, StepOutcome::Stopped(_) | StepOutcome::RuntimePodStopped(_));
            let ended = stopped || matches!(done.outcome, StepOutcome::Finished);
            let now = Instant::now();
            let followup =
                inner.state.lock().advance(&uid, generation, done.outcome, inner.resync, now);
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
                contained(&uid, || inner.observer.step_ended(operation, took));
            }
            if let Some((pod, of_stop, error)) = done.failure.map(|failure| *failure) {
                let again_in = followup.again_in;
                inner.recorder.record(&Event::SyncFailed { pod, of_stop, error, again_in });
            }
            work = followup.work;
        }
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

/// The result of a step that was carried out, and which pod's failed, whether that was a stop, and why.
struct Done {
    outcome: StepOutcome,
    failure: Option<Box<(PodRef, bool, String)>>,
}

/// Begins a step, if there is one and the workers are not shut down: one that completes at once would not notice that later.
///
/// Not an `async fn`, nor is what it calls where that is possible: each would store the step once more, and the memory of
/// its task is most of what a step costs beside its work.
fn begin<S: PodSyncer>(
    inner: &WorkersShared<S>,
    work: Option<PodWork>,
) -> Option<impl Future<Output = Done> + Send> {
    Some(match work.filter(|_| !inner.shut_down.load(Ordering::Relaxed))? {
        PodWork::Sync { update, cancel, waited } => {
            if let Some(waited) = waited {
                let pod = &update.pod;
                contained(pod.pod_ref(), || inner.observer.pod_started(pod, waited));
            }
            Either::Left(Either::Left(sync(&inner.syncer, update, cancel)))
        }
        PodWork::Terminate { pod, stop, since } => {
            Either::Left(Either::Right(terminate(inner, pod, stop, since)))
        }
        PodWork::TerminateRuntime { pod, grace, since } => {
            Either::Right(Either::Left(terminate_runtime(inner, *pod, grace, since)))
        }
        PodWork::Finish { pod } => Either::Right(Either::Right(finish(&inner.syncer, pod))),
    })
}

async fn sync<S: PodSyncer>(syncer: &S, update: SyncUpdate, cancel: Arc<Notify>) -> Done {
    let pod = update.pod.clone();
    let result = tokio::select! {
        biased;
        result = caught(syncer.sync_pod(update)) => result,
        // The pod has to terminate: the next step stops whatever this one has started.
        () = cancel.notified() => return StepOutcome::Interrupted.into(),
    };
    match result {
        Ok(Synced { terminal: true, ended, .. }) => StepOutcome::Completed(ended).into(),
        Ok(Synced { again_in, .. }) => StepOutcome::Synced { again_in }.into(),
        Err(error) => Done::failed(pod.pod_ref().clone(), false, &error),
    }
}

fn terminate<S: PodSyncer>(
    inner: &WorkersShared<S>,
    pod: Pod,
    stop: Stop,
    since: Option<Instant>,
) -> impl Future<Output = Done> + Send {
    let (label, reason) = (pod.clone(), stop.until.reason());
    caught(inner.syncer.sync_terminating_pod(pod, stop)).map(move |result| {
        let ask = |reason| inner.syncer.refuses_stop(label.uid(), reason);
        let refuses = |reason| contained(label.pod_ref(), || ask(reason)).flatten();
        match result {
            Ok(stopped) => {
                inner.record_stop(label.pod_ref(), reason, &stopped, since);
                StepOutcome::Stopped(Arc::new(stopped)).into()
            }
            // It may be refused by now: a shutdown was called off. Another attempt would fail like this one.
            Err(error) => match reason.and_then(refuses) {
                Some(why) => {
                    tracing::info!(pod = %label.pod_ref(), "termination abandoned: {why}");
                    StepOutcome::Refused(why).into()
                }
                None => Done::failed(label.pod_ref().clone(), true, &error),
            },
        }
    })
}

fn terminate_runtime<S: PodSyncer>(
    inner: &WorkersShared<S>,
    pod: RuntimePod,
    grace: Grace,
    since: Option<Instant>,
) -> impl Future<Output = Done> + Send {
    let (label, reason) = (pod.pod_ref(), grace.reason());
    caught(inner.syncer.sync_terminating_runtime_pod(pod, grace)).map(move |result| match result {
        Ok(stopped) => {
            inner.record_stop(&label, reason, &stopped, since);
            StepOutcome::RuntimePodStopped(Arc::new(stopped)).into()
        }
        Err(error) => Done::failed(label, true, &error),
    })
}

fn finish<S: PodSyncer>(syncer: &S, pod: Pod) -> impl Future<Output = Done> + Send {
    let label = pod.clone();
    caught(syncer.sync_terminated_pod(pod)).map(move |result| match result {
        Ok(()) => StepOutcome::Finished.into(),
        Err(error) => Done::failed(label.pod_ref().clone(), false, &error),
    })
}

impl<S> WorkersShared<S> {
    /// Records that a pod which was asked to terminate `since`, or has completed then, has terminated. Those that wait for
    /// that are notified later, and must find it recorded.
    fn record_stop(
        &self,
        pod: &PodRef,
        by: Option<KillReason>,
        stopped: &PodStopped,
        since: Option<Instant>,
    ) {
        let Some(since) = since else { return };
        let forced = stopped.containers.iter().filter(|c| c.forced).map(|c| c.name.clone());
        let (forced, took, remark) = (forced.collect(), since.elapsed(), stopped.remark.clone());
        self.recorder.record(&Event::PodStopped { pod: pod.clone(), by, took, forced, remark });
    }
}

impl From<StepOutcome> for Done {
    fn from(outcome: StepOutcome) -> Self {
        Self { outcome, failure: None }
    }
}

impl Done {
    fn failed(pod: PodRef, of_stop: bool, error: &SyncError) -> Self {
        let retry = if of_stop { Retry::STOP } else { error.retry };
        let failure = Some(Box::new((pod, of_stop, error_chain(error))));
        Self { outcome: StepOutcome::Failed(retry), failure }
    }
}

/// Turns a panic in one pod's step into a failure of that step. An `async fn` would store the step twice.
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
