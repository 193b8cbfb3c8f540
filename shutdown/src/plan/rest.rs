//! Divides the remaining time again when it shrinks during a run.

use std::time::Duration;

use winddown_shared::seconds_up;

use super::{Plan, WorkPlace, share, work};

impl Plan {
    /// Moves the deadline forward to `deadline`, at the moment `now`. Both count from the signal.
    ///
    /// `wants` has, for each group, the time that its pods still ask for: zero for a group without pods,
    /// `None` for one whose time is over, which stays as it is. If they exceed the time left, the longest
    /// are cut to a common length. Time that no pod asks for stays with its group.
    pub(crate) fn shorten(
        &mut self,
        now: Duration,
        deadline: Duration,
        wants: &[Option<Duration>],
    ) {
        self.deadline = self.deadline.min(deadline);
        let left = self.deadline.saturating_sub(now);
        work::cut(&mut self.work, left);
        let left = left.saturating_sub(self.kept_for_work()).as_secs();
        let seconds: Vec<u64> = wants.iter().map(|want| want.map_or(0, seconds_up)).collect();
        let allowed = self.groups.iter().map(|group| group.allowed.as_secs());
        let shares = share::level_with_rest(&seconds, allowed, left);
        let last = self.kept_at(WorkPlace::Before(self.groups.len()));
        let mut end = self.deadline.saturating_sub(self.kept_after_pods() + last);
        for (index, (share, want)) in shares.into_iter().zip(wants).enumerate().rev() {
            if want.is_none() {
                continue;
            }
            let kept = self.kept_at(WorkPlace::Before(index));
            let group = &mut self.groups[index];
            group.latest_end = end;
            group.allowed = group.allowed.min(Duration::from_secs(share));
            end = end.saturating_sub(Duration::from_secs(share) + kept).max(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::tests::{period, pod, secs};
    use crate::{Policy, plan};

    /// Returns the latest ends after three groups of 10 s were shortened.
    fn ends(now: u64, deadline: u64, wants: [Option<Duration>; 3]) -> Vec<u64> {
        let policy = Policy::by_priority([0, 1, 2].map(|p| period(p, 10))).unwrap();
        let pods = [0, 1, 2].map(|p| pod(&format!("p{p}"), Some(p), Some(60)));
        let mut plan = plan(&pods, &policy, None);
        plan.shorten(secs(now), secs(deadline), &wants);
        assert_eq!(plan.deadline, secs(deadline.min(30)));
        let under_way = plan.groups.iter().zip(wants).filter(|(_, want)| want.is_some());
        let allowed: Duration = under_way.map(|(group, _)| group.allowed).sum();
        assert!(allowed <= secs(deadline.saturating_sub(now)), "{allowed:?}");
        plan.groups.iter().map(|group| group.latest_end.as_secs()).collect()
    }

    #[test]
    fn what_is_left_is_divided_by_what_the_pods_still_ask_for() {
        let s = |seconds| Some(secs(seconds));
        let half = Some(Duration::from_millis(2500));
        for (what, now, deadline, wants, wanted) in [
            ("evenly where it is not enough", 0, 15, [s(10), s(10), s(10)], [5, 10, 15]),
            ("evenly where it is not enough", 5, 20, [s(5), s(10), s(10)], [10, 15, 20]),
            ("evenly where it is not enough", 5, 12, [s(5), s(10), s(10)], [7, 9, 12]),
            ("a group that is over stays", 12, 20, [None, s(8), s(10)], [10, 16, 20]),
            ("one without pods takes nothing", 12, 20, [None, s(0), s(10)], [10, 12, 20]),
            ("spare time stays with the groups", 0, 20, [s(1), s(1), s(10)], [5, 10, 20]),
            ("a part of a second is a second", 0, 15, [half, s(10), s(10)], [3, 9, 15]),
            ("no end is moved before now", 10, 8, [s(5), s(10), s(10)], [10, 10, 8]),
            ("a later deadline changes nothing", 0, 60, [s(10), s(10), s(10)], [10, 20, 30]),
        ] {
            assert_eq!(ends(now, deadline, wants), wanted, "{what}");
        }
    }
}
