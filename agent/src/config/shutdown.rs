//! How the time before a shutdown is shared out.

use std::time::Duration;

use winddown_shared::GoDuration;

use crate::document::{Fields, Located, Position, Value};

/// The longest that all groups together may take.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const PERIOD: &str = "shutdownGracePeriod";
const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";

/// How the time before a shutdown is shared out, in either of the kubelet's two forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownPeriods {
    /// `shutdownGracePeriod` and the part of it kept for critical pods. `total` 0 is off.
    /// 1 s to 24 h each, `critical` at most `total`.
    Total {
        /// For all pods.
        total: Duration,
        /// The end of it, for critical pods only.
        critical: Duration,
    },
    /// `shutdownGracePeriodByPodPriority`, ascending, no priority twice, at most 24 h together.
    ByPriority(Vec<PriorityPeriod>),
}

/// One entry of `shutdownGracePeriodByPodPriority`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityPeriod {
    /// The lowest priority of the group's pods.
    pub priority: i32,
    /// The group's time; whole seconds.
    pub period: Duration,
}

/// 30 s, of which 10 s for critical pods: a pod's own default grace of 30 s is nearly all there,
/// and a power-off that hangs for longer is what makes people reach for the power switch.
impl Default for ShutdownPeriods {
    fn default() -> Self {
        Self::Total { total: Duration::from_secs(30), critical: Duration::from_secs(10) }
    }
}

impl ShutdownPeriods {
    /// The time all groups together may take; zero is off.
    pub fn total(&self) -> Duration {
        match self {
            Self::Total { total, .. } => *total,
            Self::ByPriority(groups) => groups.iter().map(|group| group.period).sum(),
        }
    }

    /// Reads the three fields. `absent_critical` gives the critical pods' part of a total that
    /// stands alone.
    pub(super) fn read(
        fields: &mut Fields<'_, '_>,
        absent_critical: impl FnOnce(Duration) -> Duration,
    ) -> Self {
        let total = fields.duration(PERIOD);
        let critical = fields.duration(CRITICAL);
        let groups = groups(fields);
        for (key, given) in [(PERIOD, &total), (CRITICAL, &critical)] {
            if let Some(Located { value, at }) = given {
                check_period(fields, key, *value, *at);
            }
        }
        let set = |period: &Option<Located<Duration>>| {
            period.as_ref().is_some_and(|period| !period.value.is_zero())
        };
        if let Some(Located { value: groups, at }) = groups {
            if set(&total) || set(&critical) {
                // The kubelet's words: this is what people search for.
                let what = "invalid configuration: Cannot specify both \
                            shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same \
                            time; remove one of them";
                fields.fail(BY_PRIORITY, at, what);
            }
            if !groups.is_empty() {
                return Self::ByPriority(groups);
            }
        }
        let (default_total, default_critical) = match Self::default() {
            Self::Total { total, critical } => (total, critical),
            Self::ByPriority(_) => (Duration::ZERO, Duration::ZERO),
        };
        let at = critical.as_ref().or(total.as_ref()).map(|given| given.at);
        let (total, critical) = match (total, critical) {
            (None, None) => (default_total, default_critical),
            (Some(total), None) => (total.value, absent_critical(total.value)),
            (None, Some(critical)) => (default_total, critical.value),
            (Some(total), Some(critical)) => (total.value, critical.value),
        };
        if let (true, Some(at)) = (critical > total, at) {
            let what = format!(
                "invalid configuration: shutdownGracePeriodCriticalPods {{{}}} must be <= \
                 shutdownGracePeriod {{{}}}",
                go(critical),
                go(total)
            );
            fields.fail(CRITICAL, at, what);
        }
        Self::Total { total, critical }
    }
}

fn check_period(fields: &mut Fields<'_, '_>, key: &str, value: Duration, at: Position) {
    if !value.is_zero() && value < Duration::from_secs(1) {
        let what = format!(
            "invalid configuration: {key} {{{}}} must be either zero or otherwise >= 1 sec",
            go(value)
        );
        fields.fail(key, at, what);
    }
    if value > LONGEST {
        fields.fail(key, at, format!("{} is too long: at most 24h", go(value)));
    }
}

/// The list form, sorted. An empty list is as good as none.
fn groups(fields: &mut Fields<'_, '_>) -> Option<Located<Vec<PriorityPeriod>>> {
    let found = fields.node(BY_PRIORITY)?;
    let Value::List(items) = &found.value.value else {
        let what = format!("needs a list, this is {}", found.value.describe());
        fields.fail(BY_PRIORITY, found.at, what);
        return None;
    };
    let mut groups: Vec<PriorityPeriod> = Vec::with_capacity(items.len());
    let (mut all_read, mut sum) = (true, Duration::ZERO);
    for (index, item) in items.iter().enumerate() {
        let read = fields.below_index(BY_PRIORITY, index, item, |entry| {
            let priority = entry.required_integer("priority", i32::MIN, i32::MAX);
            let most = i64::try_from(LONGEST.as_secs()).unwrap_or(i64::MAX);
            let seconds = entry.required_integer("shutdownGracePeriodSeconds", 0, most);
            Some((priority?.value, u64::try_from(seconds?.value).unwrap_or(0)))
        });
        let Some((priority, seconds)) = read else {
            all_read = false;
            continue;
        };
        let period = Duration::from_secs(seconds);
        sum += period;
        match groups.binary_search_by_key(&priority, |group| group.priority) {
            Ok(_) => {
                let what = format!("the priority {priority} is listed twice: keep one entry");
                fields.fail_index(BY_PRIORITY, index, item.at, what);
            }
            Err(place) => groups.insert(place, PriorityPeriod { priority, period }),
        }
    }
    if sum > LONGEST {
        let what = format!("the groups add up to {}: at most 24h", go(sum));
        fields.fail(BY_PRIORITY, found.at, what);
    }
    all_read.then_some(Located { value: groups, at: found.at })
}

pub(super) fn go(duration: Duration) -> String {
    match GoDuration::try_from(duration) {
        Ok(duration) => duration.to_string(),
        Err(_) => format!("{}s", duration.as_secs()),
    }
}
