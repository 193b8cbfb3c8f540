//! Stops one container, whatever state the runtime is in.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};
use winddown_shared::{Grace, Retries, Retry, RuntimeError, WallTime, error_chain};

use super::super::client::CallError;
use super::super::direct::Direct;
use super::super::pod::{PodEntry, Run};
use super::super::{CriContext, dirs, exits, health, observe, volumes};
use crate::pod;

/// Asks the container to stop: by a signal where that is possible, otherwise through the runtime, which receives
/// the rest of the grace period and every reduction of it. Kills the container when the grace period is over. Resolves
/// when the container has exited.
///
/// A failed call is repeated, because the runtime may be coming back. The container counts as stopped
/// when its exit is recorded, whatever the source.
///
/// # Errors
/// The container has not exited some time after the grace period was over.
pub(crate) async fn end(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    (name, id): (&str, &str),
    grace: Grace,
) -> Result<(), RuntimeError> {
    let ended = pod::ended(entry, name, id);
    tokio::pin!(ended);
    let mut ending = ContainerEnding::new(context, entry, name, id, grace);
    tokio::select! {
        biased;
        () = &mut ended => Ok(()),
        error = ending.insist() => Err(error),
    }
}

struct ContainerEnding<'a> {
    context: &'a Arc<CriContext>,
    entry: &'a Arc<PodEntry>,
    name: &'a str,
    id: &'a str,
    grace: Grace,
    /// The first process, if it may be signalled without the runtime.
    direct: Option<Arc<Direct>>,
    /// Whether an earlier stop has asked it.
    was_asked: bool,
    /// The calls that have not failed, in the order in which they were made.
    calls: Vec<StopCall>,
    retries: Retries,
    last_error: Option<CallError>,
}

#[derive(Clone, Copy)]
struct StopCall {
    made_at: Instant,
    wall: WallTime,
    is_answered: bool,
}

/// What is done with a container that has not exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The stop fails.
    GiveUp,
    /// The runtime is asked to kill it.
    Kill,
    /// The runtime is asked again after a call that failed.
    Again,
    /// Its process is killed without the runtime, and its exit is looked for.
    KillDirectly,
}

/// When what is due.
#[derive(Clone, Copy)]
struct Times {
    /// When the grace period is over.
    kill: Instant,
    /// How long the container may take to exit after that.
    kill_timeout: Duration,
    again: Option<Instant>,
    kill_sent: bool,
    /// When its process is killed without the runtime.
    kill_directly: Option<Instant>,
}

// === impl Times ===

impl Times {
    fn give_up(&self) -> Instant {
        self.kill + self.kill_timeout
    }

    /// What is due next, and when; of what is due at the same time, the first in the order of [`Due`].
    fn next(&self) -> (Instant, Due) {
        let others = [
            (Some(self.kill).filter(|_| !self.kill_sent), Due::Kill),
            (self.again, Due::Again),
            (self.kill_directly, Due::KillDirectly),
        ];
        let others = others.into_iter().filter_map(|(at, due)| Some((at?, due)));
        let give_up = (self.give_up(), Due::GiveUp);
        others.fold(give_up, |first, next| if next.0 < first.0 { next } else { first })
    }
}

// === impl ContainerEnding ===

impl<'a> ContainerEnding<'a> {
    fn new(
        context: &'a Arc<CriContext>,
        entry: &'a Arc<PodEntry>,
        name: &'a str,
        id: &'a str,
        grace: Grace,
    ) -> Self {
        let known = |run: &mut Run| (run.own.direct.clone(), run.stop_request.is_some());
        let (direct, was_asked) = entry.lock().run(name, id).map(known).unwrap_or_default();
        let retries = Retry::RUNTIME_CALL.delays();
        Self {
            context,
            entry,
            name,
            id,
            grace,
            direct,
            was_asked,
            calls: Vec::new(),
            retries,
            last_error: None,
        }
    }

    /// Repeats requests until it gives up; it does not return before. Calls in progress continue next to a new one,
    /// because dropping one may make the runtime forget the kill that was to follow. An answer comes before a shorter
    /// grace period, and that before what is due.
    async fn insist(&mut self) -> RuntimeError {
        let mut calls = FuturesUnordered::new();
        let mut again: Option<Instant> = None;
        let mut kills = Retry::UNREAPED.backoff();
        let mut next_kill: Option<Instant> = None;
        let mut kill_sent = self.grace.remaining().is_zero();
        let is_asked = !kill_sent && self.ask_directly();
        if !is_asked {
            calls.push(self.ask());
        }
        loop {
            let times = self.times(again, kill_sent, next_kill);
            let (at, due) = times.next();
            tokio::select! {
                biased;
                Some((made_at, outcome)) = calls.next() => {
                    if self.is_settled(made_at, outcome).await {
                        // Nothing more to do: waiters learn of the exit when it is recorded.
                        again = None;
                    } else if calls.is_empty() {
                        let left = times.give_up().saturating_duration_since(Instant::now());
                        let Some(delay) = self.retries.after(None, left) else {
                            return self.error();
                        };
                        again = Some(Instant::now() + delay);
                    }
                }
                // What was asked directly is not asked again, but the times are other ones.
                () = self.grace.changed() => if !is_asked {
                    calls.push(self.ask());
                },
                () = sleep_until(at) => match due {
                    Due::GiveUp => return self.error(),
                    Due::Kill => {
                        kill_sent = true;
                        if !self.has_exited().await {
                            calls.push(self.ask());
                        }
                    }
                    Due::Again => {
                        again = None;
                        calls.push(self.ask());
                    }
                    Due::KillDirectly => {
                        // An error means that the process has exited.
                        let _ = self.direct.as_ref().map(|direct| direct.kill());
                        self.has_exited().await;
                        next_kill = Some(Instant::now() + kills.next_delay());
                    }
                },
            }
        }
    }

    fn times(&self, again: Option<Instant>, kill_sent: bool, next_kill: Option<Instant>) -> Times {
        let (kill, kill_timeout) = (self.grace.kill_at(), self.context.config.times.kill);
        // The runtime gets a chance first: it also kills processes outside the container's PID namespace.
        let patience = Retry::RUNTIME_KILL.within(kill_timeout).next().unwrap_or_default();
        let kill_directly = self.direct.as_ref().map(|_| next_kill.unwrap_or(kill + patience));
        Times { kill, kill_timeout, again, kill_sent, kill_directly }
    }

    /// Records the exit of a container that has exited without the kernel reporting it. Returns whether it has.
    async fn has_exited(&self) -> bool {
        let Some(direct) = &self.direct else { return false };
        let first = direct.first_process();
        exits::take_unreaped(self.context, self.entry, (self.name, self.id), first).await
    }

    /// Sends the stop signal, at most once per run. Returns false if the runtime has to be asked.
    fn ask_directly(&mut self) -> bool {
        let Some(direct) = &self.direct else { return false };
        if self.was_asked {
            self.note_asked(false);
            self.record_asked();
            return true;
        }
        if let Err(error) = direct.ask() {
            let pod = pod::title(self.entry);
            tracing::debug!(%pod, container = %self.name, error = error_chain(&error), "cannot signal a container's process");
            self.direct = None;
            return false;
        }
        self.note_asked(false);
        self.note_signalled(Instant::now());
        // Right here: a blocking thread may start late, and after the process's exit it is too late.
        hold_mounts(self.entry, direct, self.name, self.id);
        self.record_asked();
        true
    }

    /// Makes one `StopContainer` call with the time that is left. Returns when it was made, with its outcome.
    fn ask(&mut self) -> impl Future<Output = (Instant, Result<(), CallError>)> + use<'a> {
        let mut left = self.grace.remaining();
        if self.is_unheard() {
            left = left.max(Grace::SHORTEST);
        }
        self.note_asked(left.is_zero());
        // Otherwise the call may send nothing, and the next agent has to.
        if self.context.health.borrow().reachable {
            self.record_asked();
        }
        let (made_at, wall) = (Instant::now(), self.context.config.wall.now());
        self.calls.push(StopCall { made_at, wall, is_answered: false });
        let (context, id) = (self.context, self.id);
        async move { (made_at, context.client.stop_container(id, left).await) }
    }

    /// Whether calls have failed, none has reached the runtime, and nothing else has sent the stop signal.
    fn is_unheard(&self) -> bool {
        let has_failed = self.last_error.is_some() && self.heard().next().is_none();
        has_failed && self.direct.is_none() && !self.was_asked
    }

    /// The calls that have reached the runtime, as far as is known.
    fn heard(&self) -> impl Iterator<Item = &StopCall> {
        let is_reachable = self.context.health.borrow().reachable;
        self.calls.iter().filter(move |call| call.is_answered || is_reachable)
    }

    /// Records that the container is asked to stop. Whether the request reaches it is another matter.
    fn note_asked(&self, is_kill: bool) {
        let mut state = self.entry.lock();
        let is_stop = state.stop.is_some();
        let Some(run) = state.run(self.name, self.id).filter(|run| run.end.is_none()) else {
            return;
        };
        run.forced |= is_kill;
        run.ask(is_stop);
    }

    /// Records on disk that a stop of the pod has asked the container to stop. The exit of one that is only being
    /// restarted is a crash, also to the next agent.
    fn record_asked(&self) {
        let attempt = {
            let mut state = self.entry.lock();
            let run = state.run(self.name, self.id);
            run.filter(|run| run.stop_request.is_some_and(|asked| asked.of_pod)).map(|r| r.attempt)
        };
        if let Some(attempt) = attempt {
            let path = dirs::asked(&self.context.config, self.entry.uid(), self.name, attempt);
            // In the background: other containers must be signalled first.
            self.context.notes.set(path, true);
        }
    }

    /// Records for the report that the container was sent its stop signal at this time.
    fn note_signalled(&self, at: Instant) {
        if let Some(record) = &mut self.entry.lock().stop {
            record.signalled_at = Some(record.signalled_at.map_or(at, |known| known.min(at)));
        }
    }

    /// The first call that sent the stop signal: one that was answered, or whose answer the container's exit has
    /// overtaken. None if the container had exited by itself before, or if no call reached the runtime.
    fn first_heard(&self) -> Option<StopCall> {
        let first = *self.heard().next()?;
        let mut state = self.entry.lock();
        let exit = state.run(self.name, self.id)?.end.as_ref().map(|end| &end.exit);
        let exited_at = exit.and_then(|exit| exit.finished_at);
        exited_at.is_none_or(|at| at >= first.wall).then_some(first)
    }

    /// Whether the container is known to have exited, so that its exit will be recorded.
    async fn is_settled(&mut self, made_at: Instant, outcome: Result<(), CallError>) -> bool {
        match outcome {
            Ok(()) => {
                let answered = self.calls.iter_mut().filter(|call| call.made_at == made_at);
                answered.for_each(|call| call.is_answered = true);
                exits::settle_apart(self.context, self.entry, self.name, self.id);
                true
            }
            Err(error) if error.is_not_found() => {
                self.calls.retain(|call| call.made_at != made_at);
                observe::enter_lost(self.context, self.entry, self.name, self.id);
                true
            }
            Err(error) => {
                self.calls.retain(|call| call.made_at != made_at);
                health::note_unreachable(self.context, &error);
                let pod = pod::title(self.entry);
                tracing::debug!(
                    %pod, container = %self.name, error = error_chain(&error),
                    "cannot stop a container; retrying"
                );
                self.last_error = Some(error);
                false
            }
        }
    }

    fn error(&self) -> RuntimeError {
        let what = format!("stopping container {} of pod {}", self.name, self.entry.uid());
        match self.last_error.clone() {
            Some(error) => error.during(what),
            None => RuntimeError::Timeout {
                what: format!("{what}: it still runs after SIGKILL"),
                after: self.context.config.times.kill,
            },
        }
    }
}

impl Drop for ContainerEnding<'_> {
    /// Only now it is known which calls failed.
    fn drop(&mut self) {
        if let Some(call) = self.first_heard() {
            self.note_signalled(call.made_at);
        }
        if self.is_unheard()
            && let Some(run) = self.entry.lock().run(self.name, self.id)
            && run.end.is_none()
        {
            // The next stop has it for the first time.
            run.stop_request = None;
        }
    }
}

/// Holds the mount namespace of a container that was asked to stop, unless a caller waits for its release.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_does_not_exit_is_killed_by_the_runtime_then_directly_and_then_given_up() {
        let kill = Instant::now();
        let ms = Duration::from_millis;
        let later = |after: u64| kill + ms(after);
        for (again, kill_sent, kill_directly, kill_timeout, wanted) in [
            (None, false, Some(1000), 10_000, (0, Due::Kill)),
            (None, true, Some(1000), 10_000, (1000, Due::KillDirectly)),
            (None, true, Some(500), 2000, (500, Due::KillDirectly)),
            (None, true, None, 10_000, (10_000, Due::GiveUp)),
            (Some(50), true, Some(1000), 10_000, (50, Due::Again)),
            (Some(50), false, Some(1000), 10_000, (0, Due::Kill)),
            (Some(1000), true, Some(1000), 10_000, (1000, Due::Again)),
            (Some(10_000), true, None, 10_000, (10_000, Due::GiveUp)),
            (Some(0), false, Some(0), 0, (0, Due::GiveUp)),
        ] {
            let (again, kill_timeout) = (again.map(later), ms(kill_timeout));
            let kill_directly = kill_directly.map(later);
            let times = Times { kill, kill_timeout, again, kill_sent, kill_directly };
            assert_eq!(
                times.next(),
                (later(wanted.0), wanted.1),
                "{again:?} {kill_sent} {wanted:?}"
            );
        }
    }
}
