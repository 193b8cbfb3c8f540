//! The eviction fields: where they stand and how they contradict each other. What one value may be,
//! and what it means, is the eviction crate's matter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use winddown_eviction::{
    MemoryAvailable, Policy, PressureRule, Signal, SoftGraceError, StaticPods, ThresholdConfig,
    ThresholdValue, default_hard, parse_minimum_reclaim, parse_soft_grace, parse_threshold,
};
use winddown_shared::{GoDuration, error_chain};

use winddown_yaml::{Fields, Located, Node, Position, Problem, Value};

mod beyond;
#[cfg(test)]
mod tests;

const HARD: &str = "evictionHard";
const SOFT: &str = "evictionSoft";
const GRACE: &str = "evictionSoftGracePeriod";
const RECLAIM: &str = "evictionMinimumReclaim";

/// The eviction fields, each value validated and kept as it was written.
///
/// Signals are among the kubelet's nine; values are quantities or percentages.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionSettings {
    /// `evictionHard`, defaults filled in: signal to value.
    pub hard: BTreeMap<String, String>,
    /// `evictionSoft`: signal to value. Each has its entry in `soft_grace_period`.
    pub soft: BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`: signal to time, more than zero.
    pub soft_grace_period: BTreeMap<String, Duration>,
    /// `evictionMinimumReclaim`: signal to value.
    pub minimum_reclaim: BTreeMap<String, String>,
    /// `evictionPressureTransitionPeriod`: at least 1 s.
    pub pressure_transition_period: Duration,
    /// `evictionMaxPodGracePeriod`, in seconds; 0 takes each pod's own grace.
    pub max_pod_grace_period: u32,
    /// `memoryAvailable`.
    pub memory_available: MemoryAvailable,
    /// `memoryPressure`; none unless it is configured.
    pub memory_pressure: Option<PressureRule>,
    /// `evictStaticPods`.
    pub static_pods: StaticPods,
    /// `evictionShadow`.
    pub shadow: bool,
    /// `imageMinimumGCAge`: images that were found on the node for less than this are kept.
    pub image_minimum_gc_age: Duration,
    /// `localStorageCapacityIsolation`.
    pub local_storage_limits: bool,
    /// Whether `enforceNodeAllocatable` has `pods`.
    pub enforce_pods: bool,
}

impl Default for EvictionSettings {
    fn default() -> Self {
        Self {
            hard: default_hard(),
            soft: BTreeMap::new(),
            soft_grace_period: BTreeMap::new(),
            minimum_reclaim: BTreeMap::new(),
            pressure_transition_period: Duration::from_secs(5 * 60),
            max_pod_grace_period: 0,
            memory_available: MemoryAvailable::default(),
            memory_pressure: None,
            static_pods: StaticPods::ByPriority,
            shadow: false,
            image_minimum_gc_age: Duration::from_secs(2 * 60),
            local_storage_limits: true,
            enforce_pods: true,
        }
    }
}

/// What was written, and what it is; none: the threshold is switched off.
type Written = (String, Option<ThresholdValue>);
type Entries<T> = BTreeMap<String, Located<T>>;

impl EvictionSettings {
    /// The rules, before the layout of the node's file systems is known.
    ///
    /// A threshold that cannot be used makes none; there is none in settings that were read.
    pub fn policy(&self) -> Policy {
        let grace = |grace: Duration| GoDuration::try_from(grace).unwrap_or_default().to_string();
        let graces = self.soft_grace_period.iter().map(|(signal, g)| (signal.clone(), grace(*g)));
        let config = ThresholdConfig {
            hard: self.hard.clone(),
            soft: self.soft.clone(),
            soft_grace: graces.collect(),
            minimum_reclaim: self.minimum_reclaim.clone(),
        };
        let thresholds = config.thresholds().unwrap_or_else(|error| {
            tracing::error!(error = error_chain(&error), "no eviction threshold is used");
            Vec::new()
        });
        let mut policy = Policy::new(thresholds, self.enforce_pods);
        policy.transition_period = self.pressure_transition_period;
        policy.max_pod_grace = match self.max_pod_grace_period {
            0 => None,
            seconds => Some(Duration::from_secs(seconds.into())),
        };
        policy.memory_available = self.memory_available;
        policy.memory_pressure = self.memory_pressure;
        policy.static_pods = self.static_pods;
        policy.shadow = self.shadow;
        policy.local_storage_limits = self.local_storage_limits;
        policy
    }

    pub(super) fn read(fields: &mut Fields<'_, '_>, warnings: &mut Vec<Problem>) -> Self {
        let defaults = Self::default();
        let merge = fields.bool("mergeDefaultEvictionSettings").is_some_and(|merge| merge.value);
        let hard = signals(fields, HARD, threshold);
        let soft = signals(fields, SOFT, threshold).unwrap_or_default();
        let mut grace = signals(fields, GRACE, soft_grace).unwrap_or_default();
        let reclaim = signals(fields, RECLAIM, reclaim).unwrap_or_default();
        check_soft(fields, hard.as_ref(), &soft, &grace);

        let mut hard_values = match &hard {
            Some(hard) => texts(hard),
            None => defaults.hard.clone(),
        };
        if merge {
            for (signal, value) in &defaults.hard {
                hard_values.entry(signal.clone()).or_insert_with(|| value.clone());
            }
        }
        let known: BTreeSet<&String> = hard_values.keys().chain(soft.keys()).collect();
        for (field, signal, at) in lonely(&grace, &reclaim, &soft, &known) {
            let field = format!("{field}[{signal}]");
            warnings.push(Problem::new(at, field, "has no threshold to go with, and no effect"));
        }
        grace.retain(|_, grace| !grace.value.is_zero());
        Self {
            soft: texts(&soft),
            soft_grace_period: grace.into_iter().map(|(signal, g)| (signal, g.value)).collect(),
            minimum_reclaim: texts(&reclaim),
            pressure_transition_period: transition_period(fields, &defaults),
            max_pod_grace_period: fields
                .integer("evictionMaxPodGracePeriod", 0, i32::MAX)
                .map_or(0, |seconds| u32::try_from(seconds.value).unwrap_or(0)),
            hard: hard_values,
            ..beyond::read(fields, defaults)
        }
    }
}

/// The kubelet takes 0 for its default of 5 minutes, and so do we.
fn transition_period(fields: &mut Fields<'_, '_>, defaults: &EvictionSettings) -> Duration {
    let key = "evictionPressureTransitionPeriod";
    match fields.duration(key) {
        Some(Located { value, at }) if !value.is_zero() && value < Duration::from_secs(1) => {
            fields.fail(key, at, "needs at least 1s, or 0s for the default of 5m");
            value
        }
        Some(Located { value, .. }) if !value.is_zero() => value,
        _ => defaults.pressure_transition_period,
    }
}

fn texts(entries: &Entries<Written>) -> BTreeMap<String, String> {
    entries.iter().map(|(signal, entry)| (signal.clone(), entry.value.0.clone())).collect()
}

/// A mapping from signals to values.
fn signals<'n, T>(
    fields: &mut Fields<'n, '_>,
    key: &'static str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<Entries<T>> {
    let found: Located<&'n Node> = fields.node(key)?;
    let Value::Map(entries) = &found.value.value else {
        let what =
            format!("needs a mapping from signals to values, this is {}", found.value.describe());
        fields.fail(key, found.at, what);
        return None;
    };
    let mut result = Entries::new();
    for (signal, node) in entries {
        if let Err(error) = signal.text.parse::<Signal>() {
            fields.fail_below(key, &signal.text, signal.at, error);
            continue;
        }
        let Value::Scalar(scalar) = &node.value else {
            let what = format!("needs one value, this is {}", node.describe());
            fields.fail_below(key, &signal.text, signal.at, what);
            continue;
        };
        match read(&scalar.text) {
            Ok(value) => {
                result.insert(signal.text.to_string(), Located { value, at: signal.at });
            }
            Err(what) => fields.fail_below(key, &signal.text, signal.at, what),
        }
    }
    Some(result)
}

fn threshold(text: &str) -> Result<Written, String> {
    let value = parse_threshold(text).map_err(|error| error.to_string())?;
    Ok((text.to_owned(), value))
}

fn reclaim(text: &str) -> Result<Written, String> {
    let value = parse_minimum_reclaim(text).map_err(|error| error.to_string())?;
    Ok((text.to_owned(), Some(value)))
}

/// No grace at all is wrong only of a threshold that is in force: the kubelet takes it of any other.
fn soft_grace(text: &str) -> Result<Duration, String> {
    match parse_soft_grace(text) {
        Err(SoftGraceError::Zero) => Ok(Duration::ZERO),
        read => read.map_err(|error| error.to_string()),
    }
}

fn check_soft(
    fields: &mut Fields<'_, '_>,
    hard: Option<&Entries<Written>>,
    soft: &Entries<Written>,
    grace: &Entries<Duration>,
) {
    for (signal, entry) in soft {
        let (text, value) = &entry.value;
        if value.is_some() && !grace.contains_key(signal) && !fields.has_below(GRACE, signal) {
            let what = format!("needs a grace period: add {GRACE}[{signal}], for example 1m30s");
            fields.fail_below(SOFT, signal, entry.at, what);
        }
        if let Some(grace) = grace.get(signal).filter(|grace| grace.value.is_zero())
            && value.is_some()
        {
            fields.fail_below(GRACE, signal, grace.at, SoftGraceError::Zero);
        }
        let Some(hard) = hard.and_then(|hard| hard.get(signal)) else { continue };
        let (hard_text, hard) = &hard.value;
        let reached_first = match (hard, value) {
            (Some(ThresholdValue::Share(hard)), Some(ThresholdValue::Share(soft))) => hard >= soft,
            (Some(ThresholdValue::Quantity(hard)), Some(ThresholdValue::Quantity(soft))) => {
                hard >= soft
            }
            // An amount and a share cannot be compared without the node's capacity.
            _ => false,
        };
        if reached_first {
            let what = format!(
                "`{text}` is never reached before the hard threshold `{hard_text}`: write more"
            );
            fields.fail_below(SOFT, signal, entry.at, what);
        }
    }
}

/// Entries that go with a threshold that is not there.
fn lonely<'a>(
    grace: &'a Entries<Duration>,
    reclaim: &'a Entries<Written>,
    soft: &'a Entries<Written>,
    known: &'a BTreeSet<&'a String>,
) -> Vec<(&'static str, &'a str, Position)> {
    let graces = grace.iter().filter(|(signal, _)| !soft.contains_key(*signal));
    let reclaims = reclaim.iter().filter(|(signal, _)| !known.contains(signal));
    graces
        .map(|(signal, entry)| (GRACE, signal.as_str(), entry.at))
        .chain(reclaims.map(|(signal, entry)| (RECLAIM, signal.as_str(), entry.at)))
        .collect()
}
