//! Decides how long a rehearsal waits for its pods to start. Pure.

use std::time::Duration;

use tokio::time::Instant;
use winddown_control::api::PodStatus;
use winddown_shared::Pod;
use winddown_shared::display::clean;

/// How long pods may take to start before the rehearsal continues without the late ones.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is said which pods are waited for.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// How many pods are named in a line.
const MAX_NAMED_PODS: usize = 3;

/// The wait for the pods of a rehearsal.
pub(super) struct DrillStart {
    begun: Instant,
    settle: Duration,
    /// Since when all pods have been up.
    up_since: Option<Instant>,
    told: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum DrillStep {
    /// Wait this long, or until something changes.
    Wait(Duration),
    /// Say which pods are waited for.
    Tell,
    Go,
}

impl DrillStart {
    pub(super) fn new(begun: Instant, settle: Duration) -> Self {
        Self { begun, settle, up_since: None, told: begun }
    }

    /// The next step at `now`, when `all_up` says whether no pod is waited for.
    pub(super) fn step(&mut self, all_up: bool, now: Instant) -> DrillStep {
        self.up_since = if all_up { self.up_since.or(Some(now)) } else { None };
        let over = match self.up_since {
            Some(since) => since + self.settle,
            None => self.begun + START_TIMEOUT,
        };
        if now >= over {
            return DrillStep::Go;
        }
        let tell = self.told + REPORT_INTERVAL;
        if !all_up && now >= tell {
            self.told = now;
            return DrillStep::Tell;
        }
        let until = if all_up { over } else { over.min(tell) };
        DrillStep::Wait(until.duration_since(now))
    }

    /// How long the pods took to start.
    pub(super) fn took(&self, now: Instant) -> Duration {
        self.up_since.unwrap_or(now).duration_since(self.begun)
    }
}

/// Whether a readiness probe tells of each container when its program has begun.
pub(super) fn is_probed(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| spec.containers.iter().all(|c| c.readiness_probe.is_some()))
}

/// Names the pods that are not ready, or the first of them.
pub(super) fn not_ready(late: &[&PodStatus]) -> String {
    if late.is_empty() {
        return String::new();
    }
    let names: Vec<_> = late
        .iter()
        .take(MAX_NAMED_PODS)
        .map(|pod| match pod.message.trim() {
            "" => format!("{}/{}", pod.namespace, pod.name),
            why => format!("{}/{} ({why})", pod.namespace, pod.name),
        })
        .collect();
    let more = match late.len().saturating_sub(MAX_NAMED_PODS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("; not ready yet: {}{more}", clean(&names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_program_has_its_time_to_settle_from_when_the_last_pod_is_up() {
        let begun = Instant::now();
        let mut start = DrillStart::new(begun, SECOND);
        assert_eq!(start.step(false, begun), DrillStep::Wait(REPORT_INTERVAL));
        assert_eq!(start.step(true, begun + SECOND / 2), DrillStep::Wait(SECOND));
        assert_eq!(start.step(true, begun + SECOND), DrillStep::Wait(SECOND / 2));
        let again = "a pod that fell over is waited for anew";
        assert!(matches!(start.step(false, begun + SECOND), DrillStep::Wait(_)), "{again}");
        assert_eq!(start.step(true, begun + 2 * SECOND), DrillStep::Wait(SECOND), "{again}");
        assert_eq!(start.step(true, begun + 3 * SECOND), DrillStep::Go);
        assert_eq!(start.took(begun + 3 * SECOND), 2 * SECOND, "settling is no part of the start");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_a_probe_is_told_every_five_seconds_and_ends() {
        let begun = Instant::now();
        let mut start = DrillStart::new(begun, SECOND);
        let (mut now, mut told) = (begun, 0);
        loop {
            match start.step(false, now) {
                DrillStep::Wait(next) => now += next,
                DrillStep::Tell => told += 1,
                DrillStep::Go => break,
            }
        }
        assert_eq!((now - begun, told), (START_TIMEOUT, 5));
    }

    #[test]
    fn a_pod_that_is_late_is_named_with_what_keeps_it() {
        let named = |name: &str, message: &str| PodStatus {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            message: message.to_owned(),
            ..PodStatus::default()
        };
        let (web, dns) = (named("web", "No space left on device\n"), named("dns", ""));
        let said = "; not ready yet: default/web (No space left on device), default/dns";
        assert_eq!(not_ready(&[&web, &dns]), said);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_time_to_settle_the_rehearsal_goes_on_at_once() {
        let begun = Instant::now();
        assert_eq!(DrillStart::new(begun, Duration::ZERO).step(true, begun), DrillStep::Go);
    }
}
