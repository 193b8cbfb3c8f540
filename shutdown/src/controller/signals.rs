//! Signals that the node goes down: from the login manager, a notice, the service manager, or several of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use winddown_shared::{
    GateReason, InhibitorState, MachineState, Notice, NoticeState, Notices, ShutdownKind,
};

use crate::budget::login_waits;
use crate::run_context::{RunContext, TimeLimit};
use crate::{Budget, DelayedBy, NoticeReport, Policy, RunRecord, UnitStop};

/// What a run keeps however late it learns how little time it has, so that each pod is still asked, and killed: the
/// shortest grace period, a second, and as much again until it is gone.
const MIN_TIME_LEFT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SignalState {
    /// What the login manager says, or what is the case without its word.
    pub(super) login: InhibitorState,
    /// The notices in force, the one that leaves the least time first.
    pub(super) notices: Vec<Arc<Notice>>,
    /// Whether `login` is without its word: the service manager stops the agent's unit.
    pub(super) is_unit_stop: bool,
    /// How the service manager stops the agent's unit, if it does: how long it waits counts, and not `login`'s delay.
    pub(super) unit_stop: Option<UnitStop>,
    /// What the service manager said when the agent found the run of an earlier one.
    pub(super) machine: MachineState,
}

/// Combines the login manager's state, the notices and the stop of the unit.
#[derive(Clone)]
pub(super) struct ShutdownSignals {
    states: watch::Receiver<InhibitorState>,
    policy: watch::Receiver<Arc<Policy>>,
    was_enabled: bool,
    /// When the policy was enabled, if it was not at the start. Notices from before have begun no run.
    enabled_at: Option<Instant>,
    unit_stop: watch::Receiver<Option<UnitStop>>,
    /// Those last in force stay so once all sources are gone.
    notices: Notices,
    /// A notice that an earlier agent received. It stays in force until its source has been read again. One whose source
    /// this agent does not read would never go: it expires at its deadline.
    kept: Option<Arc<Notice>>,
    /// What the service manager said at the start.
    machine: MachineState,
    /// The way down that it named then, which nothing announces.
    found_stop: Option<UnitStop>,
    closed: bool,
}

// === impl SignalState ===

impl SignalState {
    /// Whether the node is going down.
    pub(super) fn ends_the_node(&self) -> bool {
        self.login.preparing || self.is_noticed()
    }

    pub(super) fn is_noticed(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Whether this asks for a run after one that was over at `end`: a shutdown in progress, unless it is the `released`
    /// one, or else a notice that was given since.
    pub(super) fn asks_after(&self, released: Option<u64>, end: Instant) -> bool {
        match self.login.preparing {
            true => released != Some(self.login.epoch),
            false => self.notices.iter().any(|notice| notice.since > end),
        }
    }

    pub(super) fn closes_for(&self, reason: GateReason) -> bool {
        match reason {
            GateReason::Shutdown => self.login.preparing && !self.is_unit_stop,
            GateReason::UnitStop => self.is_unit_stop,
            GateReason::Notice => self.is_noticed(),
            GateReason::Startup | GateReason::Drain => false,
        }
    }

    /// Returns the start of the run that this state calls for. The login manager takes precedence over a
    /// notice.
    pub(super) fn since(&self, now: Instant) -> Instant {
        let login =
            self.login.preparing.then_some(self.login.since).map(|since| since.unwrap_or(now));
        let notice = self.notices.first().map(|notice| notice.since);
        login.or(notice).unwrap_or(now).min(now)
    }

    /// Until when the node waits for this agent in a run that began at `started`; `None` if it does not, or if that is not
    /// known. The login manager waits from `since` on. The service manager, which stops the agent's unit then, waits as long
    /// as the policy wants, unless it has said how long; however late it said so, the run keeps a little.
    pub(super) fn time_limit(&self, started: Instant, since: Duration) -> Option<TimeLimit> {
        let Some(stop) = self.unit_stop else {
            let until = since.saturating_add(login_waits(&self.login)?);
            let (delayed_by, set_by) = (DelayedBy::LoginManager, self.login.delay_set_by.clone());
            return Some(TimeLimit { until, delayed_by, set_by });
        };
        let until = stop.since.saturating_duration_since(started).saturating_add(stop.delay);
        let least = started.elapsed() + MIN_TIME_LEFT;
        let (delayed_by, set_by) = (DelayedBy::ServiceManager, stop.limited_by().map(Into::into));
        Some(TimeLimit { until: until.max(least), delayed_by, set_by })
    }

    /// Returns the context of a run that this state began at `started`.
    pub(super) fn context(&self, policy: &Policy, started: Instant) -> RunContext {
        let limit = self.time_limit(started, Duration::ZERO);
        let (budget, limit) = match self.notices.first() {
            Some(notice) if !self.login.preparing => {
                let gone = gone_at(notice, policy.delay_wanted());
                (Budget::of_notice(policy, gone.saturating_duration_since(started)), None)
            }
            _ => (Budget::new(policy, limit.as_ref().map(|limit| limit.until)), limit),
        };
        let TimeLimit { delayed_by, set_by, .. } = limit.unwrap_or_default();
        let context = RunContext {
            budget,
            delayed_by,
            delay_set_by: set_by,
            kind: ShutdownKind::Unknown,
            request: None,
            login_since: None,
            notice: None,
        };
        self.limit(&context, started)
    }

    /// Updates the context of a run that began at `started`. This can only shorten the run.
    pub(super) fn limit(&self, before: &RunContext, started: Instant) -> RunContext {
        let offset = |at: Instant| at.saturating_duration_since(started);
        let elapsed = started.elapsed();
        let least = elapsed + MIN_TIME_LEFT;
        let mut now = before.clone();
        if self.login.preparing {
            let since = *now
                .login_since
                .get_or_insert_with(|| self.login.since.map(offset).unwrap_or(elapsed));
            if self.login.kind != ShutdownKind::Unknown {
                now.kind = self.login.kind;
            }
            if self.login.request.is_some() {
                now.request.clone_from(&self.login.request);
            }
            // logind set its timer when the shutdown began: a delay that is raised now is for the next one. One that is
            // over has not ended the node, so something else does: the service manager waits for the agent's unit.
            let is_ahead = |limit: &TimeLimit| limit.until > elapsed;
            if let Some(limit) = self.time_limit(started, since).filter(is_ahead) {
                now.shorten(limit, least);
            }
        }
        let own = now.budget.requested + now.budget.reserve;
        let of_run = self.notices.iter().filter(|notice| is_about(notice, started));
        if let Some(notice) = of_run.min_by_key(|notice| gone_at(notice, own)) {
            let deadline = offset(gone_at(notice, own));
            now.budget = now.budget.within(deadline.max(least));
            // The one that is reported is the one that left the least time, also after it was withdrawn.
            if now.notice.as_ref().is_none_or(|kept| deadline <= kept.deadline) {
                now.notice = Some(NoticeReport {
                    source: notice.source.to_string(),
                    text: notice.text.to_string(),
                    deadline,
                });
            }
        }
        now
    }
}

// === impl ShutdownSignals ===

impl ShutdownSignals {
    pub(super) fn new(
        states: watch::Receiver<InhibitorState>,
        policy: watch::Receiver<Arc<Policy>>,
        notices: Notices,
        unit_stop: watch::Receiver<Option<UnitStop>>,
    ) -> Self {
        let was_enabled = policy.borrow().is_enabled();
        Self {
            states,
            policy,
            was_enabled,
            enabled_at: None,
            unit_stop,
            notices,
            kept: None,
            machine: MachineState::Unknown,
            found_stop: None,
            closed: false,
        }
    }

    /// Restores the notice of a run that began at `started`, if it had one.
    pub(super) fn restore_notice(&mut self, record: &RunRecord, started: Instant) {
        let notice = record.report.notice.as_ref();
        self.kept = notice.and_then(|notice| {
            Some(Arc::new(Notice {
                source: notice.source.as_str().into(),
                text: notice.text.as_str().into(),
                since: started,
                deadline: started.checked_add(notice.deadline)?,
            }))
        });
    }

    /// Takes what the service manager says while a run that began at `started`, and has `delay` in all, is found. It does
    /// not say since when its limit counts: from now on.
    pub(super) fn found(&mut self, machine: MachineState, started: Instant, delay: Duration) {
        self.machine = machine;
        if let MachineState::GoingDown(way) = machine {
            let passed = started.elapsed();
            let stop = UnitStop::new(way, Instant::now(), delay.saturating_sub(passed), false);
            let delay = if stop.is_limited { passed + stop.delay } else { delay };
            self.found_stop = Some(UnitStop { since: started, delay, ..stop });
        }
    }

    pub(super) fn current(&mut self) -> SignalState {
        let said = self.states.borrow_and_update().clone();
        let unit_stop = self.unit_stop.borrow_and_update().or(self.found_stop);
        let is_unit_stop = unit_stop.is_some_and(|stop| !(stop.is_announced && said.preparing));
        let login = unit_stop.map_or(said.clone(), |stop| stop.instead_of(said));
        let NoticeState { in_effect, heard, unheard } = self.notices.borrow_and_update().clone();
        self.kept.take_if(|kept| {
            let is_repeated = in_effect.iter().any(|notice| notice.source == kept.source);
            let is_over = kept.deadline <= Instant::now() && !unheard.contains(&kept.source);
            is_repeated || heard.contains(&kept.source) || is_over
        });
        let (now, policy) = (Instant::now(), Arc::clone(&self.policy.borrow_and_update()));
        if !std::mem::replace(&mut self.was_enabled, policy.is_enabled()) && policy.is_enabled() {
            self.enabled_at = Some(now);
        }
        let notices = in_effect.into_iter().chain(self.kept.clone());
        let notices = notices.map(|notice| counted_from(notice, self.enabled_at));
        let notices = by_time_left(notices, policy.delay_wanted(), now);
        SignalState { login, notices, is_unit_stop, unit_stop, machine: self.machine }
    }

    /// Resolves when the state may have changed; never, once the login manager's channel is gone.
    pub(super) async fn changed(&mut self) {
        if self.closed {
            std::future::pending::<()>().await;
        }
        let forgotten = self.kept.as_ref().map(|kept| kept.deadline);
        let forgotten = forgotten.filter(|deadline| *deadline > Instant::now());
        tokio::select! {
            changed = self.states.changed() => self.closed = changed.is_err(),
            Ok(()) = self.unit_stop.changed() => {}
            Ok(()) = self.policy.changed() => {}
            Ok(()) = self.notices.changed() => {}
            () = until(forgotten) => {}
        }
    }

    /// Resolves when the node is not going down any more; never, if that is not announced.
    pub(super) async fn called_off(mut self) {
        while self.closed || self.current().ends_the_node() {
            self.changed().await;
        }
    }

    /// Resolves when the node is going down; never, if that is not announced.
    pub(super) async fn ends_again(mut self) {
        while self.closed || !self.current().ends_the_node() {
            self.changed().await;
        }
    }

    /// Whether the login manager's channel is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

/// The notices, the one that leaves the least time first. One whose time was over without the node going down comes after
/// all others: it hides none.
fn by_time_left(
    notices: impl Iterator<Item = Arc<Notice>>,
    own: Duration,
    now: Instant,
) -> Vec<Arc<Notice>> {
    let mut notices: Vec<_> = notices.collect();
    notices.sort_by_key(|notice| {
        let gone = gone_at(notice, own);
        (gone <= now, gone)
    });
    notices
}

/// Whether `notice` says when the node goes down in a run that began at `started`. One that had named its time before, and
/// whose time was over by then, was wrong: the node was still up. Nor does "at any moment" from before the run say more of
/// it than what began the run.
fn is_about(notice: &Notice, started: Instant) -> bool {
    notice.since >= started || notice.deadline > started
}

/// The notice, as if it had been given when the policy was enabled if it is from before.
fn counted_from(notice: Arc<Notice>, enabled_at: Option<Instant>) -> Arc<Notice> {
    match enabled_at.filter(|at| notice.since < *at) {
        Some(since) => Arc::new(Notice { since, ..Notice::clone(&notice) }),
        None => notice,
    }
}

/// When the node goes down by `notice`. A time that was over when it was first heard of means "at any moment", which may
/// be in hours: the pods then get the policy's `own` time.
fn gone_at(notice: &Notice, own: Duration) -> Instant {
    if notice.deadline > notice.since { notice.deadline } else { notice.since + own }
}

/// Resolves at `at`, or never.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns the instant `ago` before now, or now if the clock does not reach back that far.
pub(crate) fn before_now(ago: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(ago).unwrap_or(now)
}
