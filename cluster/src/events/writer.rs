//! The one task that writes events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::events::v1 as api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::correlate::{CorrelationStep, Correlator};
use super::queue::{EventQueue, Fate, Queued};
use super::{NodeRef, body};
use winddown_api_client::refusal::{self, Refusal};
use winddown_api_client::within;
use winddown_shared::Backoff;

/// The reporter unless another is set.
const REPORTER: &str = "winddown";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout while a shutdown waits, and the longest pause between two requests then.
const HASTY_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const HASTY_PAUSE: Duration = Duration::from_millis(250);
/// The API server keeps events for an hour: an older one is not worth writing.
const TOO_OLD: Duration = Duration::from_secs(3600);

/// After this many answers in a row that the server cannot store an event (a webhook that is down, for example), the
/// event counts as refused: it must not hold up those of others. That is after about three seconds.
const MOST_FAILURES: u32 = 9;

/// Concurrent requests while a shutdown waits for the last events. With fewer, a node that goes
/// down would wait for a hundred answers one after the other.
const MAX_CONCURRENT_REQUESTS: usize = 16;
/// Concurrent requests before that, which leave the API server room for what terminates pods. A
/// request that hangs delays no other object.
const BESIDE_OTHERS: usize = 2;

/// Writes what was sent to [`Events`](super::Events): in order for each object, concurrently for different ones.
///
/// While the API server does not answer, events are retried for as long as they are worth it, with one request at a
/// time; meanwhile the queue keeps the newest.
pub struct EventWriter {
    requests: Arc<Requests>,
    correlator: Correlator,
    backoff: Backoff,
    is_out: bool,
}

/// Sends requests to the API server.
struct Requests {
    client: Client,
    queue: Arc<EventQueue>,
    instance: Arc<str>,
    /// `reportingController`.
    reporter: Arc<str>,
}

/// An event that is being written.
struct Writing {
    queued: Queued,
    step: CorrelationStep,
    /// How often the server has answered that it cannot store it.
    failures: u32,
}

/// Why a request did not succeed.
struct Failure {
    refusal: Refusal,
    /// Whether the server answered that it failed at this request (500), which says nothing about others.
    is_internal: bool,
    text: String,
}

enum Attempt {
    Done(Fate),
    /// The event to be repeated no longer exists.
    Gone,
    /// Failed for now.
    Again(Failure),
}

// === impl EventWriter ===

impl EventWriter {
    pub(super) fn new(client: Client, queue: Arc<EventQueue>, node: &NodeRef) -> Self {
        let instance = Arc::clone(&node.name);
        Self {
            requests: Arc::new(Requests { client, queue, instance, reporter: REPORTER.into() }),
            correlator: Correlator::new(),
            backoff: Backoff::EAGER,
            is_out: false,
        }
    }

    /// Sets the reporter of every event (`reportingController`). The default is winddown.
    #[must_use]
    pub fn reported_by(self, reporter: &str) -> Self {
        let Requests { client, queue, instance, .. } = &*self.requests;
        let (client, queue, instance) = (client.clone(), Arc::clone(queue), Arc::clone(instance));
        let requests = Arc::new(Requests { client, queue, instance, reporter: reporter.into() });
        Self { requests, ..self }
    }

    /// Writes until `cancel`. What is not written by then is lost: call [`flush`](super::Events::flush) first.
    pub async fn run(mut self, cancel: CancellationToken) {
        let _ = cancel.run_until_cancelled(self.write_all()).await;
    }

    async fn write_all(&mut self) {
        let requests = Arc::clone(&self.requests);
        let mut under_way = FuturesUnordered::new();
        // Events to write before those in the queue.
        let mut next = VecDeque::new();
        let mut failure = None;
        let mut flushes = requests.queue.flushes();
        loop {
            if under_way.is_empty()
                && let Some(Failure { refusal, text, .. }) = failure.take()
            {
                self.wait(refusal.retry_after(), text).await;
            }
            let is_flushing = *flushes.borrow_and_update() > 0;
            let most = match self.is_out {
                true => 1,
                false if is_flushing => MAX_CONCURRENT_REQUESTS,
                false => BESIDE_OTHERS,
            };
            let has_room = failure.is_none() && under_way.len() < most;
            if has_room && let Some(writing) = next.pop_front() {
                under_way.push(requests.attempt(writing));
                continue;
            }
            tokio::select! {
                Some((mut writing, attempt)) = under_way.next() => match attempt {
                    Attempt::Again(failed) => {
                        writing.failures += u32::from(failed.is_internal);
                        next.push_front(writing);
                        failure = Some(failed);
                    }
                    answered => next.extend(self.settle(writing, &answered)),
                },
                // More requests may be sent now, or fewer. The sender lives as long as the queue.
                Ok(()) = flushes.changed() => {}
                queued = requests.queue.next(), if has_room => {
                    let step = self.correlator.observe(&queued);
                    next.push_back(Writing { queued, step, failures: 0 });
                }
            }
        }
    }

    /// Handles a finished attempt. Returns what to write instead, if anything.
    fn settle(&mut self, writing: Writing, attempt: &Attempt) -> Option<Writing> {
        let Writing { queued, step, failures } = writing;
        let Attempt::Done(fate) = attempt else {
            self.note_contact();
            let step = self.anew(&queued, &step);
            return Some(Writing { queued, step, failures });
        };
        if let CorrelationStep::Create { key, .. } | CorrelationStep::Repeat { key, .. } = &step {
            match *fate {
                Fate::Written => self.correlator.written(key, body::name(&queued).into()),
                Fate::Refused => self.correlator.forget(key),
                _ => {}
            }
            // No request was made for an event that is too old.
            if *fate != Fate::Dropped {
                self.note_contact();
            }
        }
        self.requests.queue.done(&queued, *fate);
        None
    }

    /// Begins a new series with this event, because the event of the old one has expired.
    fn anew(&mut self, queued: &Queued, step: &CorrelationStep) -> CorrelationStep {
        if let CorrelationStep::Repeat { key, .. } = step {
            self.correlator.forget(key);
        }
        match self.correlator.observe(queued) {
            CorrelationStep::Repeat { .. } => CorrelationStep::HoldBack,
            other => other,
        }
    }

    fn note_contact(&mut self) {
        self.backoff.reset();
        if std::mem::take(&mut self.is_out) {
            tracing::info!("events are written again");
        }
    }

    async fn wait(&mut self, after: Option<Duration>, error: String) {
        if !std::mem::replace(&mut self.is_out, true) {
            tracing::warn!(error, "events wait until the API server accepts them");
        }
        let wait = self.backoff.after_failure(after);
        tokio::select! {
            () = sleep(wait) => {}
            () = self.requests.in_haste(HASTY_PAUSE) => {}
        }
    }
}

// === impl Requests ===

impl Requests {
    async fn attempt(&self, writing: Writing) -> (Writing, Attempt) {
        let attempt = self.write(&writing).await;
        (writing, attempt)
    }

    async fn write(&self, Writing { queued, step, failures }: &Writing) -> Attempt {
        let namespace = queued.draft.about.events_namespace();
        let events = Api::<api::Event>::namespaced(self.client.clone(), namespace);
        let (answer, done) = match step {
            CorrelationStep::HoldBack => return Attempt::Done(Fate::HeldBack),
            _ if queued.since.elapsed() > TOO_OLD => return Attempt::Done(Fate::Dropped),
            CorrelationStep::Create { message, .. } => {
                let event = body::body(
                    queued,
                    &body::name(queued),
                    message,
                    &self.reporter,
                    &self.instance,
                );
                let params = PostParams::default();
                (self.bounded(events.create(&params, &event)).await, Fate::Written)
            }
            CorrelationStep::Repeat { name, count, .. } => {
                let patch = Patch::Merge(body::series(queued, *count));
                let params = PatchParams::default();
                (self.bounded(events.patch(name, &params, &patch)).await, Fate::Repeated)
            }
        };
        let Err(failure) = answer else { return Attempt::Done(done) };
        match failure.refusal {
            // An earlier attempt's answer was lost.
            Refusal::AlreadyExists if done == Fate::Written => Attempt::Done(done),
            Refusal::NotFound if done == Fate::Repeated => Attempt::Gone,
            // A namespace that is being deleted accepts no events, nor does one that does not exist.
            Refusal::NotFound | Refusal::Invalid | Refusal::NotAllowed | Refusal::Denied => {
                refused(&failure)
            }
            _ if failure.is_internal && failures + 1 >= MOST_FAILURES => refused(&failure),
            _ => Attempt::Again(failure),
        }
    }

    /// Waits for the request's outcome within its timeout, which is shorter once a shutdown waits.
    async fn bounded<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<(), Failure> {
        tokio::select! {
            biased;
            outcome = within(REQUEST_TIMEOUT, request) => match outcome.flatten() {
                Ok(_) => Ok(()),
                Err(error) => Err(Failure {
                    refusal: Refusal::of(&error),
                    is_internal: matches!(&error, kube::Error::Api(status) if status.code == 500),
                    text: refusal::text(&error),
                }),
            },
            () = self.in_haste(HASTY_REQUEST_TIMEOUT) => Err(unanswered(HASTY_REQUEST_TIMEOUT)),
        }
    }

    /// Completes when a shutdown has waited this long.
    async fn in_haste(&self, then: Duration) {
        let _ = self.queue.flushes().wait_for(|count| *count > 0).await;
        sleep(then).await;
    }
}

fn refused(failure: &Failure) -> Attempt {
    tracing::debug!(error = failure.text, "an event was refused");
    Attempt::Done(Fate::Refused)
}

fn unanswered(limit: Duration) -> Failure {
    let text = format!("no answer within {limit:?}");
    Failure { refusal: Refusal::NoAnswer, is_internal: false, text }
}
