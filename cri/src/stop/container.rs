//! Ends one container, whatever the runtime does meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};
use winddown_shared::{Grace, RuntimeError, error_chain};

use super::super::client::CallError;
use super::super::direct::Direct;
use super::super::pod::PodEntry;
use super::super::{Context, dirs, exits, health, observe, volumes};
use crate::pod;

/// The first wait before a call that failed is made again; it doubles up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Asks the container to end: by itself where that is possible, else through the runtime, which is told
/// what is left of the grace and every shortening. Has it killed when the grace is over. Resolves when
/// the container has ended.
///
/// A call that fails is made again: the runtime may be on its way back. The container counts as ended
/// when the runtime says so, however it was heard of.
///
/// # Errors
/// It has not ended some time after the grace was over.
pub(crate) async fn end(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    (name, id): (&str, &str),
    grace: Grace,
) -> Result<(), RuntimeError> {
    let ended = pod::ended(entry, name, id);
    tokio::pin!(ended);
    let mut ending = Ending::new(context, entry, name, id, grace);
    tokio::select! {
        biased;
        () = &mut ended => Ok(()),
        error = ending.insist() => Err(error),
    }
}

struct Ending<'a> {
    context: &'a Arc<Context>,
    entry: &'a Arc<PodEntry>,
    name: &'a str,
    id: &'a str,
    grace: Grace,
    /// Its first process, where it may be signalled without the runtime.
    direct: Option<Arc<Direct>>,
    wait: Duration,
    last_error: Option<CallError>,
}

impl<'a> Ending<'a> {
    fn new(
        context: &'a Arc<Context>,
        entry: &'a Arc<PodEntry>,
        name: &'a str,
        id: &'a str,
        grace: Grace,
    ) -> Self {
        let direct = entry.lock().run(name, id).and_then(|run| run.own.direct.clone());
        Self { context, entry, name, id, grace, direct, wait: SHORTEST, last_error: None }
    }

    /// Never resolves while there is hope. The calls that are under way go on beside a new one, as
    /// dropping one may make the runtime forget the kill that was to follow.
    async fn insist(&mut self) -> RuntimeError {
        let mut calls = FuturesUnordered::new();
        let mut again: Option<Instant> = None;
        let mut kill_sent = self.grace.remaining().is_zero();
        let is_asked = !kill_sent && self.ask_directly();
        if !is_asked {
            calls.push(self.ask());
        }
        let kill_time = self.context.config.times.kill;
        loop {
            let give_up = self.grace.kill_at() + kill_time;
            // The runtime first: it also ends what is in no pid namespace of its own.
            let kill_directly = self.grace.kill_at() + (kill_time / 4).min(LONGEST);
            let mut grace = self.grace.clone();
            tokio::select! {
                Some(outcome) = calls.next() => {
                    if self.is_settled(outcome).await {
                        // Waiters learn of the end, which is certain to come.
                        again = None;
                    } else if calls.is_empty() {
                        again = Some(Instant::now() + self.wait);
                        self.wait = (self.wait * 2).min(LONGEST);
                    }
                }
                () = self.grace.changed(), if !is_asked => calls.push(self.ask()),
                () = grace.over(), if !kill_sent => {
                    kill_sent = true;
                    calls.push(self.ask());
                }
                () = sleep_until(again.unwrap_or(give_up)), if again.is_some() => {
                    again = None;
                    calls.push(self.ask());
                }
                () = sleep_until(kill_directly), if self.direct.is_some() => {
                    if let Some(direct) = self.direct.take() {
                        // An error is a process that has ended.
                        let _ = direct.kill();
                    }
                }
                () = sleep_until(give_up) => return self.error(),
            }
        }
    }

    /// Signals the container's process, once in its life. False if the runtime has to be asked.
    fn ask_directly(&mut self) -> bool {
        let Some(direct) = &self.direct else { return false };
        let attempt = {
            let mut state = self.entry.lock();
            let Some(run) = state.run(self.name, self.id) else { return false };
            if run.signalled_at.is_some() {
                return true;
            }
            run.attempt
        };
        if let Err(error) = direct.ask() {
            tracing::debug!(container = %self.name, error = error_chain(&error), "cannot signal a container's process");
            self.direct = None;
            return false;
        }
        self.note(false);
        // Now: a thread for disks may be long in coming, and it is too late when the process ends.
        hold_mounts(self.entry, direct, self.name, self.id);
        let asked = dirs::asked(&self.context.config, self.entry.uid(), self.name, attempt);
        // Off the path: the others are to be asked first.
        self.context.asked.take(asked);
        true
    }

    /// One call, with the time that is left now.
    fn ask(&self) -> impl Future<Output = Result<(), CallError>> + use<'a> {
        let left = self.grace.remaining();
        self.note(left.is_zero());
        // Whole seconds: a little more is given, and the kill comes on time all the same.
        let whole = Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
        let (context, id) = (self.context, self.id);
        async move { context.client.stop_container(id, whole).await }
    }

    fn note(&self, is_kill: bool) {
        let now = Instant::now();
        let mut state = self.entry.lock();
        let Some(run) = state.run(self.name, self.id).filter(|run| run.end.is_none()) else {
            return;
        };
        run.forced |= is_kill;
        run.signalled_at.get_or_insert(now);
        if let Some(record) = &mut state.stop {
            record.signalled_at.get_or_insert(now);
        }
    }

    /// Whether the container is known to have ended, and its end is being entered.
    async fn is_settled(&mut self, outcome: Result<(), CallError>) -> bool {
        match outcome {
            Ok(()) => {
                let (context, entry) = (Arc::clone(self.context), Arc::clone(self.entry));
                let (name, id) = (self.name.to_owned(), self.id.to_owned());
                tokio::spawn(async move { exits::settle(&context, &entry, &name, &id).await });
                true
            }
            Err(error) if error.is_not_found() => {
                observe::enter_lost(self.context, self.entry, self.name, self.id);
                true
            }
            Err(error) => {
                health::note_unreachable(self.context, &error);
                tracing::debug!(container = %self.name, error = error_chain(&error), "cannot stop a container; asking again");
                self.last_error = Some(error);
                false
            }
        }
    }

    fn error(&mut self) -> RuntimeError {
        let what = format!("ending container {} of pod {}", self.name, self.entry.uid());
        match self.last_error.take() {
            Some(error) => error.during(what),
            None => RuntimeError::Timeout {
                what: format!("{what}: it still runs after SIGKILL"),
                after: self.context.config.times.kill,
            },
        }
    }
}

/// Holds the mounts of a container that was asked to end, unless a caller waits for their release.
fn hold_mounts(entry: &PodEntry, direct: &Direct, name: &str, id: &str) {
    let is_for_good = {
        let state = entry.lock();
        state.stopping && !state.pod.as_ref().is_none_or(volumes::may_mount)
    };
    if !is_for_good {
        return;
    }
    let held = direct.hold_mounts();
    if let Some(run) = entry.lock().run(name, id).filter(|run| run.end.is_none()) {
        run.own.mounts = held;
    }
}
