//! Notices that the node goes away: the operator's, given and taken back through the control
//! socket, and what all sources say, for the status.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use winddown_shared::{Event, Inhibitor, PodKiller, Runtime, WallTime};
use winddown_shutdown::ProgressPhase;

use super::{Node, drain};
use crate::api::{DrainEvent, ErrorCode, NoticeBody, NoticeStatus, WithdrawAnswer};
use crate::control::ApiError;

/// Whoever follows the pods' end is let go this long after the node should have been gone.
const AFTER_THE_END: Duration = Duration::from_secs(5);

impl<R: Runtime, I: Inhibitor> Node<R, I> {
    /// Puts the operator's notice in force and tells how the pods end.
    pub(super) async fn start_notice(
        &self,
        body: NoticeBody,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        let deadline = deadline(&body, self.0.wall.now())?;
        if !self.0.policy.borrow().is_enabled() {
            let off = "graceful shutdown is switched off: a deadline would end no pod";
            return Err(ApiError::new(ErrorCode::Conflict, off).with_hint(
                "set shutdownGracePeriod and run `systemctl reload winddown`, or end the pods now \
                 with `winddown drain --timeout 90s`",
            ));
        }
        let text = match body.text.trim() {
            "" => "an operator says that the node goes away",
            text => text,
        };
        let (plan, _) = self.planned();
        let (groups, pods) =
            (plan.groups.iter().filter(|g| !g.pods.is_empty()).count(), plan.pod_count());
        let happened = self.0.decisions.listen();
        self.0.operator.give(deadline, text).await;
        let until = self.0.operator.said().map_or_else(Instant::now, |notice| notice.deadline);
        let (events, progress) = mpsc::unbounded_channel();
        let seconds = until.saturating_duration_since(Instant::now()).as_secs_f64();
        // Nobody listening any more is fine: the notice is in force.
        let _ = events.send(DrainEvent::Started { groups, pods, seconds });
        let begun = Instant::now();
        if self.0.gate.is_shut() && self.is_over() {
            // An earlier run has ended them all; there will be no other.
            let _ = events.send(DrainEvent::finished(0, 0, 0, Duration::ZERO));
            return Ok(progress);
        }
        let node = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = node.tell(happened, &events, begun) => {}
                () = sleep_until(until + AFTER_THE_END) => {
                    let left = node.0.workers.active_pods().len();
                    let ended = pods.saturating_sub(left);
                    let _ = events.send(DrainEvent::finished(ended, 0, left, begun.elapsed()));
                }
                () = node.0.stop.cancelled() => {}
            }
        });
        Ok(progress)
    }

    /// Takes the operator's notice back and lets pods in again, unless something else is against it.
    pub(super) async fn end_notice(&self) -> WithdrawAnswer {
        let was_shut = self.0.gate.is_shut();
        let withdrawn = self.0.operator.withdraw().await;
        let mut closed = self.keeps_closed();
        if closed.is_none() {
            self.0.gate.open();
            self.0.workers.lame_duck(false);
            // A shutdown that began in between has shut it, and we have opened it.
            closed = self.keeps_closed();
            if closed.is_some() {
                self.0.gate.shut();
                self.0.workers.lame_duck(true);
            }
        }
        WithdrawAnswer {
            withdrawn,
            opened: was_shut && closed.is_none(),
            admission_closed: closed.is_some(),
            message: closed.unwrap_or_default(),
        }
    }

    /// Puts notices in force whose time has come, until the node stops.
    pub(super) async fn run_board(self) {
        tokio::select! {
            () = self.0.board.run() => {}
            () = self.0.stop.cancelled() => {}
        }
    }

    /// What every source says, those with nothing to say left out.
    pub(super) fn notices(&self) -> Vec<NoticeStatus> {
        let (now, wall) = (Instant::now(), self.0.wall.now());
        let standings = self.0.board.standings().into_iter();
        standings
            .filter(|standing| standing.notice.is_some() || standing.problem.is_some())
            .map(|standing| {
                let deadline = standing.notice.as_ref().and_then(|notice| {
                    let ahead = notice.deadline.checked_duration_since(now);
                    match ahead {
                        Some(ahead) => wall.checked_add(ahead).ok(),
                        None => wall.checked_sub(now.duration_since(notice.deadline)).ok(),
                    }
                });
                NoticeStatus {
                    source: standing.source.to_string(),
                    deadline,
                    text: standing.notice.map(|notice| notice.text.to_string()).unwrap_or_default(),
                    in_force: standing.effective,
                    problem: standing.problem.map(|problem| problem.to_string()),
                }
            })
            .collect()
    }

    /// Passes on what happens until the run is over.
    async fn tell(
        &self,
        mut happened: mpsc::UnboundedReceiver<Event>,
        events: &mpsc::UnboundedSender<DrainEvent>,
        begun: Instant,
    ) {
        let (mut ended, mut forced) = (0, 0);
        while let Some(event) = happened.recv().await {
            let left = match &event {
                Event::PodStopped { forced: killed, .. } => {
                    ended += 1;
                    forced += usize::from(!killed.is_empty());
                    None
                }
                Event::ShutdownEnded { left, .. } => Some(*left),
                // An earlier run may still be on its way out when this one's notice is given.
                Event::ShutdownCancelled { .. } if self.0.operator.said().is_some() => None,
                Event::ShutdownCancelled { .. } => Some(self.0.workers.active_pods().len()),
                _ => None,
            };
            if let Some(told) = drain::told(&event) {
                let _ = events.send(told);
            }
            if let Some(left) = left {
                let _ = events.send(DrainEvent::finished(ended, forced, left, begun.elapsed()));
                return;
            }
        }
    }

    /// A run has ended, and no pod is left that another one could end.
    fn is_over(&self) -> bool {
        let phase = self.0.progress.subscribe().borrow().phase;
        matches!(phase, ProgressPhase::Ended | ProgressPhase::Released)
            && self.0.workers.active_pods().is_empty()
    }

    /// Why no pod may be let in, other than a drain that is over.
    fn keeps_closed(&self) -> Option<String> {
        if self.0.inhibitor.state().borrow().preparing {
            return Some("the node is shutting down".to_owned());
        }
        if let Some(notice) = self.0.board.notices().borrow().as_ref() {
            return Some(format!("a notice is in force ({}): {}", notice.source, notice.text));
        }
        let draining = self.0.draining.available_permits() == 0;
        draining.then(|| "a drain is under way".to_owned())
    }
}

impl DrainEvent {
    fn finished(ended: usize, forced: usize, left: usize, took: Duration) -> Self {
        Self::Finished { ended, forced, left, took_seconds: took.as_secs_f64() }
    }
}

/// The one time that the body names.
fn deadline(body: &NoticeBody, now: WallTime) -> Result<WallTime, ApiError> {
    let bad = |what: &str| {
        Err(ApiError::new(ErrorCode::BadRequest, what)
            .with_hint("give inSeconds (from 1 on), or a deadline such as 2026-11-20T12:00:00Z"))
    };
    match (body.deadline, body.in_seconds) {
        (Some(_), Some(_)) => bad("deadline and inSeconds: only one of them can be given"),
        (None, None) => bad("a notice needs a deadline"),
        (Some(at), None) if at <= now => bad("deadline: that time is over"),
        (Some(at), None) => Ok(at),
        (None, Some(0)) => bad("inSeconds: at least 1"),
        (None, Some(seconds)) => match now.checked_add(Duration::from_secs(seconds)) {
            Ok(at) => Ok(at),
            Err(_) => bad("inSeconds: too far away"),
        },
    }
}
