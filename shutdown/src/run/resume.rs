//! Resumes the run of an earlier agent.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use winddown_shared::{PodStopped, PodUid};

use super::{ReportPosition, ShutdownRun};
use crate::EndingPods;
use crate::run::kills::Due;
use crate::{GroupReport, PodEnd, PodReport, Role};

/// The error of a pod that ended unobserved.
const UNSEEN: &str =
    "it was gone when the agent came back, and the runtime does not say when it terminated";
/// How long to wait, at the end of a run, for the runtime to report such ends.
const END_REPORT_TIMEOUT: Duration = Duration::from_secs(1);

impl<K: EndingPods> ShutdownRun<'_, K> {
    /// Takes over an earlier agent's record: when pods were requested to stop and with which grace periods,
    /// which groups are over, and which pods have stopped. Pods of groups that are over are requested to
    /// stop at once, and awaited along with the others.
    ///
    /// If the configuration has changed since then, the groups are those of the new one, but each pod keeps
    /// the grace period that it was given.
    pub(super) fn take_over(&mut self, mut carried: Vec<GroupReport>) {
        self.taken_over = Some(self.elapsed());
        self.match_groups(&mut carried);
        let Some(last) = self.groups.len().checked_sub(1) else { return };
        let same = carried.len() == self.groups.len()
            && carried.iter().zip(&self.groups).all(|(was, is)| was.is_same_group(is));
        if same {
            self.regroup(&carried);
        }
        let places = self.places();
        for (index, mut was) in carried.into_iter().enumerate() {
            let into = index.min(last);
            let pods = std::mem::take(&mut was.pods);
            if same {
                self.plan.groups[index].allowed = was.allowed;
                self.plan.groups[index].latest_end = was.latest_end;
                self.plan.deadline = was.latest_end;
                let here = std::mem::take(&mut self.groups[index].pods);
                self.groups[index] = GroupReport { pods: here, ..was };
            }
            for pod in pods {
                match places.get(pod.uid.as_str()) {
                    Some(place) => self.groups[place.group].pods[place.pod].go_on(pod),
                    None if self.has_other_uid(&pod) => {}
                    None => self.miss(into, pod),
                }
            }
        }
        // Of a group that the earlier agent did not have.
        for group in self.groups.iter_mut().filter(|group| group.started.is_none()) {
            group.started = group.pods.iter().filter_map(|pod| pod.asked).min();
        }
        if self.discovery.known {
            self.settle_missing();
        }
        self.finish_what_is_over();
        if self.budget.pods < self.plan.deadline {
            self.shorten();
        }
        self.ask_the_overdue();
        self.publish_progress();
    }

    /// If either run has a group of unknown pods, both get one.
    fn match_groups(&mut self, carried: &mut Vec<GroupReport>) {
        let unknown = Role::Unknown.name();
        let has_it = carried.iter().any(|was| was.name.as_deref() == Some(unknown));
        let before = self.groups.len();
        self.plan.ensure_unknown(has_it);
        self.add_groups();
        if self.groups.len() > before {
            self.order.progress.add_group(&self.plan.groups[before]);
        }
        let last = self.plan.groups.last().filter(|last| last.is_unknown() && !has_it);
        if let (Some(last), Some(end)) = (last, carried.last().map(|was| was.latest_end)) {
            let end = last.latest_end.max(end);
            carried.push(GroupReport { latest_end: end, ..GroupReport::unstarted(last) });
        }
    }

    /// Moves the pods to the groups in which the earlier agent had them: this one may know less of them than their
    /// priorities.
    fn regroup(&mut self, carried: &[GroupReport]) {
        let groups = carried.iter().enumerate();
        let groups: HashMap<&str, usize> = groups
            .flat_map(|(group, of)| of.pods.iter().map(move |pod| (pod.uid.as_str(), group)))
            .collect();
        let reports: Vec<_> =
            self.groups.iter_mut().map(|group| std::mem::take(&mut group.pods)).collect();
        for (was, pod) in
            self.unasked.waiting.iter_mut().flat_map(std::mem::take).collect::<Vec<_>>()
        {
            let group = groups.get(pod.uid().as_str()).copied().unwrap_or(was.group);
            let place = ReportPosition { group, pod: self.groups[group].pods.len() };
            self.groups[group].pods.push(reports[was.group][was.pod].clone());
            self.unasked.waiting[group].push((place, pod));
        }
    }

    /// Whether a pod that the earlier agent had not asked is listed with another UID: the API server knows a static pod
    /// by that of its mirror pod, and the container runtime by its own.
    fn has_other_uid(&self, was: &PodReport) -> bool {
        let mut pods = self.groups.iter().flat_map(|group| &group.pods);
        was.asked.is_none()
            && pods.any(|pod| {
                pod.name == was.name && pod.namespace == was.namespace && pod.uid != was.uid
            })
    }

    /// Keeps a pod of the earlier run that is not listed, with its grace.
    fn miss(&mut self, group: usize, mut was: PodReport) {
        if !was.end.is_over() {
            was.end = PodEnd::Spared;
        }
        let pods = &mut self.groups[group].pods;
        let place = ReportPosition { group, pod: pods.len() };
        self.discovery.missing.insert(PodUid::new(was.uid.as_str()), place);
        pods.push(was);
    }

    fn places(&self) -> HashMap<String, ReportPosition> {
        let place = |group: usize, pod: usize, report: &PodReport| {
            (report.uid.clone(), ReportPosition { group, pod })
        };
        let pods = |(group, of): (usize, &GroupReport)| {
            let places = of.pods.iter().enumerate().map(|(pod, report)| place(group, pod, report));
            places.collect::<Vec<_>>()
        };
        self.groups.iter().enumerate().flat_map(pods).collect()
    }

    /// Marks groups as over if their last pod stopped while no agent was running.
    pub(super) fn finish_what_is_over(&mut self) {
        let now = self.elapsed();
        for (index, (group, waiting)) in
            self.groups.iter_mut().zip(&self.unasked.waiting).enumerate()
        {
            let is_open = group.started.is_some() && group.ended.is_none();
            let misses = self.discovery.missing.values().any(|place| place.group == index);
            if is_open && waiting.is_empty() && !misses {
                let exits: Option<Vec<_>> = group.pods.iter().map(|pod| pod.exit).collect();
                group.ended = exits.and_then(|exits| exits.into_iter().max()).or(Some(now));
            }
        }
    }

    /// Collects the runtime's reports on ends that no agent observed. Ends that are not reported soon remain
    /// unknown.
    pub(super) async fn take_unseen_ends(&mut self) {
        let abandon_at = self.order.started + self.budget_of_pods().abandon_at();
        let until = abandon_at.min(Instant::now() + END_REPORT_TIMEOUT);
        while let Ok(Some(told)) = timeout_at(until, self.discovery.unseen_ends.join_next()).await {
            let Ok((place, Some(stopped))) = told else { continue };
            let begun = self.order.started;
            let at = stopped.stopped_at.map(|at| at.saturating_duration_since(begun));
            let report = &mut self.groups[place.group].pods[place.pod];
            // If this end is from before the request to stop, the pod was restarted and ended once more.
            if at >= report.asked && at.is_some() {
                report.end_as(at, &stopped);
            }
        }
    }

    pub(super) fn ask_the_overdue(&mut self) {
        for index in 0..self.groups.len() {
            if self.groups[index].ended.is_none() {
                continue;
            }
            let latest_end = self.plan.groups[index].latest_end;
            let waiting = std::mem::take(&mut self.unasked.waiting[index]);
            for (place, pod) in waiting {
                if self.groups[place.group].pods[place.pod].asked.is_none() {
                    self.unasked.waiting[index].push((place, pod));
                    continue;
                }
                let id = self.ask(Due::again(place, pod), latest_end);
                self.kills.overdue.insert(id);
            }
        }
    }

    pub(super) fn publish_progress(&self) {
        let (now, begun) = (Instant::now(), self.order.started);
        for (index, group) in self.groups.iter().enumerate() {
            let count =
                |is: fn(PodEnd) -> bool| group.pods.iter().filter(|pod| is(pod.end)).count();
            self.order.progress.group(index, |progress| {
                progress.pods = group.pods.len();
                progress.forced = count(|end| end == PodEnd::Killed);
                progress.ended = count(PodEnd::has_terminated);
                progress.started = group.started.map(|offset| (begun + offset).min(now));
                progress.finished = group.ended.map(|offset| (begun + offset).min(now));
            });
        }
    }
}

impl GroupReport {
    fn is_same_group(&self, other: &Self) -> bool {
        self.priority == other.priority && self.name == other.name
    }
}

impl PodReport {
    /// Adopts the earlier report of a pod that still exists, with its grace period, and its end if that was
    /// observed already.
    fn go_on(&mut self, was: Self) {
        if was.end.is_over() {
            *self = was;
        } else if was.asked.is_some() {
            *self = Self { end: PodEnd::Spared, error: None, containers: Vec::new(), ..was };
        } else {
            self.priority = self.priority.or(was.priority);
        }
    }

    /// Marks a pod that no longer exists as exited if an agent had asked it to, and as gone if none had. Returns false
    /// if its end was known already.
    pub(super) fn end_unseen(&mut self) -> bool {
        let is_news = !self.end.is_over();
        if is_news {
            let end = if self.asked.is_some() { PodEnd::Exited } else { PodEnd::Gone };
            (self.end, self.error) = (end, Some(UNSEEN.into()));
        }
        is_news
    }

    pub(super) fn add_remark(&mut self, more: Option<&str>) {
        let before = self.remark.take();
        let both: Vec<&str> = before.as_deref().into_iter().chain(more).collect();
        self.remark = (!both.is_empty()).then(|| both.join("; "));
    }

    /// Fills in the pod's end, as the runtime reports it.
    pub(super) fn end_as(&mut self, exit: Option<Duration>, stopped: &PodStopped) {
        let forced = stopped.containers.iter().filter(|container| container.forced);
        self.containers = forced.map(|container| container.name.to_string()).collect();
        self.end = PodEnd::of(stopped);
        (self.exit, self.error) = (exit, None);
    }
}
