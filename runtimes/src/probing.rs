//! When a probe is asked, and what its results add up to, whatever asks it.

use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;

/// When a probe is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) initial_delay: Duration,
    /// At least 1 s.
    pub(crate) period: Duration,
    /// How long an answer may take; at least 1 s.
    pub(crate) timeout: Duration,
}

/// What the last results of a probe add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Results in a row that make it well.
    successes: u32,
    /// Results in a row that make it bad.
    failures: u32,
    well: u32,
    bad: u32,
}

impl Schedule {
    /// As the spec has it; what it leaves out or gives no sense is Kubernetes' default.
    pub(crate) fn of(probe: &k8s::Probe) -> Self {
        let seconds = |given: Option<i32>, default: u64| {
            let given = given.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0);
            Duration::from_secs(given.unwrap_or(default))
        };
        Self {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
        }
    }
}

impl Verdict {
    /// With the spec's thresholds, and no result yet.
    pub(crate) fn of(probe: &k8s::Probe) -> Self {
        let times = |given: Option<i32>, default: u32| {
            given.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        Self {
            successes: times(probe.success_threshold, 1),
            failures: times(probe.failure_threshold, 3),
            well: 0,
            bad: 0,
        }
    }

    /// Counts a result. Gives the verdict when there are enough of one kind in a row.
    pub(crate) fn count(&mut self, well: bool) -> Option<bool> {
        if well {
            (self.well, self.bad) = (self.well.saturating_add(1), 0);
            (self.well >= self.successes).then_some(true)
        } else {
            (self.well, self.bad) = (0, self.bad.saturating_add(1));
            (self.bad >= self.failures).then_some(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_enough_results_in_a_row() {
        let probe = k8s::Probe {
            success_threshold: Some(2),
            failure_threshold: Some(3),
            ..k8s::Probe::default()
        };
        let mut verdict = Verdict::of(&probe);
        let said: String = "++--+---+-++"
            .chars()
            .map(|c| match verdict.count(c == '+') {
                Some(true) => 'W',
                Some(false) => 'B',
                None => '.',
            })
            .collect();
        assert_eq!(said, ".W.....B...W");
    }

    #[test]
    fn what_a_probe_leaves_out_is_kubernetes_default() {
        let odd = k8s::Probe {
            period_seconds: Some(0),
            timeout_seconds: Some(-1),
            failure_threshold: Some(0),
            ..k8s::Probe::default()
        };
        for probe in [k8s::Probe::default(), odd] {
            let Schedule { initial_delay, period, timeout } = Schedule::of(&probe);
            assert_eq!((initial_delay.as_secs(), period.as_secs(), timeout.as_secs()), (0, 10, 1));
            let Verdict { successes, failures, .. } = Verdict::of(&probe);
            assert_eq!((successes, failures), (1, 3));
        }
    }
}
