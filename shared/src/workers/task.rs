//! The tasks: one per pod that has something to do, and the timer that wakes them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Inner;
use super::state::{Wake, Work};
use crate::syncer::{PodSyncer, Retry, Stop, SyncError, SyncUpdate, Synced};
use crate::{Event, Grace, Pod, PodLabel, PodUid, RuntimePod};

/// Carries out the steps of one pod until there is nothing to do.
pub(super) async fn run<S: PodSyncer>(inner: Arc<Inner<S>>, uid: PodUid, generation: u64) {
    let task = Task { inner: &inner, uid: &uid, generation };
    loop {
        let work = inner.lock().next_work(&uid, generation, Instant::now());
        let Some(work) = work else { return };
        tokio::select! {
            biased;
            () = inner.root.cancelled() => return,
            () = task.carry_out(work) => {}
        }
    }
}

/// Wakes pods when they are due: one timer for all of them, set to the next one only.
pub(super) async fn run_timer<S: PodSyncer>(inner: Arc<Inner<S>>) {
    loop {
        let (next, wakes) = {
            let mut state = inner.lock();
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

struct Task<'a, S> {
    inner: &'a Arc<Inner<S>>,
    uid: &'a PodUid,
    generation: u64,
}

// === impl Task ===

impl<S: PodSyncer> Task<'_, S> {
    async fn carry_out(&self, work: Work) {
        match work {
            Work::Sync { update, cancel } => self.sync(update, cancel).await,
            Work::Terminate { pod, stop, since } => self.terminate(pod, stop, since).await,
            Work::TerminateRuntime { pod, grace } => self.terminate_runtime(pod, grace).await,
            Work::Finish { pod } => self.finish(pod).await,
        }
    }

    async fn sync(&self, update: SyncUpdate, cancel: CancellationToken) {
        let label = update.pod.label().clone();
        let call = caught(self.inner.syncer.sync_pod(update));
        let result = tokio::select! {
            biased;
            // The pod has to end: the next step stops whatever this one had started.
            () = cancel.cancelled() => return,
            result = call => result,
        };
        let now = Instant::now();
        match result {
            Ok(Synced { terminal: true, .. }) => {
                self.inner.lock().completed(self.uid, self.generation, now);
            }
            Ok(Synced { again_in, .. }) => {
                let resync = jittered(self.inner.times.resync);
                let wait = again_in.map_or(resync, |d| d.min(resync));
                if self.inner.lock().synced(self.uid, self.generation, now.checked_add(wait)) {
                    self.inner.timer.notify_one();
                }
            }
            Err(error) => self.failed(label, &error),
        }
    }

    async fn terminate(&self, pod: Pod, stop: Stop, since: Instant) {
        let label = pod.label().clone();
        match caught(self.inner.syncer.sync_terminating_pod(pod, stop)).await {
            Ok(stopped) => {
                let forced = stopped.containers.iter().filter(|c| c.forced);
                let event = Event::PodStopped {
                    pod: label,
                    took: since.elapsed(),
                    forced: forced.map(|c| c.name.clone()).collect(),
                };
                self.inner.lock().stopped(self.uid, self.generation, Arc::new(stopped));
                self.inner.recorder.record(&event);
            }
            Err(error) => self.failed(label, &error),
        }
    }

    async fn terminate_runtime(&self, pod: RuntimePod, grace: Grace) {
        let label = PodLabel {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        };
        match caught(self.inner.syncer.sync_terminating_runtime_pod(pod, grace)).await {
            Ok(stopped) => {
                let stopped = Arc::new(stopped);
                let wake: Option<Wake> =
                    self.inner.lock().runtime_pod_stopped(self.uid, self.generation, stopped);
                self.inner.spawn(wake);
            }
            Err(error) => self.failed(label, &error),
        }
    }

    async fn finish(&self, pod: Pod) {
        let label = pod.label().clone();
        match caught(self.inner.syncer.sync_terminated_pod(pod)).await {
            Ok(()) => {
                let wake = self.inner.lock().finished(self.uid, self.generation);
                self.inner.spawn(wake);
            }
            Err(error) => self.failed(label, &error),
        }
    }

    fn failed(&self, pod: PodLabel, error: &SyncError) {
        let now = Instant::now();
        let (again_in, earlier) = {
            let mut state = self.inner.lock();
            let again_in = self.retry_in(error, state.failures(self.uid));
            let at = now.checked_add(again_in).unwrap_or(now);
            (again_in, state.failed(self.uid, self.generation, at))
        };
        if earlier {
            self.inner.timer.notify_one();
        }
        self.inner.recorder.record(&Event::SyncFailed { pod, error: error.chain(), again_in });
    }

    fn retry_in(&self, error: &SyncError, failures: u32) -> Duration {
        let times = &self.inner.times;
        match error.retry {
            Retry::Transient => jittered(times.retry_transient),
            Retry::After(wait) => wait.min(times.resync),
            Retry::Backoff => {
                let doubled = times.retry_first.saturating_mul(1 << failures.min(16));
                jittered(doubled.min(times.retry_most))
            }
        }
    }
}

/// A panic in one pod's step is that pod's failed step, and nothing else.
async fn caught<T>(step: impl Future<Output = Result<T, SyncError>>) -> Result<T, SyncError> {
    match AssertUnwindSafe(step).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(ToString::to_string)
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            Err(SyncError::new(format!("the step panicked, which is a bug: {text}")))
        }
    }
}

/// `base` and up to half as much again, so that pods that failed together do not return together.
fn jittered(base: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = u32::try_from(RandomState::new().hash_one(0) & 0xffff).unwrap_or(0);
    base.saturating_add(base.mul_f64(f64::from(random) / f64::from(0x1_0000) / 2.0))
}
