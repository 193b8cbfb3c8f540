//! The tasks of a running controller.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use winddown_shared::PodUidMap;
use winddown_shared::status::is_terminal;

use super::{RunError, RunState};
use crate::pods::parts::Parts;
use crate::pods::queue::WorkerPanicked;
use crate::pods::seams::{Prepare, StatusSide};
use crate::pods::{removal, sync, watch as api_watch};
use winddown_api_client::node_pods::PodApi;

/// How long unwanted pods may delay the controller's readiness.
const UNWANTED_PODS_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout for reading an earlier agent's final statuses.
const RECALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The tasks of a controller. One that stops too early stops them all.
pub(super) struct Running<A, T, R> {
    parts: Arc<Parts<A, T, R>>,
    tasks: JoinSet<(&'static str, Result<(), WorkerPanicked>)>,
}

impl<A: PodApi, T: StatusSide, R: Prepare> Running<A, T, R> {
    /// Starts all tasks in dependency order, and waits for their end.
    pub(super) async fn start(
        parts: Arc<Parts<A, T, R>>,
        state: &watch::Sender<RunState>,
    ) -> Result<(), RunError> {
        let cancel = parts.cancel.clone();
        let mut running = Self { parts: parts.clone(), tasks: JoinSet::new() };
        let earlier = parts.known.wanted().borrow().clone();
        let earlier = earlier.iter().flat_map(|wanted| &wanted.pods);
        let live = earlier.filter(|pod| !pod.status.as_ref().is_some_and(is_terminal));
        live.for_each(|pod| parts.prepare.adopt(pod));
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
        // Otherwise a pod whose end never reached the API would run again.
        let recalled = timeout(RECALL_TIMEOUT, parts.statuses.recalled());
        tokio::select! {
            recalled = recalled => if recalled.is_err() {
                tracing::warn!("cannot read what an earlier agent recorded of its pods; continuing without it");
            },
            () = cancel.cancelled() => return running.end(Err(RunError::NotSynced)).await,
        }
        // All wanted pods have been listed by now.
        parts.unsettled.send_replace(parts.known.absent());
        running.hear();
        running.work();
        let result = running.settle(state).await;
        running.end(result).await
    }

    /// Becomes ready once every pod that only the node had was checked; then runs until a task stops.
    async fn settle(&mut self, state: &watch::Sender<RunState>) -> Result<(), RunError> {
        let parts = self.parts.clone();
        let mut unsettled = parts.unsettled.subscribe();
        let settled = timeout(UNWANTED_PODS_TIMEOUT, unsettled.wait_for(PodUidMap::is_empty));
        tokio::select! {
            _ = settled => {}
            result = self.next() => return result,
            () = parts.cancel.cancelled() => return Ok(()),
        }
        if parts.known.all_known() {
            parts.keep.all_known().await;
        }
        state.send_replace(RunState::Ready);
        tokio::select! {
            result = self.next() => result,
            () = parts.cancel.cancelled() => Ok(()),
        }
    }

    /// Stops all tasks and waits for them.
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

    /// Waits for the first task that stops.
    async fn next(&mut self) -> Result<(), RunError> {
        match self.tasks.join_next().await {
            Some(joined) => ended(joined, self.parts.cancel.is_cancelled()),
            None => std::future::pending().await,
        }
    }

    fn hear(&mut self) {
        self.spawn("hears the node", hear_the_node(self.parts.clone()));
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
        let (queues, cancel) = (parts.queues.clone(), parts.cancel.clone());
        let look = {
            let (parts, cancel) = (parts.clone(), cancel.clone());
            async move {
                // What is slow, the preparation of pods, is limited separately.
                let handle = |uid| sync::look(parts.clone(), uid);
                queues.sync.run("sync", usize::MAX, cancel, handle).await
            }
        };
        let queues = parts.queues.clone();
        let remove = {
            let parts = parts.clone();
            async move {
                // Most removals wait for the delivery of a final status; their requests are limited separately.
                let handle = |uid| removal::remove(parts.clone(), uid);
                queues.removal.run("removal", usize::MAX, cancel, handle).await
            }
        };
        self.tasks.spawn(async { ("looks at pods", look.await) });
        self.tasks.spawn(async { ("removes pods", remove.await) });
    }

    fn spawn(&mut self, what: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            task.await;
            (what, Ok(()))
        });
    }
}

/// Queues the pods that have terminated.
async fn hear_the_node<A: PodApi, T: StatusSide, R: Prepare>(parts: Arc<Parts<A, T, R>>) {
    let node = &parts.node;
    let (mut statuses, mut ends) = (node.statuses.changes(), node.ends.clone());
    let mut wanted = parts.known.wanted();
    // The pods that may terminate soon: only these are checked when one has.
    let mut ending = PodUidMap::default();
    let mut seen = 0;
    loop {
        statuses.mark_unchanged();
        ends.mark_unchanged();
        wanted.mark_unchanged();
        let (entries, now) = node.statuses.changed_since(seen);
        seen = now;
        let over = entries.into_iter().filter(|entry| is_terminal(&entry.status));
        ending.extend(over.map(|entry| (entry.pod.uid().clone(), ())));
        ending.extend(parts.known.ending().into_iter().map(|uid| (uid, ())));
        ending.retain(|uid, ()| {
            let has_ended = node.has_ended(uid);
            if has_ended {
                parts.queues.sync.wake(uid);
            }
            !has_ended && parts.known.get(uid).is_some()
        });
        let changed = tokio::select! {
            changed = statuses.changed() => changed,
            changed = ends.changed() => changed,
            changed = wanted.changed() => changed,
            () = parts.cancel.cancelled() => return,
        };
        if changed.is_err() {
            return parts.cancel.cancelled().await;
        }
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
