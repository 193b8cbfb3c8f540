//! Sends the statuses of an outbox.

use std::time::Duration;

use futures_util::future::{Either, OptionFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_shared::{PodUid, WallClock, error_chain};

use super::attempt::{Job, Outcome, attempt};
use super::{Outbox, OutboxConfig, SpooledStatus};
use crate::status::spool::{SpoolError, StoredRecord};

/// How long sending waits until statuses from disk have been read, which go first.
const SPOOL_READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends what is in an [`Outbox`]. There is one for each.
#[derive(Debug)]
pub struct OutboxDriver {
    outbox: Outbox,
    concurrency: usize,
    request_deadline: Duration,
    wall: WallClock,
}

/// A write or a request that has ended.
enum Ended {
    Kept { uid: PodUid, turn: u64, on_disk: bool },
    Sent(Job, Outcome),
}

// === impl OutboxDriver ===

impl OutboxDriver {
    pub(super) fn new(outbox: Outbox, config: &OutboxConfig) -> Self {
        Self {
            outbox,
            concurrency: config.concurrency.max(1),
            request_deadline: config.request_deadline,
            wall: config.wall.clone(),
        }
    }

    /// Sends until `cancel`led; first what an earlier agent left on disk. Requests in progress are
    /// dropped then: call [`Outbox::flush`] before to finish them.
    pub async fn run(self, client: kube::Client, cancel: CancellationToken) {
        let reading = self.read_spool();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.send_all(&client, reading) => {}
        }
    }

    /// Reads what an earlier agent left.
    fn read_spool(
        &self,
    ) -> impl Future<Output = Result<Vec<StoredRecord<SpooledStatus>>, SpoolError>> + use<> {
        match self.outbox.0.spool.clone() {
            Some(spool) => {
                let read = async move { spool.load().await };
                Either::Left(read)
            }
            None => Either::Right(std::future::ready(Ok(Vec::new()))),
        }
    }

    /// Sends for ever, and at first waits for the result of `reading`, but not for long.
    pub(super) async fn send_all(
        &self,
        client: &kube::Client,
        reading: impl Future<Output = Result<Vec<StoredRecord<SpooledStatus>>, SpoolError>>,
    ) {
        let mut reading = std::pin::pin!(reading.fuse());
        let mut under_way = FuturesUnordered::new();
        let send_from = Instant::now() + SPOOL_READ_TIMEOUT;
        let mut read = false;
        loop {
            let (to_keep, jobs, next) = {
                let mut state = self.outbox.0.state.lock();
                let now = Instant::now();
                let to_keep = state.take_to_keep();
                let mut jobs = Vec::new();
                let sends = read || now >= send_from;
                while sends && let Some(job) = state.next_job(now, self.concurrency) {
                    jobs.push(job);
                }
                let next = if sends { state.next_time(self.concurrency) } else { Some(send_from) };
                (to_keep, jobs, next)
            };
            for (uid, turn, record) in to_keep {
                under_way.push(Either::Left(self.keep(uid, turn, record)));
            }
            for job in jobs {
                under_way.push(Either::Right(self.send(client, job)));
            }
            tokio::select! {
                () = self.outbox.0.changed.notified() => {}
                Some(ended) = under_way.next() => self.note(ended),
                found = &mut reading, if !read => {
                    read = true;
                    self.restore(found);
                }
                Some(()) = OptionFuture::from(next.map(sleep_until)) => {}
            }
        }
    }

    async fn keep(&self, uid: PodUid, turn: u64, record: SpooledStatus) -> Ended {
        let spool = self.outbox.0.spool.as_ref();
        let on_disk = match spool {
            Some(spool) => spool.keep(&uid, record).await.is_ok(),
            None => false,
        };
        Ended::Kept { uid, turn, on_disk }
    }

    async fn send(&self, client: &kube::Client, job: Job) -> Ended {
        let outcome = attempt(client, &job, self.request_deadline, &self.wall).await;
        Ended::Sent(job, outcome)
    }

    fn note(&self, ended: Ended) {
        match ended {
            Ended::Kept { uid, turn, on_disk } => {
                self.outbox.0.state.lock().keeping_ended(&uid, turn, on_disk);
            }
            Ended::Sent(job, outcome) => {
                let done = self.outbox.0.state.lock().ended(&job, outcome, Instant::now());
                if let Some(spool) = self.outbox.0.spool.as_ref().filter(|_| done) {
                    spool.remove(&job.pod.uid);
                }
            }
        }
    }

    fn restore(&self, found: Result<Vec<StoredRecord<SpooledStatus>>, SpoolError>) {
        match found {
            Ok(found) if found.is_empty() => {}
            Ok(found) => {
                tracing::info!(
                    pods = found.len(),
                    "sending statuses that an earlier agent could not send"
                );
                let mut state = self.outbox.0.state.lock();
                for kept in found {
                    state.restore(&kept.uid, kept.record);
                }
            }
            Err(error) => tracing::error!(
                error = error_chain(&error),
                "cannot read the statuses that an earlier agent could not send"
            ),
        }
        self.outbox.0.recalled.send_replace(true);
    }
}
