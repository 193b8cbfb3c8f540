//! Shortens a run in progress.

use std::time::Duration;

use super::kills::Asked;
use super::{ReportPosition, ShutdownRun};
use crate::EndingPods;
use crate::budget::whole_seconds;

impl<K: EndingPods> ShutdownRun<'_, K> {
    /// Adopts the new context and persists it.
    pub(super) async fn follow(&mut self) {
        let Some(context) = &mut self.params.context else { return };
        let context = context.borrow_and_update().clone();
        self.budget = context.budget;
        if let Some(journal) = &mut self.params.journal {
            journal.set_context(&context);
        }
        self.spare_survivors();
        self.fail_staying();
        if self.budget.pods < self.plan.deadline {
            self.shorten();
        }
        if let Some(journal) = &mut self.params.journal {
            journal.first_group = self.first_group;
            journal.note_again(&self.groups).await;
        }
    }

    /// Divides the time left, and shortens the grace periods of pods that would take longer. The wait
    /// before the first group is shortened first, as far as the pods need its time.
    pub(super) fn shorten(&mut self) {
        let now = self.elapsed();
        let wants: Vec<_> = (0..self.groups.len()).map(|group| self.wants(group, now)).collect();
        let deadline = self.budget.pods;
        let needed: Duration = wants.iter().flatten().sum();
        let first_group = self.first_group.min(deadline.saturating_sub(needed).max(now));
        if let Some(journal) = &mut self.params.journal {
            journal.start_sooner(self.first_group - first_group);
        }
        self.first_group = first_group;
        let mut begin = now.max(self.first_group);
        if let Some(until) = self.hurry_work(deadline) {
            begin = begin.max(until.saturating_duration_since(self.order.started));
        }
        self.plan.shorten(begin, deadline, &wants);
        self.work.kept_after_pods = self.plan.kept_after_pods();
        if let Some(drivers) = &mut self.unasked.held_back {
            let left = self.plan.groups[drivers.group].latest_end.saturating_sub(now);
            drivers.kept = drivers.kept.min(left / 3);
        }
        for (report, group) in self.groups.iter_mut().zip(&self.plan.groups) {
            if report.ended.is_none() {
                report.allowed = group.allowed;
                report.latest_end = group.latest_end;
            }
        }
        self.order.progress.move_deadline(self.order.started + self.plan.deadline);
        self.hurry(now);
    }

    /// Returns the time that the pods of a group still ask for; none if the group is over.
    fn wants(&self, group: usize, now: Duration) -> Option<Duration> {
        let report = &self.groups[group];
        if report.ended.is_some() {
            return None;
        }
        let waiting =
            self.unasked.waiting[group].iter().map(|(place, pod)| match self.kill_at(*place) {
                Some(kill_at) => kill_at.saturating_sub(now),
                None => pod
                    .termination_grace_period()
                    .unwrap_or(report.configured)
                    .min(report.configured),
            });
        let longest = waiting.max().map(|longest| longest.max(Duration::from_secs(1)));
        let asked = self.kills.asked.values().filter(|asked| asked.place.group == group);
        let in_flight = asked.filter_map(|asked| self.kill_at(asked.place));
        let last = in_flight.max().map(|last| last.saturating_sub(now));
        Some(longest.max(last).unwrap_or(Duration::ZERO))
    }

    /// When SIGKILL is due for a pod that has been requested to stop.
    fn kill_at(&self, place: ReportPosition) -> Option<Duration> {
        let report = &self.groups[place.group].pods[place.pod];
        report.asked.map(|asked| asked + report.grace)
    }

    /// Repeats the request, with a shorter grace period, to pods that would outlive their group's new end.
    fn hurry(&mut self, now: Duration) {
        let late = |asked: &Asked| {
            let latest_end = self.latest_end(asked.place.group);
            self.kill_at(asked.place).is_some_and(|at| at > latest_end.max(now))
        };
        let late: Vec<_> = self
            .kills
            .asked
            .iter()
            .filter(|(id, asked)| !self.kills.overdue.contains(id) && late(asked))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            let Some(Asked { place, pod, wait }) = self.kills.asked.remove(&id) else { continue };
            wait.abort();
            let latest_end = self.latest_end(place.group);
            let grace = whole_seconds(latest_end.saturating_sub(now)).max(Duration::from_secs(1));
            let report = &mut self.groups[place.group].pods[place.pod];
            let wanted = report.wanted_grace.unwrap_or(report.grace);
            report.grace = now.saturating_sub(report.asked.unwrap_or(now)) + grace;
            report.wanted_grace = Some(wanted).filter(|wanted| *wanted > report.grace);
            self.kill(place, pod, grace, None);
        }
    }
}
