//! Kill requests to the pods, and their results.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use winddown_shared::{KillError, KillRequest, LateRemark, Pod, PodStopped};

use super::outcome::StopFailure;
use super::{Cancelled, REAP_TIME, ReportPosition, RunStop, ShutdownRun, changed};
use crate::EndingPods;
use crate::PodEnd;
use crate::grace::{ROUNDING_TOLERANCE, room};
use crate::in_place::status_of_staying;

/// A pod that is about to be requested to stop. The report has its grace period already.
pub(super) struct Due {
    pub(super) place: ReportPosition,
    pub(super) pod: Pod,
    /// Whether an earlier agent requested it to stop, so that its grace period is already running.
    again: bool,
}

/// A pod that has been requested to stop, without a result so far.
pub(super) struct Asked {
    pub(super) place: ReportPosition,
    pub(super) pod: Pod,
    /// Aborts the wait for the result, but not the kill.
    pub(super) wait: AbortHandle,
}

/// What [`ShutdownRun::answers`] waits for.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// The pods in the current round of a group.
    Group {
        /// The group's index.
        index: usize,
        /// When its round began.
        begun: Instant,
        /// When the last grace of its pods is over, which is rounded up to whole seconds.
        killed: Duration,
    },
    /// The resources of stopped pods, before the drivers that these may need are requested to stop.
    Drivers {
        /// When to stop waiting: the drivers need the rest of the time.
        until: Instant,
    },
    /// All pods that have been requested to stop, and their resources.
    End,
    /// The work of plug-ins.
    Work,
    /// More pods to stop.
    More,
}

impl Due {
    /// Creates the entry of a pod that an earlier agent requested to stop.
    pub(super) fn again(place: ReportPosition, pod: Pod) -> Self {
        Self { place, pod, again: true }
    }
}

pub(super) struct Kills {
    pub(super) running: JoinSet<Result<Arc<PodStopped>, KillError>>,
    pub(super) asked: HashMap<Id, Asked>,
    /// Kills of earlier groups that did not complete within their group's time.
    pub(super) overdue: HashSet<Id>,
    pub(super) last_exit: Instant,
    /// Of the pods that have stopped.
    pub(super) afterwards: Vec<(ReportPosition, LateRemark)>,
}

impl Kills {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            running: JoinSet::new(),
            asked: HashMap::new(),
            overdue: HashSet::new(),
            last_exit: started,
            afterwards: Vec::new(),
        }
    }
}

impl<K: EndingPods> ShutdownRun<'_, K> {
    /// Writes into the report when the pods of `batch` are requested to stop and which grace periods they
    /// get, before they are requested to stop. Keeps the grace periods that an earlier agent gave.
    pub(super) fn schedule(
        &mut self,
        group: usize,
        batch: Vec<(ReportPosition, Pod)>,
        latest_end: Duration,
    ) -> Vec<Due> {
        let offset = self.elapsed();
        let room = room(latest_end, offset);
        let comes_back = self.node_comes_back();
        self.groups[group].started.get_or_insert(offset);
        let schedule = |(place, pod): (ReportPosition, Pod)| {
            let allowed = self.plan.groups[place.group].allowed;
            let group = &mut self.groups[place.group];
            group.started.get_or_insert(offset);
            let report = &mut group.pods[place.pod];
            let again = report.asked.is_some();
            if !again {
                report.stays_on_reboot =
                    comes_back && report.prior_reason.is_none() && self.plan.may_stay(&pod);
                let own = pod.termination_grace_period().unwrap_or(allowed);
                // No request lengthens the time of a pod that is terminating already.
                let wants = self.killer.grace_left(pod.uid()).map_or(own, |left| left.min(own));
                report.asked = Some(offset);
                report.grace = wants.min(room);
                report.wanted_grace = Some(wants).filter(|wants| *wants > report.grace);
            }
            Due { place, pod, again }
        };
        batch.into_iter().map(schedule).collect()
    }

    /// Undoes [`schedule`](Self::schedule) for a batch that is not requested to stop after all.
    pub(super) fn take_back(&mut self, batch: Vec<Due>) {
        for due in batch {
            let group = &mut self.groups[due.place.group];
            if !due.again {
                let report = &mut group.pods[due.place.pod];
                (report.asked, report.stays_on_reboot) = (None, false);
                if group.pods.iter().all(|pod| pod.asked.is_none()) {
                    group.started = None;
                }
            }
            self.unasked.waiting[due.place.group].push((due.place, due.pod));
        }
    }

    /// Requests one pod to stop. Its grace period ends as promised before, or at `latest_end` if that is sooner.
    pub(super) fn ask(&mut self, due: Due, latest_end: Duration) -> Id {
        let offset = self.elapsed();
        let report = &mut self.groups[due.place.group].pods[due.place.pod];
        let (grace, until) = if due.again {
            let until = report.kill_at(latest_end).unwrap_or(offset);
            (until.saturating_sub(offset), Some(self.order.started + until))
        } else {
            report.asked = Some(offset);
            report.grace = report.grace.min(room(latest_end, offset));
            (report.grace, None)
        };
        self.kill(due.place, due.pod, grace, until)
    }

    /// Sends the request, and waits in a task of its own, so that a kill that panics does not affect others.
    pub(super) fn kill(
        &mut self,
        place: ReportPosition,
        pod: Pod,
        grace: Duration,
        until: Option<Instant>,
    ) -> Id {
        let comes_back = self.node_comes_back();
        let stays = &mut self.groups[place.group].pods[place.pod].stays_on_reboot;
        *stays &= comes_back;
        let request = KillRequest::new(self.order.reason)
            .with_grace(Some(grace))
            .with_until(until)
            .with_status(if *stays { Some(status_of_staying()) } else { self.order.status.clone() })
            .with_deadline(self.order.started.checked_add(self.budget_of_pods().kills_until()));
        let (killer, asked) = (Arc::clone(self.killer), pod.clone());
        let kill = async move { killer.kill_pod(asked, request).await };
        let mut kill = Box::pin(AssertUnwindSafe(kill).catch_unwind());
        // The first poll makes the request. Here and not in the task, which is aborted before that if the run is cancelled
        // now: the record says already that the pod was requested.
        let answer = (&mut kill).now_or_never();
        let wait = self.kills.running.spawn(async move {
            let answer = match answer {
                Some(answer) => answer,
                None => kill.await,
            };
            // The agent stops, and leaves the pod to the next one.
            if matches!(answer, Ok(Err(KillError::WorkersGone { .. }))) {
                return pending().await;
            }
            answer.unwrap_or_else(|panic| resume_unwind(panic))
        });
        let id = wait.id();
        self.kills.asked.insert(id, Asked { place, pod, wait });
        id
    }

    /// Processes results until everything that `wait` covers is done or its time is over. The kills
    /// continue regardless.
    pub(super) async fn answers(&mut self, wait: Wait) -> Result<(), Cancelled> {
        loop {
            let is_awaited = self.kills.asked.len() > self.kills.overdue.len();
            let until = if matches!(wait, Wait::Work) {
                if self.work.tasks.is_empty() {
                    return Ok(());
                }
                self.work.until
            } else if is_awaited || matches!(wait, Wait::More) {
                self.answered_until(wait)
            } else if self.holds_on(wait) {
                self.released_until(wait)
            } else {
                return Ok(());
            };
            tokio::select! {
                biased;
                Some(answer) = self.kills.running.join_next_with_id() => self.take(answer),
                Some(answer) = self.releases.running.join_next_with_id() => self.take_release(answer),
                Some(answer) = self.work.tasks.join_next_with_id() => self.take_work(answer),
                () = self.cancel.cancelled() => return Err(Cancelled),
                () = changed(self.params.context.as_mut()) => self.follow().await,
                () = changed(Some(&mut self.discovery.more_known)), if matches!(wait, Wait::More | Wait::End) => {
                    // It stays news until the next look.
                    self.discovery.more_known.mark_changed();
                    return Ok(());
                }
                () = sleep_until(self.notes.due.unwrap_or(until)), if self.notes.due.is_some() => {
                    self.note_ends();
                }
                () = sleep_until(until) => return Ok(()),
            }
        }
    }

    pub(super) fn answered_until(&self, wait: Wait) -> Instant {
        match wait {
            Wait::Group { index, begun, killed } => {
                let latest = self.latest_end(index);
                let end = self.order.started + latest;
                let killed = killed.min(latest + ROUNDING_TOLERANCE);
                if end > begun { end.max(self.order.started + killed) + REAP_TIME } else { begun }
            }
            Wait::End => self.order.started + self.budget_of_pods().abandon_at(),
            Wait::Drivers { until } => until,
            Wait::Work => self.work.until,
            Wait::More => self.order.started + self.plan.deadline,
        }
    }

    fn take(&mut self, answer: Result<(Id, Result<Arc<PodStopped>, KillError>), JoinError>) {
        let (id, answer) = match answer {
            Ok((id, answer)) => (id, answer.map_err(|e| StopFailure::of(e, self.order.reason))),
            Err(error) => (error.id(), Err(StopFailure::panicked())),
        };
        self.kills.overdue.remove(&id);
        let Some(Asked { place, pod, .. }) = self.kills.asked.remove(&id) else { return };
        let since = self.order.started;
        let offset = |at: Instant| at.saturating_duration_since(since);
        let now = self.elapsed();
        let report = &mut self.groups[place.group].pods[place.pod];
        // If an earlier agent requested the pod to stop, the SIGTERM from this agent was not its first.
        let first = report.asked >= self.taken_over;
        let (was, counted) = (report.end, report.end.is_over());
        let end = match answer {
            // It had stopped before, and none of its containers was running any more.
            Ok(stopped) if counted && stopped.containers.is_empty() => was,
            // It had exited before this agent asked it again: if any, the runtime knows when.
            Ok(stopped)
                if !first && stopped.containers.is_empty() && stopped.signalled_at.is_none() =>
            {
                report.end_unseen();
                self.discovery.ask_how_it_ended(self.killer, pod.uid(), place);
                report.end
            }
            Ok(stopped) => {
                let signalled = stopped.signalled_at.filter(|_| first).map(offset);
                report.sigterm = report.sigterm.or(signalled);
                report.end_as(Some(stopped.stopped_at.map_or(now, offset)), &stopped);
                report.add_remark(stopped.remark.as_deref());
                self.kills.afterwards.push((place, stopped.afterwards.clone()));
                report.end
            }
            Err(StopFailure { end, error, still_running }) => {
                let (namespace, pod) = (&report.namespace, &report.name);
                if end == PodEnd::NotDrainable {
                    tracing::info!(namespace, pod, error, "pod stays");
                    (report.asked, report.wanted_grace) = (None, None);
                } else {
                    tracing::warn!(namespace, pod, error, "pod not terminated");
                }
                report.error = Some(error);
                report.containers = still_running;
                end
            }
        };
        report.end = end;
        if was != end {
            self.has_to_note(end);
        }
        self.count(place, end, counted);
        if end.has_terminated() {
            self.release(place, &pod);
        }
    }

    /// Adds the end of a pod to its group's progress, unless it was `counted` before.
    fn count(&self, place: ReportPosition, end: PodEnd, counted: bool) {
        self.order.progress.group(place.group, |group| {
            if !end.has_terminated() {
                group.failed += 1;
            } else if !counted {
                group.ended += 1;
                group.forced += usize::from(end == PodEnd::Killed);
            }
        });
    }

    /// Adds to the report what became of pods after they had stopped.
    pub(super) fn remark_afterwards(&mut self) {
        for (place, remark) in self.kills.afterwards.drain(..) {
            let report = &mut self.groups[place.group].pods[place.pod];
            report.add_remark(remark.get().as_deref());
            if remark.is_killed() && report.end == PodEnd::Exited {
                report.end = PodEnd::Killed;
            }
        }
    }

    /// Marks pods without a result, and lets their kills continue in the background.
    pub(super) fn give_up_on_the_rest(&mut self, stop: RunStop) {
        self.kills.running.detach_all();
        self.give_up_on_the_unasked(stop);
        for (_, asked) in self.kills.asked.drain() {
            let place = asked.place;
            let report = &mut self.groups[place.group].pods[place.pod];
            report.end = match stop {
                RunStop::Cancelled => PodEnd::Terminating,
                _ => {
                    report.error = Some("no answer from the pod workers at the deadline".into());
                    self.order.progress.group(place.group, |group| group.failed += 1);
                    PodEnd::StillRunning
                }
            };
        }
        self.give_up_on_releases(stop);
    }
}
