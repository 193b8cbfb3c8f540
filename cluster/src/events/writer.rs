//! The one task that writes events.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::events::v1 as api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::correlate::{Correlator, SeriesKey, Step};
use super::queue::{Fate, Queue, Queued};
use super::{NodeRef, body};
use winddown_api_client::refusal::{self, Refusal};
use winddown_shared::Backoff;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// The same while a shutdown waits, and the longest wait between two requests then.
const HASTY_REQUEST: Duration = Duration::from_secs(2);
const HASTE: Duration = Duration::from_millis(250);
/// The API server keeps events for an hour: an older one is not worth writing.
const TOO_OLD: Duration = Duration::from_secs(3600);

/// Writes what [`Events`](super::Events) was sent, one after the other.
///
/// An API server that does not answer is tried again for as long as an event is worth it; meanwhile
/// the queue keeps the newest.
pub struct EventWriter {
    client: Client,
    queue: Arc<Queue>,
    correlator: Correlator,
    instance: Arc<str>,
    backoff: Backoff,
    is_out: bool,
}

/// What an attempt came to.
enum Attempt {
    Done(Fate),
    /// The event that was to be repeated is not there any more.
    Gone,
    /// Not now.
    Again(Option<Duration>, String),
}

// === impl EventWriter ===

impl EventWriter {
    pub(super) fn new(client: Client, queue: Arc<Queue>, node: &NodeRef) -> Self {
        Self {
            client,
            queue,
            correlator: Correlator::new(),
            instance: Arc::clone(&node.name),
            backoff: Backoff::EAGER,
            is_out: false,
        }
    }

    /// Writes until `cancel`. What is not written then is lost: [`flush`](super::Events::flush) first.
    pub async fn run(mut self, cancel: CancellationToken) {
        let _ = cancel.run_until_cancelled(self.write_all()).await;
    }

    async fn write_all(&mut self) {
        loop {
            let queued = self.queue.next().await;
            let step = self.correlator.observe(&queued);
            let fate = self.carry_out(&queued, step).await;
            self.queue.done(fate);
        }
    }

    async fn carry_out(&mut self, queued: &Queued, mut step: Step) -> Fate {
        loop {
            if queued.since.elapsed() > TOO_OLD {
                return Fate::Dropped;
            }
            match self.attempt(queued, &step).await {
                Attempt::Done(fate) => {
                    // Nothing was asked for one that is held back.
                    if !matches!(fate, Fate::HeldBack) {
                        self.note_contact();
                    }
                    return fate;
                }
                Attempt::Gone => {
                    self.note_contact();
                    step = self.anew(queued, &step);
                }
                Attempt::Again(after, error) => self.wait(after, &error).await,
            }
        }
    }

    /// The series' event has expired: this one begins it anew.
    fn anew(&mut self, queued: &Queued, step: &Step) -> Step {
        if let Step::Repeat { key, .. } = step {
            self.correlator.forget(key);
        }
        match self.correlator.observe(queued) {
            Step::Repeat { .. } => Step::HoldBack,
            other => other,
        }
    }

    async fn attempt(&mut self, queued: &Queued, step: &Step) -> Attempt {
        let namespace = queued.draft.about.events_namespace();
        let events = Api::<api::Event>::namespaced(self.client.clone(), namespace);
        match step {
            Step::HoldBack => Attempt::Done(Fate::HeldBack),
            Step::Create { key, message } => {
                let name = body::name(queued);
                let event = body::body(queued, &name, message, &self.instance);
                let params = PostParams::default();
                match self.bounded(events.create(&params, &event)).await {
                    Ok(()) => self.created(key, &name),
                    // An earlier attempt's answer was lost.
                    Err((Refusal::AlreadyExists, _)) => self.created(key, &name),
                    Err((refusal, error)) => self.failed(refusal, error, key),
                }
            }
            Step::Repeat { key, name, count } => {
                let patch = Patch::Merge(body::series(queued, *count));
                let params = PatchParams::default();
                match self.bounded(events.patch(name, &params, &patch)).await {
                    Ok(()) => Attempt::Done(Fate::Repeated),
                    Err((Refusal::NotFound, _)) => Attempt::Gone,
                    Err((refusal, error)) => self.failed(refusal, error, key),
                }
            }
        }
    }

    fn created(&mut self, key: &SeriesKey, name: &str) -> Attempt {
        self.correlator.written(key, Arc::from(name));
        Attempt::Done(Fate::Written)
    }

    fn failed(&mut self, refusal: Refusal, error: String, key: &SeriesKey) -> Attempt {
        match refusal {
            // A namespace that goes away takes no events; nor does one that is gone.
            Refusal::NotFound | Refusal::Invalid | Refusal::NotAllowed => {
                tracing::debug!(error, "an event was refused");
                self.correlator.forget(key);
                Attempt::Done(Fate::Refused)
            }
            Refusal::Busy { after } => Attempt::Again(after, error),
            _ => Attempt::Again(None, error),
        }
    }

    /// The request's outcome, within its time: less once a shutdown waits.
    async fn bounded<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<(), (Refusal, String)> {
        tokio::select! {
            biased;
            outcome = request => match outcome {
                Ok(_) => Ok(()),
                Err(error) => Err((Refusal::of(&error), refusal::text(&error))),
            },
            () = sleep(REQUEST) => Err(unanswered(REQUEST)),
            () = self.in_haste(HASTY_REQUEST) => Err(unanswered(HASTY_REQUEST)),
        }
    }

    /// Over when a shutdown has waited this long.
    async fn in_haste(&self, then: Duration) {
        let _ = self.queue.flushing().wait_for(|on| *on).await;
        sleep(then).await;
    }

    fn note_contact(&mut self) {
        self.backoff.reset();
        if std::mem::take(&mut self.is_out) {
            tracing::info!("events are written again");
        }
    }

    async fn wait(&mut self, after: Option<Duration>, error: &str) {
        if !std::mem::replace(&mut self.is_out, true) {
            tracing::warn!(error, "events are not written until the API server takes them");
        }
        let wait = self.backoff.after_failure(after);
        tokio::select! {
            () = sleep(wait) => {}
            () = self.in_haste(HASTE) => {}
        }
    }
}

fn unanswered(limit: Duration) -> (Refusal, String) {
    (Refusal::NoAnswer, format!("no answer within {limit:?}"))
}
