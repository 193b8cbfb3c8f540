//! Handles pods that become known during the run. "Not known yet" never means "nothing is running".

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use winddown_shared::{Pod, PodStopped, PodUid};

use super::kills::Wait;
use super::{Cancelled, ReportPosition, RunStop, ShutdownRun};
use crate::EndingPods;
use crate::{PodEnd, RunPhase};

/// The error of a pod whose state is unknown.
const NOT_KNOWN: &str = "the container runtime did not report whether it runs";
/// The error of a pod that became known when the time was over.
const TOO_LATE: &str = "it became known when there was no time left to terminate it";

/// Which pods are known.
pub(super) struct Discovery {
    pub(super) seen: HashSet<PodUid>,
    /// The controllers of the seen pods.
    pub(super) controllers: HashSet<String>,
    /// Pods of an earlier agent's run that are not listed, while the runtime has not listed its pods yet.
    pub(super) missing: HashMap<PodUid, ReportPosition>,
    /// Queries to the runtime about how missing pods ended.
    pub(super) unseen_ends: JoinSet<(ReportPosition, Option<PodStopped>)>,
    /// Whether the runtime has listed its pods.
    pub(super) known: bool,
    pub(super) more_known: watch::Receiver<u64>,
}

impl Discovery {
    /// Before the first listing, with room for so many pods.
    pub(super) fn new(more_known: watch::Receiver<u64>, pods: usize) -> Self {
        Self {
            seen: HashSet::with_capacity(pods),
            controllers: HashSet::new(),
            missing: HashMap::new(),
            unseen_ends: JoinSet::new(),
            known: false,
            more_known,
        }
    }

    /// Asks the runtime how a pod ended that no agent saw end.
    pub(super) fn ask_how_it_ended<K: EndingPods>(
        &mut self,
        killer: &Arc<K>,
        uid: &PodUid,
        place: ReportPosition,
    ) {
        let (killer, uid) = (Arc::clone(killer), uid.clone());
        self.unseen_ends.spawn(async move { (place, killer.unseen_end(&uid).await) });
    }
}

impl<K: EndingPods> ShutdownRun<'_, K> {
    /// Adds running pods that have not been seen yet.
    pub(super) fn look_again(&mut self) {
        self.discovery.more_known.borrow_and_update();
        let running = self.killer.running();
        // Once known, this stays known: if the runtime stops answering, the workers still have its pods.
        self.discovery.known |= running.known;
        if let Some(journal) = &mut self.params.journal {
            journal.pods_unknown = !self.discovery.known;
        }
        let planned_nothing = self.groups.iter().all(|group| group.pods.is_empty());
        for pod in running.into_pods() {
            if !self.discovery.seen.contains(pod.uid()) {
                self.take_in(pod);
            }
        }
        if self.discovery.known {
            self.settle_missing();
        }
        self.ask_the_overdue();
        let is_fresh = planned_nothing && self.params.carried.is_none();
        if is_fresh && self.unasked.waiting.iter().any(|waiting| !waiting.is_empty()) {
            self.plan_anew();
        }
        self.order.progress.pods_unknown(!self.discovery.known);
    }

    fn take_in(&mut self, pod: Pod) {
        if let Some(place) = self.discovery.missing.remove(pod.uid()) {
            self.discovery.seen.insert(pod.uid().clone());
            self.unasked.waiting[place.group].push((place, pod));
            return;
        }
        let Some(group) = self.plan.group_for(&pod) else { return };
        if group == self.groups.len() {
            self.add_groups();
            self.order.progress.add_group(&self.plan.groups[group]);
        }
        let allowed = self.plan.groups[group].allowed;
        let grace = pod.termination_grace_period().unwrap_or(allowed).min(allowed);
        self.enlist(group, pod, grace);
        self.order.progress.group(group, |group| group.pods += 1);
    }

    /// Plans again for the time left: the first plan was made without any pods, so it does not say how they
    /// share the time.
    fn plan_anew(&mut self) {
        let waiting = std::mem::take(&mut self.unasked.waiting).into_iter().flatten();
        let pods: Vec<Pod> = waiting.map(|(_, pod)| pod).collect();
        let now = self.elapsed();
        self.plan = self.plan.replan(&pods, now);
        self.work.kept_after_pods = self.plan.kept_after_pods();
        self.first_group = now + self.plan.endpoint_drain;
        if let Some(journal) = &mut self.params.journal {
            let drain = Some(self.plan.endpoint_drain).filter(|drain| !drain.is_zero());
            journal.header.endpoint_drain = drain;
        }
        self.order.progress.begin(&self.plan, self.order.started);
        self.groups.clear();
        self.discovery.seen.clear();
        self.discovery.controllers.clear();
        let planned = self.plan.take_pods();
        self.enlist_all(planned);
    }

    /// Waits until more pods may be known, or the time is over.
    pub(super) async fn wait_for_more(&mut self) -> Result<(), Cancelled> {
        let has_begun = self.groups.iter().any(|group| group.started.is_some());
        if !std::mem::replace(&mut self.notes.has_waited, true) {
            tracing::warn!(
                "the container runtime has not listed its pods: waiting until the time is over"
            );
            // Noted, so that the next agent continues with the same times.
            self.note(if has_begun { RunPhase::Ending } else { RunPhase::LameDuck }).await;
        }
        self.answers(Wait::More).await
    }

    /// Waits until all pods have terminated, or the time is over. Pods that come meanwhile are asked while there is time,
    /// and in the report in any case.
    pub(super) async fn answers_of_all(&mut self) -> Result<(), Cancelled> {
        loop {
            self.kills.overdue.clear();
            self.answers(Wait::End).await?;
            if !self.discovery.more_known.has_changed().unwrap_or(false) {
                return Ok(());
            }
            self.look_again();
            if let Some(group) = self.next_group(self.groups.len()) {
                // Those of other groups that are still awaited are none of its round's.
                self.kills.overdue.extend(self.kills.asked.keys());
                let batch = self.due(group);
                self.round(group, batch).await?;
            }
        }
    }

    /// Marks pods of an earlier agent's run that are not listed as gone.
    pub(super) fn settle_missing(&mut self) {
        if self.discovery.missing.is_empty() {
            return;
        }
        for (uid, place) in std::mem::take(&mut self.discovery.missing) {
            if self.groups[place.group].pods[place.pod].end_unseen() {
                self.discovery.ask_how_it_ended(self.killer, &uid, place);
            }
            // The earlier agent may not have seen that.
            self.await_release(place, uid, true);
        }
        self.finish_what_is_over();
        self.publish_progress();
    }

    /// Marks pods that this agent has not requested to stop: they were never listed, or there was no time left.
    pub(super) fn give_up_on_the_unasked(&mut self, stop: RunStop) {
        let missing = self.discovery.missing.drain().map(|(_, place)| (place, NOT_KNOWN));
        let waiting = self.unasked.waiting.iter().flatten().map(|(place, _)| (*place, TOO_LATE));
        for (place, error) in missing.chain(waiting) {
            let report = &mut self.groups[place.group].pods[place.pod];
            if report.end.is_over() {
                continue;
            }
            match stop {
                RunStop::Cancelled if report.asked.is_some() => report.end = PodEnd::Terminating,
                RunStop::Cancelled => {}
                RunStop::Finished | RunStop::Panicked => {
                    report.end = PodEnd::StillRunning;
                    report.error = Some(error.into());
                    self.order.progress.group(place.group, |group| group.failed += 1);
                }
            }
        }
    }
}
