//! Executes the plan step by step; events interrupt a step.

mod steps;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use winddown_host::OneThread;
use winddown_shared::{
    InhibitorState, LockState, ScheduledShutdown, ShutdownRequest, doubled, error_chain,
};

use self::steps::{StepResult, carry_out};
use super::plan::{LogindFacts, LogindStep, PreparingMeaning, WHILE_PREPARING};
use super::raise_inhibit_delay::Raised;
use super::session::{Listed, LoginCalls, LoginManager, LogindCallError, LogindEvent, Session};
use super::{InhibitorConfig, Request};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After this many consecutive failures (1.5 s) a missing login manager counts as absent, not as late.
const ABSENT_AFTER: u32 = 5;
/// The longest time after which a login manager that could not be started is called again.
const LONGEST_PAUSE_IN_VAIN: Duration = Duration::from_secs(3600);

/// Runs until aborted, or until all handles are dropped.
pub(super) async fn supervise(login: impl LoginManager, mut supervisor: Supervisor) {
    let mut in_vain = false;
    loop {
        supervisor.facts.forget_session();
        supervisor.lock.fresh = None;
        supervisor.publish();
        let failure = match supervisor.meanwhile(login.connect()).await {
            None => return,
            Some(Err(error)) => error,
            Some(Ok(session)) => {
                supervisor.connected = true;
                // A call would have the bus start it.
                supervisor.facts.gone = in_vain && !session.is_there;
                let ended = supervisor.serve(session).await;
                supervisor.connected = false;
                match ended {
                    None => return,
                    Some(error) => error,
                }
            }
        };
        let pause = doubled(FIRST_PAUSE, LONGEST_PAUSE, supervisor.failures);
        supervisor.failed(&failure);
        let is_of_bus = matches!(failure, LogindCallError::Absent { call: "connect", .. });
        in_vain = supervisor.absent && !is_of_bus;
        if supervisor.meanwhile(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Owns the lock and everything known about it.
pub(super) struct Supervisor {
    config: InhibitorConfig,
    facts: LogindFacts,
    /// Works on logind's configuration.
    disk: OneThread,
    lock: Lock,
    delay: Delay,
    /// The shutdown that was scheduled when it was read last.
    scheduled: Option<Arc<ScheduledShutdown>>,
    connected: bool,
    /// The reason why there is no lock, or what the supervisor waits for.
    why: Arc<str>,
    absent: bool,
    /// Consecutive failures.
    failures: u32,
    /// Consecutive refusals of a lock while no shutdown is known to be under way.
    refusals: u32,
    state: watch::Sender<InhibitorState>,
    requests: mpsc::UnboundedReceiver<Request>,
    refused: Arc<AtomicU64>,
}

/// logind's delay.
#[derive(Default)]
struct Delay {
    /// The one read last; kept while it is read again.
    last: Option<Duration>,
    /// The file that sets it, if that is less than wanted.
    set_by: Option<Arc<str>>,
    /// Who waits until it is read again. Dropping them tells them.
    awaited_by: Vec<oneshot::Sender<()>>,
}

/// The lock; the store may have a copy, also of one that could not be taken over.
struct Lock {
    held: Option<OwnedFd>,
    /// A lock just granted that has not been seen in the list yet.
    fresh: Option<OwnedFd>,
}

/// The event that woke the supervisor.
enum Woken {
    Done(LogindStep, Result<StepResult, LogindCallError>),
    LogindEvent(Option<LogindEvent>),
    Asked(Option<Request>),
    Look,
    Recheck,
}

impl Supervisor {
    pub(super) fn new(
        mut config: InhibitorConfig,
        state: watch::Sender<InhibitorState>,
        requests: mpsc::UnboundedReceiver<Request>,
        refused: Arc<AtomicU64>,
    ) -> Self {
        let held = config.inherited_lock.take();
        Self {
            facts: LogindFacts::new(config.wanted_delay, held.is_some()),
            config,
            disk: OneThread::default(),
            lock: Lock { held, fresh: None },
            delay: Delay::default(),
            scheduled: None,
            connected: false,
            why: "connecting to logind".into(),
            absent: false,
            failures: 0,
            refusals: 0,
            state,
            requests,
            refused,
        }
    }

    /// Waits for `work` while answering requests. Returns `None` if all handles are dropped.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                asked = self.requests.recv() => self.answer(asked?),
                done = &mut work => return Some(done),
            }
        }
    }

    /// Holds the lock during one connection. Returns why the connection is unusable; `None` if all
    /// handles are dropped.
    async fn serve<C: LoginCalls>(&mut self, session: Session<C>) -> Option<LogindCallError> {
        let Session { calls, mut heard, .. } = session;
        let mut recheck_at = Instant::now() + self.recheck_after();
        let mut looked_at = Instant::now();
        loop {
            if !self.delay.awaited_by.is_empty() && !self.facts.read_delay_again() {
                self.delay.awaited_by.clear();
            }
            let step = self.facts.next_step();
            match step {
                // After a failure keep its text, which says more, until no step is left.
                Some(step) if self.failures == 0 => self.why = step.waits_for().into(),
                Some(_) => {}
                None => self.settled(),
            }
            self.publish();
            let due = (recheck_at, looked_at + WHILE_PREPARING);
            let woken = self.wake_up(step, &calls, &mut heard, due).await;
            if step == Some(LogindStep::RaiseDelay) && !matches!(woken, Woken::Done(..)) {
                // The drop-in may be another, and logind not know of it.
                self.facts.raised = false;
            }
            match woken {
                Woken::LogindEvent(Some(event)) => self.observe(event),
                Woken::LogindEvent(None) => {
                    let detail = "closed by the other side".to_owned();
                    return Some(LogindCallError::Connection { call: "listen", detail });
                }
                Woken::Asked(asked) => self.answer(asked?),
                Woken::Done(step, Ok(answer)) => {
                    if step == LogindStep::ReadPreparing {
                        looked_at = Instant::now();
                    }
                    if let Some(error) = self.take(step, answer) {
                        return Some(error);
                    }
                }
                // Once only: a shutdown began since the state was read; reading it again will show that.
                Woken::Done(LogindStep::Inhibit, Err(LogindCallError::InProgress { .. }))
                    if self.refusals == 0 =>
                {
                    self.refusals += 1;
                    self.facts.unread = true;
                }
                Woken::Done(_, Err(error)) => return Some(error),
                Woken::Look => self.facts.unread = true,
                Woken::Recheck => {
                    recheck_at = Instant::now() + self.config.recheck;
                    // Nothing else may start it.
                    self.facts.gone &= !self.absent;
                    self.facts.recheck();
                }
            }
        }
    }

    /// When to check everything without a signal. Each call of a login manager that could not be started has the bus try
    /// it again and log that, so these are ever rarer.
    fn recheck_after(&self) -> Duration {
        match self.absent && self.facts.gone {
            true => {
                let calls = self.failures.saturating_sub(ABSENT_AFTER);
                doubled(self.config.recheck, LONGEST_PAUSE_IN_VAIN, calls)
            }
            false => self.config.recheck,
        }
    }

    /// Carries out the step, or waits without one, until something else counts. `due` is when everything is checked
    /// again, and when the state is read again during a shutdown.
    async fn wake_up<C: LoginCalls>(
        &mut self,
        step: Option<LogindStep>,
        calls: &C,
        heard: &mut mpsc::Receiver<LogindEvent>,
        due: (Instant, Instant),
    ) -> Woken {
        let may_be_called_off = self.facts.may_be_called_off();
        let work = carry_out(step, calls, &self.config, &self.facts, &self.disk);
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                // First, so that a hung call does not delay the confirmation of a signal: the
                // call is cancelled and repeated later.
                event = heard.recv() => return Woken::LogindEvent(event),
                asked = self.requests.recv() => match asked {
                    // A mere look does not begin the step again.
                    Some(Request::ReadDelay(read)) if step.is_some() => {
                        self.delay.awaited_by.push(read);
                    }
                    asked => return Woken::Asked(asked),
                },
                (step, outcome) = &mut work => return Woken::Done(step, outcome),
                () = sleep_until(due.0), if step.is_none() => return Woken::Recheck,
                () = sleep_until(due.1), if step.is_none() && may_be_called_off => {
                    return Woken::Look;
                }
            }
        }
    }

    fn observe(&mut self, event: LogindEvent) {
        // It is not absent: it was there, or is.
        self.absent &= !matches!(event, LogindEvent::Gone | LogindEvent::Back);
        match event {
            LogindEvent::Gone => tracing::warn!("logind left the bus"),
            LogindEvent::Back => {
                tracing::info!("logind has restarted; reading its state again");
            }
            LogindEvent::Prepare { begins, .. } => tracing::debug!(begins, "shutdown signal"),
            LogindEvent::Changed { .. } => tracing::debug!("a property of logind's changed"),
        }
        self.facts.observe(event);
        if !self.facts.fresh {
            self.lock.fresh = None;
        }
    }

    /// Processes a step's answer. Returns an error if the connection has become unusable.
    fn take(&mut self, step: LogindStep, answer: StepResult) -> Option<LogindCallError> {
        match answer {
            StepResult::Preparing(value) => self.take_preparing(value),
            StepResult::Delay(delay) => {
                if self.delay.last != Some(delay) {
                    self.facts.raised = false;
                    self.delay.set_by = None;
                }
                self.facts.delay = Some(delay);
                self.delay.last = Some(delay);
                self.publish();
                self.delay.awaited_by.clear();
            }
            StepResult::Lock(lock) => {
                self.refusals = 0;
                self.lock.fresh = Some(lock);
                self.facts.fresh = true;
            }
            StepResult::Listed(listed) if step == LogindStep::VerifyNew => {
                return self.take_new_lock(listed);
            }
            StepResult::Listed(listed) => {
                if !self.facts.held_lock_is(listed) {
                    tracing::warn!(log_kind = "lockLost", "logind no longer lists our lock");
                }
                if !self.facts.held {
                    self.lock.held = None;
                    self.config.store.clear();
                }
            }
            StepResult::Request(request, kind) => {
                self.facts.kind_is(kind);
                self.facts.request = Some(request.into());
            }
            StepResult::Scheduled(scheduled, left_over) => {
                self.facts.schedule_unread = false;
                self.facts.left_over = left_over;
                self.scheduled = scheduled.map(Arc::new);
            }
            StepResult::Raised(raised) => {
                self.facts.tried_to_raise();
                if let Some(raised) = raised {
                    self.take_raised(raised);
                }
            }
        }
        None
    }

    fn take_preparing(&mut self, value: bool) {
        match self.facts.preparing_is(value, Instant::now()) {
            PreparingMeaning::Same => {}
            PreparingMeaning::Begins => {
                self.refusals = 0;
                tracing::info!(
                    epoch = self.facts.epoch,
                    kind = ?self.facts.kind,
                    locked = self.facts.held,
                    "the node goes down"
                );
            }
            PreparingMeaning::Ends => {
                tracing::info!("the shutdown was cancelled; taking a new lock");
            }
            PreparingMeaning::Contradicted => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    log_kind = "signalIgnored",
                    preparing = value,
                    "ignored a shutdown signal: logind's PreparingForShutdown says otherwise"
                );
            }
        }
    }

    fn take_new_lock(&mut self, listed: Listed) -> Option<LogindCallError> {
        let there = self.facts.new_lock_is(listed);
        let fresh = self.lock.fresh.take()?;
        if !there {
            return Some(LogindCallError::Refused {
                call: "ListInhibitors",
                detail: "the lock just granted is not in it".to_owned(),
            });
        }
        // Only now may the old lock be dropped, and its copy in the store.
        let old = self.lock.held.replace(fresh);
        self.config.store.clear();
        drop(old);
        if let Some(lock) = &self.lock.held
            && let Err(error) = self.config.store.put(lock.as_fd())
        {
            tracing::warn!(error = error_chain(&error), "the lock will not survive a crash");
        }
        tracing::info!(
            log_kind = "lockTaken",
            who = self.config.who,
            "holding logind's delay lock"
        );
        None
    }

    fn take_raised(&mut self, raised: Raised) {
        self.facts.delay = Some(raised.delay);
        self.delay.last = Some(raised.delay);
        if raised.delay < self.facts.wanted {
            tracing::warn!(
                log_kind = "delayTooShort",
                wanted = ?self.facts.wanted,
                given = ?raised.delay,
                set_by = raised.set_by.as_deref(),
                obstacle = raised.obstacle,
                "logind gives less time than the configured grace needs; the plan must shrink"
            );
        }
        self.delay.set_by = raised.set_by;
    }

    fn answer(&mut self, request: Request) {
        match request {
            Request::WantDelay(wanted) => self.facts.want(wanted),
            Request::ReadDelay(read) if self.connected => self.delay.awaited_by.push(read),
            Request::ReadDelay(_) => {}
            Request::Release { epoch } => {
                if self.facts.preparing && self.facts.epoch == epoch && !self.facts.released {
                    self.facts.release();
                    let was_held =
                        self.lock.held.take().is_some() | self.lock.fresh.take().is_some();
                    self.config.store.clear();
                    if was_held {
                        tracing::info!(log_kind = "lockReleased", "released logind's delay lock");
                    }
                }
                self.publish();
            }
        }
    }

    /// Resets the failures when no step is left, unless that is so because the login manager is absent.
    fn settled(&mut self) {
        if self.absent && self.facts.gone {
            return;
        }
        self.failures = 0;
        self.refusals = 0;
        self.absent = false;
        self.why = if self.facts.gone {
            "logind left the bus; waiting for it to come back".into()
        } else {
            "a shutdown is under way, and logind grants no lock until it is cancelled".into()
        };
    }

    fn failed(&mut self, error: &LogindCallError) {
        self.failures += 1;
        self.delay.awaited_by.clear();
        self.refusals = 0;
        self.absent =
            self.failures >= ABSENT_AFTER && matches!(error, LogindCallError::Absent { .. });
        let mut why = error.to_string();
        if self.lock.held.is_some() {
            why.push_str("; the lock taken before is kept, and looked for when logind answers");
        }
        // What shows the state says itself that it is tried again.
        if self.failures == 1 {
            tracing::warn!(log_kind = "lockMissing", "{why}; retrying");
        } else {
            tracing::debug!(failures = self.failures, "{why}; retrying");
        }
        self.why = why.into();
        self.publish();
    }

    fn publish(&self) {
        let facts = &self.facts;
        let lock = if facts.preparing && facts.released {
            LockState::Released
        } else if self.connected && facts.held && facts.held_listed {
            LockState::Held
        } else if self.absent {
            LockState::Absent { why: Arc::clone(&self.why) }
        } else {
            LockState::Waiting { why: Arc::clone(&self.why) }
        };
        let is_known = |request: &Arc<ShutdownRequest>| **request != ShutdownRequest::default();
        let mut new = InhibitorState::unknown();
        (new.lock, new.has_lock) = (lock, self.lock.held.is_some());
        (new.preparing, new.epoch) = (facts.preparing, facts.epoch);
        (new.since, new.kind) = (facts.since, facts.kind);
        new.request = facts.request.clone().filter(is_known);
        (new.delay, new.delay_set_by) = (self.delay.last, self.delay.set_by.clone());
        new.is_rehearsal = self.config.bus.is_stand_in();
        new.scheduled = self.scheduled.clone().filter(|_| !facts.preparing);
        self.state.send_if_modified(|state| {
            let changed = *state != new;
            if changed {
                *state = new;
            }
            changed
        });
    }
}
