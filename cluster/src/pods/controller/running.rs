//! The tasks of a running controller.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use winddown_shared::PodUidMap;

use super::{RunError, RunState};
use crate::pods::parts::Parts;
use crate::pods::queue::WorkerPanicked;
use crate::pods::seams::{Prepare, StatusSide};
use crate::pods::{dangling, removal, report, sync, watch as api_watch};
use crate::provider::Notify;
use winddown_api_client::node_pods::PodApi;

/// How long unwanted pods may delay the controller's readiness.
const SETTLING: Duration = Duration::from_secs(30);

/// The timeout for reading an earlier agent's final statuses.
const RECALLING: Duration = Duration::from_secs(30);

/// The tasks of a controller. One that ends before it is asked to ends them all.
pub(super) struct Running<A, P, S, R> {
    parts: Arc<Parts<A, P, S, R>>,
    tasks: JoinSet<(&'static str, Result<(), WorkerPanicked>)>,
}

impl<A: PodApi, P: Notify, S: StatusSide, R: Prepare> Running<A, P, S, R> {
    /// Starts all tasks in dependency order, and follows them to their end.
    pub(super) async fn start(
        parts: Arc<Parts<A, P, S, R>>,
        state: &watch::Sender<RunState>,
    ) -> Result<(), RunError> {
        let cancel = parts.cancel.clone();
        // Subscribed first, so that no later change is missed.
        let mut running = Self { parts: parts.clone(), tasks: JoinSet::new() };
        running.hear();
        let Some(provided) = parts.what_runs().await else {
            return running.end(Err(RunError::NotSynced)).await;
        };
        for provided in &provided {
            parts.prepare.adopt(&provided.pod);
        }
        parts.known.provided(provided.iter().map(|p| &p.pod), 1);
        drop(provided);
        let (synced, mut is_synced) = watch::channel(false);
        running.spawn("watches the API server's pods", api_watch::follow(parts.clone(), synced));
        let ended = tokio::select! {
            _ = is_synced.wait_for(|synced| *synced) => None,
            ended = running.next() => Some(ended),
            () = cancel.cancelled() => Some(Err(RunError::NotSynced)),
        };
        if let Some(result) = ended {
            return running.end(result).await;
        }
        // Without it, a pod whose end the API never heard of would run again.
        let recalled = timeout(RECALLING, parts.statuses.recalled());
        tokio::select! {
            recalled = recalled => if recalled.is_err() {
                tracing::warn!("what an earlier agent said of its pods cannot be read; going on without");
            },
            () = cancel.cancelled() => return running.end(Err(RunError::NotSynced)).await,
        }
        // Those that are wanted have been listed by now.
        parts.unsettled.send_replace(parts.known.absent());
        running.work();
        let result = running.settle(state).await;
        running.end(result).await
    }

    /// Ready once everything that only the provider had was looked at; then until something ends.
    async fn settle(&mut self, state: &watch::Sender<RunState>) -> Result<(), RunError> {
        let parts = self.parts.clone();
        let mut unsettled = parts.unsettled.subscribe();
        let settled = timeout(SETTLING, unsettled.wait_for(PodUidMap::is_empty));
        tokio::select! {
            _ = settled => {}
            result = self.next() => return result,
            () = parts.cancel.cancelled() => return Ok(()),
        }
        state.send_replace(RunState::Ready);
        tokio::select! {
            result = self.next() => result,
            () = parts.cancel.cancelled() => Ok(()),
        }
    }

    /// Stops everything and waits for it.
    async fn end(mut self, result: Result<(), RunError>) -> Result<(), RunError> {
        self.parts.cancel.cancel();
        let mut result = result;
        while let Some(joined) = self.tasks.join_next().await {
            if let (Ok(()), Err(error)) = (&result, ended(joined, true)) {
                result = Err(error);
            }
        }
        result
    }

    /// The first task that ends.
    async fn next(&mut self) -> Result<(), RunError> {
        match self.tasks.join_next().await {
            Some(joined) => ended(joined, self.parts.cancel.is_cancelled()),
            None => std::future::pending().await,
        }
    }

    fn hear(&mut self) {
        let parts = self.parts.clone();
        let mut changes = parts.provider.notifications();
        self.spawn("hears the provider", async move {
            loop {
                tokio::select! {
                    changed = changes.next() => match changed {
                        Some(uid) => parts.queues.status.wake(&uid),
                        None => return,
                    },
                    () = parts.cancel.cancelled() => return,
                }
            }
        });
        let parts = self.parts.clone();
        self.spawn("drives the provider", async move {
            parts.provider.drive(parts.cancel.clone()).await;
        });
        let parts = self.parts.clone();
        if let Some(mut arrivals) = parts.prepare.arrivals() {
            self.spawn("hears what pods waited for", async move {
                loop {
                    tokio::select! {
                        arrived = arrivals.recv() => match arrived {
                            Some(uid) => parts.queues.sync.wake_fresh(&uid),
                            None => return parts.cancel.cancelled().await,
                        },
                        () = parts.cancel.cancelled() => return,
                    }
                }
            });
        }
    }

    fn work(&mut self) {
        let parts = &self.parts;
        let workers = parts.config.workers.max(1);
        let (queues, cancel) = (parts.queues.clone(), parts.cancel.clone());
        let look = {
            let (parts, cancel) = (parts.clone(), cancel.clone());
            async move {
                let handle = |uid| sync::look(parts.clone(), uid);
                queues.sync.run("sync", workers, cancel, handle).await
            }
        };
        let queues = parts.queues.clone();
        let say = {
            let (parts, cancel) = (parts.clone(), cancel.clone());
            async move {
                let handle = |uid| report::report(parts.clone(), uid);
                queues.status.run("status", workers, cancel, handle).await
            }
        };
        let queues = parts.queues.clone();
        let remove = {
            let parts = parts.clone();
            async move {
                // Most of them wait for the delivery of their final status; their requests are
                // limited.
                let handle = |uid| removal::remove(parts.clone(), uid);
                queues.removal.run("removal", usize::MAX, cancel, handle).await
            }
        };
        let compare = dangling::reconcile(parts.clone());
        self.tasks.spawn(async { ("looks at pods", look.await) });
        self.tasks.spawn(async { ("reports statuses", say.await) });
        self.tasks.spawn(async { ("removes pods", remove.await) });
        self.spawn("compares both sides", compare);
    }

    fn spawn(&mut self, what: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            task.await;
            (what, Ok(()))
        });
    }
}

fn ended(
    joined: Result<(&'static str, Result<(), WorkerPanicked>), JoinError>,
    was_asked: bool,
) -> Result<(), RunError> {
    match joined {
        Ok((_, Err(panicked))) => Err(panicked.into()),
        Ok((_, Ok(()))) if was_asked => Ok(()),
        Ok((task, Ok(()))) => Err(RunError::Task { task, message: None }),
        Err(error) => {
            Err(RunError::Task { task: "follows the pods", message: Some(error.to_string()) })
        }
    }
}
