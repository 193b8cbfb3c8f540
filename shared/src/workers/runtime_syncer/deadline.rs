//! The active deadline of a pod: `activeDeadlineSeconds`.

use std::time::Duration;

use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::{Pod, PodUid, PodUidMap, StatusOverride, WallTime};

/// The ages of pods with a deadline, by the monotonic clock.
///
/// Wall time is read once per pod and agent, to determine the pod's age: a clock that is set later terminates no pod.
#[derive(Debug, Default)]
pub struct ActiveDeadlines(Mutex<PodUidMap<FirstSeen>>);

/// A pod's age when this agent first saw it.
#[derive(Clone, Copy, Debug)]
struct FirstSeen {
    age: Duration,
    at: Instant,
}

impl ActiveDeadlines {
    /// The rest of the pod's time, zero when it is over; `None` if it has no deadline. `started` is
    /// the status's `startTime`, `None` for a pod that starts now.
    pub fn left(
        &self,
        pod: &Pod,
        started: Option<WallTime>,
        wall: WallTime,
        now: Instant,
    ) -> Option<Duration> {
        let deadline = of(pod)?;
        let mut pods = self.0.lock();
        let seen = pods.entry(pod.uid().clone()).or_insert_with(|| {
            let age = started.and_then(|started| wall.duration_since(started).try_into().ok());
            FirstSeen { age: age.unwrap_or_default(), at: now }
        });
        let active = seen.age.saturating_add(now.saturating_duration_since(seen.at));
        Some(deadline.saturating_sub(active))
    }

    /// Removes a pod that has terminated.
    pub fn forget(&self, uid: &PodUid) {
        self.0.lock().remove(uid);
    }
}

impl StatusOverride {
    /// The status of a pod whose active deadline has passed, with the kubelet's wording.
    pub fn deadline_exceeded() -> Self {
        let message = "Pod was active on the node longer than the specified deadline";
        Self::failed("DeadlineExceeded", message, None)
    }
}

/// The pod's deadline, if it has one.
pub(super) fn of(pod: &Pod) -> Option<Duration> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn limited(seconds: i64) -> Pod {
        let mut object = pod("web").object().clone();
        object.spec.get_or_insert_default().active_deadline_seconds = Some(seconds);
        Pod::new(object).unwrap()
    }

    fn wall(second: i64) -> WallTime {
        WallTime::from_second(second).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_counts_from_the_start_and_a_clock_that_is_set_changes_nothing() {
        let secs = Duration::from_secs;
        let deadlines = ActiveDeadlines::default();
        let left = |pod: &Pod, started, now| {
            deadlines.left(pod, Some(wall(started)), wall(now), Instant::now())
        };
        assert_eq!(left(&limited(60), 1000, 1020), Some(secs(40)));
        tokio::time::advance(secs(10)).await;
        assert_eq!(left(&limited(60), 1000, 9_000_000), Some(secs(30)));
        assert_eq!(left(&limited(25), 1000, 1030), Some(Duration::ZERO), "an update shortens it");
        assert_eq!(left(&pod("web"), 1000, 1030), None);
        deadlines.forget(pod("web").uid());
        assert_eq!(left(&limited(60), 2000, 1000), Some(secs(60)), "it cannot have begun later");
        deadlines.forget(pod("web").uid());
        assert_eq!(deadlines.left(&limited(60), None, wall(5), Instant::now()), Some(secs(60)));
    }
}
