//! The options of eviction. The eviction crate parses and interprets single thresholds.

use std::time::Duration;

use serde_json::Value as Json;
use winddown_eviction::{
    HookRule, MemoryAvailable, PressureRule, PressureScope, Signal, SoftGraceError, StaticPods,
    ThresholdValue, parse_minimum_reclaim, parse_threshold,
};
use winddown_yaml::{Fields, Problem};

use super::value::{OptionValue, Options, Word, options, written_options};
use super::{Field, FieldReading, Names, OptionRow, OptionSection, Top, ValueKind};
use crate::{Config, EvictionSettings, Trust};

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

// Over the limit because it is a table: one row per option, in the order of the default file.
pub(super) fn section() -> OptionSection {
    let rows = vec![
        Top::new(HARD, |c| &mut c.eviction.hard, THRESHOLDS)
            .doc(
                "When less than this is left, pods are ended at once to get it back. A quantity (100Mi) \
                 or a part of the capacity (10%); 0% switches a signal off. Naming any signal replaces \
                 the whole map, unless `mergeDefaultEvictionSettings` is true.",
            )
            .check(threshold),
        Top::new("mergeDefaultEvictionSettings", |c| &mut c.eviction.merge_defaults, ValueKind::Flag)
            .doc("Signals that `evictionHard` does not name keep their default."),
        Top::new(SOFT, |c| &mut c.eviction.soft, THRESHOLDS)
            .doc(
                "The same, but only when it lasts longer than its grace period. Has to be more than the \
                 hard one.",
            )
            .check(threshold)
            .example("memory.available: 300Mi"),
        Top::new(GRACE, |c| &mut c.eviction.soft_grace_period, GRACES)
            .doc("How long each soft threshold has to be met before a pod ends for it.")
            .check(|name, _| signal(name))
            .example("memory.available: 1m30s"),
        Top::new(RECLAIM, |c| &mut c.eviction.minimum_reclaim, THRESHOLDS)
            .doc("How much to get back beyond the threshold, so that the next one is not due at once.")
            .check(reclaim)
            .example("nodefs.available: 500Mi"),
        Top::new(
            "evictionPressureTransitionPeriod",
            |c| &mut c.eviction.pressure_transition_period,
            ValueKind::duration("1s", ""),
        )
        .doc("How long the pressure condition outlasts the pressure.")
        .zero_is_unset(),
        Top::new(
            "evictionMaxPodGracePeriod",
            |c| &mut c.eviction.max_pod_grace_period,
            ValueKind::seconds(i32::MIN.into(), i32::MAX.into()),
        )
        .doc("The most grace a pod gets when a soft threshold ends it; 0 or less takes the pod's own."),
        Top::choice("memoryAvailable", |c| &mut c.eviction.memory_available).doc(
            "Which memory is available: `memAvailable` counts what the kernel can give back without \
             swapping, file cache included; `workingSet` counts file cache that was used lately as \
             used, as the kubelet does.",
        ),
        Top::new(
            "memoryPressure",
            |c| &mut c.eviction.memory_pressure,
            ValueKind::object::<PressureRule>(),
        )
        .doc(
            "End a pod as soon as tasks lose time waiting for memory, before any threshold is \
             met. All of it has to hold: the share of the last 10 s in which some or all tasks \
             waited, that it does not fall, and that less memory than `below` is available. After \
             that no other pod is ended for `coolDown`. Off unless set.",
        ),
        Top::new(
            "evictionMemoryReclaim",
            |c| &mut c.eviction.memory_reclaim,
            ValueKind::duration("10ms", "5s"),
        )
        .doc(
            "Before a pod ends for memory, have the kernel take some of that pod's memory back, for this long \
             at most: what can be swapped out and, with `memoryAvailable: workingSet`, file cache. No pod \
             ends if that is enough. It is not tried where it could not be enough, nor twice within 10 s. \
             Wants cgroup v2 and Linux 5.19. Off unless set.",
        )
        .example("500ms"),
        Top::new("evictionHook", |c| &mut c.eviction.hook, ValueKind::object::<HookRule>()).doc(
            "A command that runs as root before each evicted pod is asked to end, and delays that: for \
             example, to dump what uses the memory. It reads the pod and the reason from `WINDDOWN_POD_NAMESPACE`, \
             `WINDDOWN_POD_NAME`, `WINDDOWN_POD_UID`, `WINDDOWN_SIGNAL` and `WINDDOWN_MESSAGE`; \
             `winddown plan eviction` shows what it wrote.",
        ),
        Top::choice("evictStaticPods", |c| &mut c.eviction.static_pods).doc(
            "Static pods are critical to the kubelet, and never ended (`spared`). Here those whose \
             manifest has a priority, below 2000000000, are like other pods (`byPriority`), and come \
             back when the pressure is over.",
        ),
        Top::new("evictionShadow", |c| &mut c.eviction.shadow, ValueKind::Flag).doc(
            "Decide and record only: no pod is ended, nothing is reclaimed, no condition is \
             reported.",
        ),
        Top::new(
            "imageMinimumGCAge",
            |c| &mut c.eviction.image_minimum_gc_age,
            ValueKind::duration("", ""),
        )
        .doc(
            "How long an image that nothing uses is kept when the disk runs short: the pod that it was \
             pulled for may not have started yet.",
        )
        .zero_is_unset(),
        Top::new(
            "localStorageCapacityIsolation",
            |c| &mut c.eviction.local_storage_limits,
            ValueKind::Flag,
        )
        .doc("End pods that have more on the disks than their own limits allow."),
        Top::new(
            "enforceNodeAllocatable",
            |c| &mut c.eviction.enforce_pods,
            ValueKind::Words(&[
                "pods",
                "system-reserved",
                "kube-reserved",
                "system-reserved-compressible",
                "kube-reserved-compressible",
                "none",
            ]),
        )
        .doc(
            "With `pods` in it, hard thresholds on memory.available hold for the pods' cgroup as well. \
             The kubelet's other words have no effect.",
        ),
    ];
    OptionSection {
        title: "Eviction",
        rows: rows.into_iter().map(OptionRow::live).collect(),
        relate,
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

impl Options for PressureRule {
    fn rows() -> Vec<OptionRow<Self>> {
        vec![
            OptionRow::<Self>::choice("scope", |rule| &mut rule.scope)
                .doc("Whose tasks wait: those of the whole `node`, or of the `pods` alone.")
                .example("node"),
            OptionRow::<Self>::new("some", |rule| &mut rule.some, ValueKind::Percent)
                .doc("The share of the last 10 s in which at least one task waited.")
                .example("40%"),
            OptionRow::<Self>::new("full", |rule| &mut rule.full, ValueKind::Percent)
                .doc("The share of the last 10 s in which all tasks waited.")
                .example("10%"),
            OptionRow::<Self>::new("below", |rule| &mut rule.below, ValueKind::Threshold)
                .doc("Less memory than this is available.")
                .example("10%"),
            OptionRow::<Self>::new(
                "coolDown",
                |rule| &mut rule.cool_down,
                ValueKind::duration("0s", ""),
            )
            .doc("For how long no other pod is ended after it.")
            .example("10s"),
        ]
    }

    fn finish(&mut self, fields: &Fields<'_, '_>) {
        if self.some.is_some() && !fields.has("full") {
            self.full = None;
        }
    }
}

impl Options for HookRule {
    fn rows() -> Vec<OptionRow<Self>> {
        vec![
            OptionRow::<Self>::new("command", |rule| &mut rule.command, ValueKind::Command)
                .trusted(Trust::Run)
                .doc("The program, by its whole path, and its arguments. No shell sees them.")
                .required()
                .example("[/usr/local/sbin/dump-memory, --short]"),
            OptionRow::<Self>::new(
                "timeout",
                |rule| &mut rule.timeout,
                ValueKind::duration("10ms", "5s"),
            )
            .doc("It is killed after this time.")
            .example("2s"),
        ]
    }
}

impl OptionValue for HookRule {
    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        fields.below(field.name, options)
    }

    fn written(&self, _: &Field) -> Json {
        written_options(self)
    }
}

impl OptionValue for PressureRule {
    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        fields.below(field.name, options)
    }

    fn written(&self, _: &Field) -> Json {
        written_options(self)
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

fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, reading: &mut FieldReading) {
    let EvictionSettings { hard, soft, soft_grace_period: graces, .. } = &config.eviction;
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
            fields.fail_below(GRACE, signal, at, SoftGraceError::Zero);
        }
        // Compare only with thresholds in the file, not with defaults: the kubelet accepts those.
        let Some(hard_text) = hard.get(signal).filter(|_| fields.entry_at(HARD, signal).is_some())
        else {
            continue;
        };
        let reached_first = match (parse_threshold(hard_text).ok().flatten(), value) {
            (Some(ThresholdValue::Share(hard)), Some(ThresholdValue::Share(soft))) => hard >= soft,
            (Some(ThresholdValue::Quantity(hard)), Some(ThresholdValue::Quantity(soft))) => {
                hard >= soft
            }
            // A quantity and a percentage cannot be compared without the node's capacity.
            _ => false,
        };
        if reached_first {
            let what = format!(
                "`{text}` is never reached before the hard threshold `{hard_text}`: write more"
            );
            fields.fail_below(SOFT, signal, at, what);
        }
    }
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
