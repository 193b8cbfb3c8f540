//! How the time before a shutdown is shared out.

use std::time::Duration;

use winddown_shared::GoDuration;

use winddown_yaml::{Fields, Located, Position, Value};

/// The longest that all groups together may take.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const PERIOD: &str = "shutdownGracePeriod";
const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";
const ORDER: &str = "shutdownOrder";
const ENDPOINT_DRAIN: &str = "shutdownEndpointDrainPeriod";
const RESERVE: &str = "shutdownReserve";
/// The longest that a node may wait with nothing but its last words left to say.
const LONGEST_RESERVE: Duration = Duration::from_secs(5 * 60);

/// Everything about a shutdown's time and order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// The kubelet's fields.
    pub periods: ShutdownPeriods,
    /// `shutdownOrder`: what puts pods into groups. With groups of configured priorities it is
    /// always [`ShutdownOrder::Priority`].
    pub order: ShutdownOrder,
    /// `shutdownEndpointDrainPeriod`: how long pods are not ready before the first SIGTERM. Beside
    /// the groups' time, and at most as long; 0 is off.
    pub endpoint_drain: Duration,
    /// `shutdownReserve`: what is kept back at the end for the report and the last status; at most
    /// 5 min.
    pub reserve: Duration,
}

/// What puts pods into groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownOrder {
    /// What a pod is for: ordinary pods, system pods, the node's own, control plane, etcd.
    Role,
    /// `spec.priority`, as the kubelet does.
    Priority,
}

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

/// [`ShutdownPeriods::default`], in the order of roles.
impl Default for ShutdownSettings {
    fn default() -> Self {
        Self { order: ShutdownOrder::Role, ..Self::from(ShutdownPeriods::default()) }
    }
}

/// Periods that somebody configured: the kubelet's order.
impl From<ShutdownPeriods> for ShutdownSettings {
    fn from(periods: ShutdownPeriods) -> Self {
        Self {
            periods,
            order: ShutdownOrder::Priority,
            endpoint_drain: Duration::ZERO,
            reserve: Duration::from_secs(2),
        }
    }
}

// === impl ShutdownSettings ===

impl ShutdownSettings {
    /// The time all groups together may take; zero is off.
    pub fn total(&self) -> Duration {
        self.periods.total()
    }

    /// Reads the fields. `absent_critical` gives the critical pods' part of a total that stands
    /// alone.
    pub(super) fn read(
        fields: &mut Fields<'_, '_>,
        absent_critical: impl FnOnce(Duration) -> Duration,
    ) -> Self {
        let configured = [PERIOD, CRITICAL].iter().any(|key| fields.has(key));
        let periods = ShutdownPeriods::read(fields, absent_critical);
        let usual = match (&periods, configured) {
            (ShutdownPeriods::Total { .. }, false) => ShutdownOrder::Role,
            _ => ShutdownOrder::Priority,
        };
        let order = order(fields, &periods).unwrap_or(usual);
        let endpoint_drain = endpoint_drain(fields, periods.total());
        let reserve = reserve(fields).unwrap_or(Self::default().reserve);
        Self { periods, order, endpoint_drain, reserve }
    }
}

fn order(fields: &mut Fields<'_, '_>, periods: &ShutdownPeriods) -> Option<ShutdownOrder> {
    let Located { value, at } = fields.text(ORDER)?;
    let order = match value {
        "role" => ShutdownOrder::Role,
        "priority" => ShutdownOrder::Priority,
        other => {
            fields.fail(ORDER, at, format!("`{other}` is unknown: write role or priority"));
            return None;
        }
    };
    if let (ShutdownOrder::Role, ShutdownPeriods::ByPriority(_)) = (order, periods) {
        let what = format!(
            "is role, but {BY_PRIORITY} makes groups of priorities: write `{ORDER}: priority`, or \
             remove one of them"
        );
        fields.fail(ORDER, at, what);
    }
    Some(order)
}

fn endpoint_drain(fields: &mut Fields<'_, '_>, total: Duration) -> Duration {
    let Some(Located { value, at }) = fields.duration(ENDPOINT_DRAIN) else {
        return Duration::ZERO;
    };
    if value > total {
        let value = go(value);
        let what = match total.is_zero() {
            true => format!("is {value}, but no pod is ended, because {PERIOD} is 0: remove it"),
            false => format!(
                "{value} is longer than the shutdown grace periods together: write at most {}",
                go(total)
            ),
        };
        fields.fail(ENDPOINT_DRAIN, at, what);
    }
    value
}

fn reserve(fields: &mut Fields<'_, '_>) -> Option<Duration> {
    let Located { value, at } = fields.duration(RESERVE)?;
    if value > LONGEST_RESERVE {
        let (value, most) = (go(value), go(LONGEST_RESERVE));
        fields.fail(RESERVE, at, format!("{value} is too long: at most {most}"));
    }
    Some(value)
}

// === impl ShutdownOrder ===

impl ShutdownOrder {
    /// The order's name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Priority => "priority",
        }
    }
}

// === impl ShutdownPeriods ===

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
    fn read(
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
