//! Notices that the node will go down: the operator's, given and withdrawn through the control
//! socket, and the status of all sources.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use winddown_notices::{Deadline, OperatorSubject};
use winddown_shared::{
    BootClock, Event, GateReason, KillReason, LONGEST_NOTICE, PodKiller, Runtime, WallTime,
};
use winddown_shutdown::ProgressPhase;

use super::{Joined, drain};
use crate::links::Draining;
use winddown_control::ApiError;
use winddown_control::api::{DrainEvent, ErrorCode, NoticeBody, NoticeStatus, WithdrawAnswer};

/// How long after the deadline followers are disconnected; the node should have been gone by then.
const AFTER_THE_END: Duration = Duration::from_secs(5);

/// How long a withdrawal waits for the controller, which may be waiting for a disk.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(5);

impl<R: Runtime> Joined<R> {
    /// Puts the operator's notice in force and reports how the pods end.
    pub(super) async fn start_notice(
        self: &Arc<Self>,
        body: NoticeBody,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        let deadline = deadline(&body, self.core.wall.now(), &self.core.boot_clock)?;
        if !self.policy.borrow().is_enabled() {
            let off = "graceful shutdown is switched off: a deadline would terminate no pod";
            return Err(ApiError::new(ErrorCode::Conflict, off).with_hint(
                "set shutdownGracePeriod and run `systemctl reload winddown`, or terminate the pods now \
                 with `winddown drain --timeout 90s`",
            ));
        }
        let text = match body.text.trim() {
            "" => "an operator says that the node goes away",
            text => text,
        };
        let by = body.by.map(|peer| format!(" ({peer})")).unwrap_or_default();
        let (plan, _) = self.planned();
        let (groups, pods) =
            (plan.groups.iter().filter(|g| !g.pods.is_empty()).count(), plan.pod_count());
        let happened = self.core.recorders.decisions.listen();
        self.operator.announce(deadline, &format!("{text}{by}")).await;
        let until = self.operator.published().map_or_else(Instant::now, |notice| notice.deadline);
        let (events, progress) = mpsc::unbounded_channel();
        let seconds = until.saturating_duration_since(Instant::now()).as_secs_f64();
        // A missing listener is fine: the notice is in force.
        let pods_unknown = !self.core.workers.running().known;
        let _ = events.send(DrainEvent::Started { groups, pods, seconds, pods_unknown });
        self.warn(OperatorSubject::Notice, &events);
        let begun = Instant::now();
        let reasons = self.core.gate.reasons();
        let had_a_run = [GateReason::Shutdown, GateReason::Notice].map(|r| reasons.contains(r));
        if had_a_run.contains(&true) && self.is_over() {
            // An earlier run has ended all pods; there will be no other.
            let _ = events.send(finished((0, 0, 0), false, Duration::ZERO, false));
            return Ok(progress);
        }
        let node = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                () = node.forward(happened, &events, begun, pods) => {}
                () = sleep_until(until + AFTER_THE_END) => {
                    let (left, unknown) = node.left();
                    let ended = pods.saturating_sub(left);
                    let tally = (ended, 0, left);
                    let _ = events.send(finished(tally, unknown, begun.elapsed(), false));
                }
                () = node.core.stop.cancelled() => {}
            }
        });
        Ok(progress)
    }

    /// Withdraws the operator's notice, or ends or calls off the operator's drain if there is none. Anything else
    /// that keeps pods out stays in force: a drain outlives a deadline that was set during it.
    pub(super) async fn termination_notice(&self) -> WithdrawAnswer {
        let was_shut = self.core.gate.is_shut();
        let withdrawn = self.operator.withdraw().await;
        if !withdrawn {
            self.end_drain().await;
        }
        let about = if withdrawn { &[OperatorSubject::Notice][..] } else { &OperatorSubject::ALL };
        self.notice_is_followed().await;
        let closed = self.keeps_closed();
        WithdrawAnswer {
            withdrawn,
            opened: was_shut && closed.is_none(),
            admission_closed: closed.is_some(),
            message: closed.unwrap_or_default(),
            warning: self.operator.problem(about),
        }
    }

    /// Puts notices in force when their time has come, and checks the operator's against the clock, until
    /// the node stops.
    pub(super) async fn run_board(self: Arc<Self>) {
        tokio::select! {
            () = self.notices.run() => {}
            () = self.operator.follow() => {}
            () = self.core.stop.cancelled() => {}
        }
    }

    /// The status of every source that has a notice or a problem.
    pub(super) fn notice_statuses(&self) -> Vec<NoticeStatus> {
        let source_statuses = self.notices.source_statuses().into_iter();
        source_statuses
            .filter(|standing| standing.notice.is_some() || standing.problem.is_some())
            .map(|standing| {
                let deadline = standing.notice.as_ref().map(|notice| notice.deadline);
                NoticeStatus {
                    source: standing.source.to_string(),
                    deadline: deadline.and_then(|at| self.wall_of(at)),
                    text: standing.notice.map(|notice| notice.text.to_string()).unwrap_or_default(),
                    in_effect: standing.effective,
                    problem: standing.problem.map(|problem| problem.to_string()),
                }
            })
            .collect()
    }

    /// Forwards events until the run, which has this many pods, is over.
    async fn forward(
        &self,
        mut happened: mpsc::UnboundedReceiver<Event>,
        events: &mpsc::UnboundedSender<DrainEvent>,
        begun: Instant,
        pods: usize,
    ) {
        let (mut ended, mut forced) = (0, 0);
        while let Some(event) = happened.recv().await {
            let cancelled = matches!(event, Event::ShutdownCancelled { .. });
            let left = match &event {
                Event::PodStopped { forced: killed, .. } => {
                    ended += 1;
                    forced += usize::from(!killed.is_empty());
                    None
                }
                Event::ShutdownFinished { left, unknown, .. } => Some((*left, *unknown)),
                // This may be the end of an earlier run, which was still in progress when this notice was given.
                Event::ShutdownCancelled { .. } if self.operator.published().is_some() => None,
                // Pods that are admitted again were not left.
                Event::ShutdownCancelled { .. } => Some((pods.saturating_sub(ended), false)),
                _ => None,
            };
            if let Some(told) = drain::drain_event(&event, KillReason::Shutdown) {
                let _ = events.send(told);
            }
            if let Some((left, unknown)) = left {
                let (tally, unknown) = ((ended, forced, left), unknown || self.left().1);
                let _ = events.send(finished(tally, unknown, begun.elapsed(), cancelled));
                return;
            }
        }
    }

    /// Whether a run has ended, and no pod is left that another run could end.
    fn is_over(&self) -> bool {
        let phase = self.progress.subscribe().borrow().phase;
        matches!(phase, ProgressPhase::Ended | ProgressPhase::Released)
            && self.core.workers.running().is_known_empty()
    }

    /// The number of running pods, and whether there may be more.
    pub(super) fn left(&self) -> (usize, bool) {
        let running = self.core.workers.running();
        (running.pods.len() + running.runtime_only.len(), !running.known)
    }

    /// Waits until the controller has noticed that no notice is in force any more.
    async fn notice_is_followed(&self) {
        let mut reasons = self.core.gate.changes();
        let notices = self.notices.notices();
        let followed = reasons.wait_for(|reasons| {
            !reasons.contains(GateReason::Notice) || !notices.borrow().in_effect.is_empty()
        });
        // After a timeout, e.g. if a disk does not answer, the caller gets the state as of then.
        let _ = timeout(FOLLOWED_WITHIN, followed).await;
    }

    /// Why no pod is admitted; `None` if pods are.
    fn keeps_closed(&self) -> Option<String> {
        let reasons: Vec<String> =
            self.core.gate.reasons().iter().map(|reason| self.in_words(reason)).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    fn in_words(&self, reason: GateReason) -> String {
        match reason {
            GateReason::Startup => "the agent is starting".to_owned(),
            GateReason::Shutdown => "the node is shutting down".to_owned(),
            GateReason::UnitStop => "the agent's unit is being stopped".to_owned(),
            GateReason::Notice => match self.notices.notices().borrow().in_effect.first() {
                Some(notice) => {
                    format!("a notice is in effect ({}): {}", notice.source, notice.text)
                }
                None => "the run of a notice that was withdrawn is not over yet".to_owned(),
            },
            GateReason::Drain if matches!(*self.drain.state.borrow(), Draining::InProgress(_)) => {
                "the node is being drained (`winddown undrain` cancels it)".to_owned()
            }
            GateReason::Drain => {
                "the node is drained (`winddown undrain` admits pods again)".to_owned()
            }
        }
    }
}

fn finished(
    (terminated, forced, still_running): (usize, usize, usize),
    pods_unknown: bool,
    took: Duration,
    cancelled: bool,
) -> DrainEvent {
    let took_seconds = took.as_secs_f64();
    DrainEvent::Finished {
        terminated,
        forced,
        still_running,
        took_seconds,
        pods_unknown,
        cancelled,
    }
}

/// The deadline in the body, which must name exactly one.
fn deadline(body: &NoticeBody, now: WallTime, boot: &BootClock) -> Result<Deadline, ApiError> {
    let bad = |what: &str| {
        Err(ApiError::new(ErrorCode::BadRequest, what)
            .with_hint("give inSeconds (from 1 on), or a deadline such as 2026-11-20T12:00:00Z"))
    };
    let too_far = |field: &str| {
        let days = LONGEST_NOTICE.as_secs() / 86_400;
        let what = format!("{field}: at most {days} days ahead, to {}", ahead(now, LONGEST_NOTICE));
        Err(ApiError::new(ErrorCode::BadRequest, what)
            .with_hint("terminate the pods now with `winddown drain`, or name an earlier time"))
    };
    match (body.deadline, body.in_seconds) {
        (Some(_), Some(_)) => bad("deadline and inSeconds: only one of them can be given"),
        (None, None) => bad("a notice needs a deadline"),
        (Some(at), None) if at <= now => bad("deadline: already past"),
        (Some(at), None) if at > ahead(now, LONGEST_NOTICE) => too_far("deadline"),
        (Some(at), None) => Ok(Deadline::At(at)),
        (None, Some(0)) => bad("inSeconds: at least 1"),
        (None, Some(seconds)) if seconds > LONGEST_NOTICE.as_secs() => too_far("inSeconds"),
        (None, Some(seconds)) => Ok(Deadline::SinceBoot(boot.now() + Duration::from_secs(seconds))),
    }
}

fn ahead(now: WallTime, by: Duration) -> WallTime {
    now.checked_add(by).unwrap_or(WallTime::MAX)
}
