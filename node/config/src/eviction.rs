//! The options of eviction, i.e. of stopping pods when the node runs short of a resource. The eviction crate parses and
//! interprets single thresholds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use winddown_eviction::{
    HookRule, MemoryAvailable, Policy, PressureRule, PressureScope, Resource, Signal,
    SoftGraceError, StaticPods, ThresholdConfig, ThresholdValue, default_hard,
    parse_minimum_reclaim, parse_threshold,
};
use winddown_shared::{GoDuration, Quantity, error_chain};
use winddown_yaml::{Fields, Problem, YamlNode};

use crate::reference::{FieldReading, Names, ValueKind, Word, live, options, part, rows};
use crate::{Config, Effect, Trust};

#[cfg(test)]
mod tests;

const HARD: &str = "evictionHard";
const SOFT: &str = "evictionSoft";
const GRACE: &str = "evictionSoftGracePeriod";
const RECLAIM: &str = "evictionMinimumReclaim";

const SIGNALS: Names = Names::Words(&Signal::NAMES);
const THRESHOLDS: ValueKind = ValueKind::Map { names: SIGNALS, value: &ValueKind::Threshold };
const GRACES: ValueKind = ValueKind::Map {
    names: SIGNALS,
    value: &ValueKind::Duration { least: "", most: "", zero: false },
};

options! {
    /// The options of eviction. Each value is validated, and kept as it was written.
    ///
    /// Signals are those of [`Signal`]; values are quantities or percentages.
    // Over the limit because each option of the section is a field.
    #[derive(Clone, Debug, PartialEq)]
    pub struct EvictionSettings {
        /// When less than this is left, pods are terminated at once to get it back. A quantity (100Mi) or a part of the
        /// capacity (10%); 0% switches a signal off. Naming any signal replaces the whole map, unless
        /// `mergeDefaultEvictionSettings` is true.
        // With the defaults, if they are merged.
        hard: BTreeMap<String, String> = default_hard()
            => live(HARD, Effect::EVICTION).kind(THRESHOLDS).check(threshold);
        /// Signals that `evictionHard` does not name keep their default.
        merge_defaults: bool = false => live("mergeDefaultEvictionSettings", Effect::EVICTION);
        /// The same, but only when it lasts longer than its grace period. Has to be more than the hard one.
        // Each has its entry in `soft_grace_period`.
        soft: BTreeMap<String, String> = BTreeMap::new()
            => live(SOFT, Effect::EVICTION)
                .kind(THRESHOLDS)
                .check(threshold)
                .example("memory.available: 300Mi");
        /// How long each soft threshold has to be met before a pod is evicted for it.
        // Each is greater than zero.
        soft_grace_period: BTreeMap<String, Duration> = BTreeMap::new()
            => live(GRACE, Effect::EVICTION)
                .kind(GRACES)
                .check(|name, _| signal(name))
                .example("memory.available: 1m30s");
        /// How much to get back beyond the threshold, so that the next one is not due at once.
        minimum_reclaim: BTreeMap<String, String> = BTreeMap::new()
            => live(RECLAIM, Effect::EVICTION)
                .kind(THRESHOLDS)
                .check(reclaim)
                .example("nodefs.available: 500Mi");
        /// How long the pressure condition outlasts the pressure.
        pressure_transition_period: Duration = Duration::from_secs(5 * 60)
            => live("evictionPressureTransitionPeriod", Effect::EVICTION)
                .duration("1s", "")
                .zero_is_unset();
        /// The most grace a pod gets when a soft threshold evicts it; 0 or less takes the pod's own.
        max_pod_grace_period: i32 = 0
            => live("evictionMaxPodGracePeriod", Effect::EVICTION)
                .seconds(i32::MIN.into(), i32::MAX.into());
        /// Which memory is available: `memAvailable` counts what the kernel can give back without swapping, file cache
        /// included; `workingSet` counts file cache that was used lately as used, as the kubelet does.
        memory_available: MemoryAvailable = MemoryAvailable::default()
            => live("memoryAvailable", Effect::EVICTION);
        /// Terminate a pod as soon as tasks lose time waiting for memory, before any threshold is met. All of it has to hold:
        /// the share of the last 10 s in which some or all tasks waited, that it does not fall, and that less memory
        /// than `below` is available. After that no other pod is evicted for `coolDown`. Off unless set.
        memory_pressure: Option<PressureRule> = None => live("memoryPressure", Effect::EVICTION);
        /// Before a pod is evicted for memory, have the kernel take some of that pod's memory back, for this long at most:
        /// what can be swapped out and, with `memoryAvailable: workingSet`, file cache. No pod is evicted if that is enough.
        /// It is not tried where it could not be enough, nor twice within 10 s. Wants cgroup v2 and Linux 5.19. Off
        /// unless set.
        memory_reclaim: Option<Duration> = None
            => live("evictionMemoryReclaim", Effect::EVICTION)
                .duration("10ms", "5s")
                .example("500ms");
        /// A command that runs as root before each evicted pod is asked to terminate, and delays that: for example, to dump
        /// what uses the memory. It reads the pod and the reason from `WINDDOWN_POD_NAMESPACE`, `WINDDOWN_POD_NAME`,
        /// `WINDDOWN_POD_UID`, `WINDDOWN_SIGNAL` and `WINDDOWN_MESSAGE`; `winddown plan eviction` shows what it wrote.
        hook: Option<HookRule> = None => live("evictionHook", Effect::EVICTION);
        /// Static pods are critical to the kubelet, and never evicted (`spared`). Here those whose manifest has a
        /// priority, below 2000000000, are like other pods (`byPriority`), and come back when the pressure is over.
        static_pods: StaticPods = StaticPods::ByPriority
            => live("evictStaticPods", Effect::EVICTION);
        /// Decide and record only: no pod is terminated, nothing is reclaimed, no condition is reported.
        shadow: bool = false => live("evictionShadow", Effect::EVICTION);
        /// How long an image that nothing uses is kept when the disk runs short: the pod that it was pulled for may not
        /// have started yet.
        image_minimum_gc_age: Duration = Duration::from_secs(2 * 60)
            => live("imageMinimumGCAge", Effect::Cri).zero_is_unset();
        /// Terminate pods that have more on the disks than their own limits allow.
        local_storage_limits: bool = true
            => live("localStorageCapacityIsolation", Effect::EVICTION);
        /// With `pods` in it, hard thresholds on memory.available hold for the pods' cgroup as well. The kubelet's
        /// other words have no effect.
        // Whether `pods` is in it.
        enforce_pods: bool = true
            => live("enforceNodeAllocatable", Effect::EVICTION).kind(ValueKind::Words(&[
                "pods",
                "system-reserved",
                "kube-reserved",
                "system-reserved-compressible",
                "kube-reserved-compressible",
                "none",
            ]));
    }
}

rows! {
    PressureRule {
        /// Whose tasks wait: those of the whole `node`, or of the `pods` alone.
        scope => part("scope").example("node");
        /// The share of the last 10 s in which at least one task waited.
        some => part("some").example("40%");
        /// The share of the last 10 s in which all tasks waited.
        full => part("full").example("10%");
        /// Less memory than this is available.
        below => part("below").example("10%");
        /// For how long no other pod is terminated after it.
        cool_down => part("coolDown").duration("0s", "").example("10s");
    }
}

rows! {
    HookRule {
        /// The program, by its whole path, and its arguments. No shell sees them.
        command => part("command")
            .kind(ValueKind::Command)
            .trusted(Trust::Run)
            .required()
            .example("[/usr/local/sbin/dump-memory, --short]");
        /// It is killed after this time.
        timeout => part("timeout").duration("10ms", "5s").example("2s");
    }
}

impl Word for MemoryAvailable {
    const ALL: &'static [(&'static str, Self)] =
        &[("memAvailable", Self::MemAvailable), ("workingSet", Self::WorkingSet)];
}

impl Word for StaticPods {
    const ALL: &'static [(&'static str, Self)] =
        &[("byPriority", Self::ByPriority), ("spared", Self::Spared)];
}

impl Word for PressureScope {
    const ALL: &'static [(&'static str, Self)] = &[("node", Self::Node), ("pods", Self::Pods)];
}

impl EvictionSettings {
    /// Returns the eviction policy, before the layout of the node's file systems is known.
    ///
    /// If any threshold is invalid, the policy has no thresholds at all; settings that were read
    /// from a file are always valid.
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
            // Unlike a kubelet, for which they are one second: no limit but the pod's own grace.
            ..=0 => None,
            seconds => Some(Duration::from_secs(u64::from(seconds.unsigned_abs()))),
        };
        policy.memory_available = self.memory_available;
        policy.counts_swap = self.memory_reclaim.is_some();
        policy.memory_pressure = self.memory_pressure;
        policy.hook = self.hook.clone().map(Arc::new);
        policy.static_pods = self.static_pods;
        policy.shadow = self.shadow;
        policy.local_storage_limits = self.local_storage_limits;
        policy
    }
}

fn signal(name: &str) -> Option<String> {
    name.parse::<Signal>().err().map(|error| error.to_string())
}

fn threshold(name: &str, text: &str) -> Option<String> {
    signal(name).or_else(|| parse_threshold(text).err().map(|error| error.to_string()))
}

fn reclaim(name: &str, text: &str) -> Option<String> {
    signal(name).or_else(|| parse_minimum_reclaim(text).err().map(|error| error.to_string()))
}

pub(crate) fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, reading: &mut FieldReading) {
    let is_set = |node: &YamlNode| node.get("full").is_some_and(|full| !full.is_null());
    if let (Some(rule), Some(written)) =
        (&mut config.eviction.memory_pressure, fields.node("memoryPressure"))
        && rule.some.is_some()
        && !is_set(written.value)
    {
        rule.full = None;
    }
    soft_thresholds(fields, &config.eviction, reading);
    tiny_thresholds(fields, &config.eviction, reading);
    let EvictionSettings { hard, merge_defaults, soft, soft_grace_period, minimum_reclaim, .. } =
        &mut config.eviction;
    if *merge_defaults {
        for (signal, value) in EvictionSettings::default().hard {
            hard.entry(signal).or_insert(value);
        }
    }
    let graces = soft_grace_period.keys().filter(|signal| !soft.contains_key(*signal));
    let reclaims = minimum_reclaim
        .keys()
        .filter(|signal| !hard.contains_key(*signal) && !soft.contains_key(*signal));
    let lonely =
        graces.map(|signal| (GRACE, signal)).chain(reclaims.map(|signal| (RECLAIM, signal)));
    for (key, signal) in lonely {
        let at = fields.entry_at(key, signal).unwrap_or(fields.at());
        let what = "has no threshold to go with, and no effect";
        reading.warnings.push(Problem::new(at, format!("{key}[{signal}]"), what));
    }
    soft_grace_period.retain(|_, grace| !grace.is_zero());
}

/// Warns of thresholds that are met when nothing is left any more, because their unit was forgotten or is thousandths.
fn tiny_thresholds(
    fields: &Fields<'_, '_>,
    eviction: &EvictionSettings,
    reading: &mut FieldReading,
) {
    const MEBIBYTE: i64 = 1 << 20;
    let is_tiny = |signal: &str, text: &str| {
        let resource = signal.parse::<Signal>().map(Signal::resource);
        let is_in_bytes = matches!(resource, Ok(Resource::Memory | Resource::EphemeralStorage));
        let has_no_unit = text.trim_end_matches('m').ends_with(|last: char| last.is_ascii_digit());
        let value = parse_threshold(text).ok().flatten();
        let is_less = |quantity: Quantity| quantity.value() < MEBIBYTE;
        let is_less = matches!(value, Some(ThresholdValue::Quantity(value)) if is_less(value));
        is_in_bytes && has_no_unit && is_less
    };
    for (key, thresholds) in [(HARD, &eviction.hard), (SOFT, &eviction.soft)] {
        for (signal, text) in thresholds.iter().filter(|(signal, text)| is_tiny(signal, text)) {
            let Some(at) = fields.entry_at(key, signal) else { continue };
            let what = format!(
                "`{text}` is less than 1 MiB: a number without a unit is bytes, and `m` a thousandth of one; \
                 write for example 100Mi, or 10%"
            );
            reading.warnings.push(Problem::new(at, format!("{key}[{signal}]"), what));
        }
    }
}

/// Checks that each soft threshold has a grace period, and is reached before its hard one.
fn soft_thresholds(
    fields: &mut Fields<'_, '_>,
    eviction: &EvictionSettings,
    reading: &mut FieldReading,
) {
    let defaults = EvictionSettings::default().hard;
    let EvictionSettings { hard, soft, soft_grace_period: graces, .. } = eviction;
    for (signal, text) in soft {
        let Some(at) = fields.entry_at(SOFT, signal) else { continue };
        let value = parse_threshold(text).ok().flatten();
        let grace_at = fields.entry_at(GRACE, signal);
        if value.is_some() && grace_at.is_none() {
            let what = format!("needs a grace period: add {GRACE}[{signal}], for example 1m30s");
            fields.fail_below(SOFT, signal, at, what);
        }
        let no_grace = graces.get(signal).is_some_and(Duration::is_zero);
        if let Some(at) = grace_at.filter(|_| value.is_some() && no_grace) {
            let what = format!("{}, move it to {HARD}", SoftGraceError::Zero);
            fields.fail_below(GRACE, signal, at, what);
        }
        let Some(hard_text) = hard.get(signal) else { continue };
        let reached_first = match (parse_threshold(hard_text).ok().flatten(), value) {
            (Some(ThresholdValue::Share(hard)), Some(ThresholdValue::Share(soft))) => hard >= soft,
            (Some(ThresholdValue::Quantity(hard)), Some(ThresholdValue::Quantity(soft))) => {
                hard >= soft
            }
            // A quantity and a percentage cannot be compared without the node's capacity.
            _ => false,
        };
        if !reached_first {
            continue;
        }
        let what = format!(
            "`{text}` is never reached before the hard threshold `{hard_text}`: write more"
        );
        if defaults.get(signal) == Some(hard_text) {
            // The kubelet accepts this, and `config show` writes the defaults into its file.
            reading.warnings.push(Problem::new(at, format!("{SOFT}[{signal}]"), what));
        } else {
            fields.fail_below(SOFT, signal, at, what);
        }
    }
}
