//! The eviction fields: syntax and contradictions. What they mean is the eviction crate's matter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use winddown_shared::{Quantity, parse_duration};

use crate::document::{Fields, Located, Node, Position, Problem, Value};

const SIGNALS: [&str; 9] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
    "allocatableMemory.available",
];

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
}

impl Default for EvictionSettings {
    fn default() -> Self {
        let hard = [
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "15%"),
            ("imagefs.inodesFree", "5%"),
        ];
        Self {
            hard: hard.map(|(signal, value)| (signal.to_owned(), value.to_owned())).into(),
            soft: BTreeMap::new(),
            soft_grace_period: BTreeMap::new(),
            minimum_reclaim: BTreeMap::new(),
            pressure_transition_period: Duration::from_secs(5 * 60),
            max_pod_grace_period: 0,
        }
    }
}

/// How large a threshold is; the two kinds cannot be compared without the node's capacity.
#[derive(Clone, Copy, PartialEq)]
enum Amount {
    Percent(f64),
    Exact(Quantity),
}

type Entries<T> = BTreeMap<String, Located<T>>;

impl EvictionSettings {
    pub(super) fn read(fields: &mut Fields<'_, '_>, warnings: &mut Vec<Problem>) -> Self {
        let defaults = Self::default();
        let merge = fields.bool("mergeDefaultEvictionSettings").is_some_and(|merge| merge.value);
        let hard = signals(fields, HARD, threshold);
        let soft = signals(fields, SOFT, threshold).unwrap_or_default();
        let grace = signals(fields, GRACE, soft_grace).unwrap_or_default();
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
        Self {
            soft: texts(&soft),
            soft_grace_period: grace.into_iter().map(|(signal, g)| (signal, g.value)).collect(),
            minimum_reclaim: texts(&reclaim),
            pressure_transition_period: transition_period(fields, &defaults),
            max_pod_grace_period: fields
                .integer("evictionMaxPodGracePeriod", 0, i32::MAX)
                .map_or(0, |seconds| u32::try_from(seconds.value).unwrap_or(0)),
            hard: hard_values,
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

fn texts(entries: &Entries<(String, Amount)>) -> BTreeMap<String, String> {
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
        if !SIGNALS.contains(&&*signal.text) {
            let what = format!("unsupported eviction signal: write one of {}", SIGNALS.join(", "));
            fields.fail_below(key, &signal.text, signal.at, what);
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

fn threshold(text: &str) -> Result<(String, Amount), String> {
    let amount = amount(text)?;
    let wrong = match amount {
        Amount::Percent(percent) => !(0.0..=100.0).contains(&percent),
        Amount::Exact(quantity) => quantity.sign() != std::cmp::Ordering::Greater,
    };
    match wrong {
        true => Err(format!("`{text}` is out of range: write 0% to 100%, or more than 0")),
        false => Ok((text.to_owned(), amount)),
    }
}

fn reclaim(text: &str) -> Result<(String, Amount), String> {
    let amount = amount(text)?;
    let wrong = match amount {
        Amount::Percent(percent) => percent <= 0.0 || percent > 100.0,
        Amount::Exact(quantity) => quantity.sign() == std::cmp::Ordering::Less,
    };
    match wrong {
        true => Err(format!("`{text}` is out of range: write more than 0%, or 0 or more")),
        false => Ok((text.to_owned(), amount)),
    }
}

fn amount(text: &str) -> Result<Amount, String> {
    const WANTED: &str = "write a quantity such as 100Mi, or a percentage such as 10%";
    if let Some(number) = text.strip_suffix('%') {
        let digits = number.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+'));
        return match number.parse::<f64>() {
            Ok(percent) if digits && percent.is_finite() => Ok(Amount::Percent(percent)),
            _ => Err(format!("`{text}` is not a percentage: {WANTED}")),
        };
    }
    match text.parse::<Quantity>() {
        Ok(quantity) => Ok(Amount::Exact(quantity)),
        Err(_) => Err(format!("`{text}` is not a quantity: {WANTED}")),
    }
}

fn soft_grace(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(grace) if grace.is_zero() => {
            Err("needs more than 0s: without grace it is a hard threshold, move it to evictionHard"
                .to_owned())
        }
        Ok(grace) => Ok(grace),
        Err(error) => Err(error.to_string()),
    }
}

fn check_soft(
    fields: &mut Fields<'_, '_>,
    hard: Option<&Entries<(String, Amount)>>,
    soft: &Entries<(String, Amount)>,
    grace: &Entries<Duration>,
) {
    for (signal, entry) in soft {
        let (text, amount) = &entry.value;
        // 0% and 100% switch the threshold off.
        let off =
            matches!(amount, Amount::Percent(percent) if *percent == 0.0 || *percent == 100.0);
        if !off && !grace.contains_key(signal) && !fields.has_below(GRACE, signal) {
            let what = format!("needs a grace period: add {GRACE}[{signal}], for example 1m30s");
            fields.fail_below(SOFT, signal, entry.at, what);
        }
        let Some(hard) = hard.and_then(|hard| hard.get(signal)) else { continue };
        let (hard_text, hard) = &hard.value;
        let reached_first = match (hard, amount) {
            (Amount::Percent(hard), Amount::Percent(soft)) => !off && hard >= soft,
            (Amount::Exact(hard), Amount::Exact(soft)) => hard >= soft,
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
    reclaim: &'a Entries<(String, Amount)>,
    soft: &'a Entries<(String, Amount)>,
    known: &'a BTreeSet<&'a String>,
) -> Vec<(&'static str, &'a str, Position)> {
    let graces = grace.iter().filter(|(signal, _)| !soft.contains_key(*signal));
    let reclaims = reclaim.iter().filter(|(signal, _)| !known.contains(signal));
    graces
        .map(|(signal, entry)| (GRACE, signal.as_str(), entry.at))
        .chain(reclaims.map(|(signal, entry)| (RECLAIM, signal.as_str(), entry.at)))
        .collect()
}
