//! The fields beyond thresholds: which figures count, and what is done with them.

use serde_json::{Value as Json, json};
use winddown_eviction::{
    MemoryAvailable, PressureRule, PressureScope, StaticPods, ThresholdValue, parse_threshold,
};
use winddown_shared::GoDuration;

use super::EvictionSettings;
use crate::cluster::one_of;
use winddown_yaml::{Fields, Located, Value};

pub(super) fn read(fields: &mut Fields<'_, '_>, defaults: EvictionSettings) -> EvictionSettings {
    let choice = [
        ("memAvailable", MemoryAvailable::MemAvailable),
        ("workingSet", MemoryAvailable::WorkingSet),
    ];
    let statics = [("byPriority", StaticPods::ByPriority), ("spared", StaticPods::Spared)];
    EvictionSettings {
        memory_available: one_of(fields, "memoryAvailable", &choice)
            .unwrap_or(defaults.memory_available),
        memory_pressure: pressure(fields),
        static_pods: one_of(fields, "evictStaticPods", &statics).unwrap_or(defaults.static_pods),
        shadow: fields.bool("evictionShadow").map_or(defaults.shadow, |found| found.value),
        image_minimum_gc_age: fields
            .duration("imageMinimumGCAge")
            .map(|found| found.value)
            // The kubelet takes 0 for its default.
            .filter(|age| !age.is_zero())
            .unwrap_or(defaults.image_minimum_gc_age),
        local_storage_limits: fields
            .bool("localStorageCapacityIsolation")
            .map_or(defaults.local_storage_limits, |found| found.value),
        enforce_pods: enforce_pods(fields).unwrap_or(defaults.enforce_pods),
        ..defaults
    }
}

impl EvictionSettings {
    /// The same fields as they would be written.
    pub(crate) fn entries_beyond(&self) -> Vec<(&'static str, Json)> {
        let enforced = if self.enforce_pods { json!(["pods"]) } else { json!([]) };
        let mut entries = vec![
            ("memoryAvailable", json!(self.memory_available)),
            ("evictStaticPods", json!(self.static_pods)),
            ("evictionShadow", json!(self.shadow)),
            (
                "imageMinimumGCAge",
                json!(GoDuration::try_from(self.image_minimum_gc_age).unwrap_or_default()),
            ),
            ("localStorageCapacityIsolation", json!(self.local_storage_limits)),
            ("enforceNodeAllocatable", enforced),
        ];
        entries.extend(self.memory_pressure.map(|rule| ("memoryPressure", written(&rule))));
        entries
    }
}

fn written(rule: &PressureRule) -> Json {
    let percent = |percent: f32| format!("{percent}%");
    let mut entry = serde_json::Map::new();
    entry.insert("scope".to_owned(), json!(rule.scope));
    entry.extend(rule.some.map(|some| ("some".to_owned(), json!(percent(some)))));
    entry.extend(rule.full.map(|full| ("full".to_owned(), json!(percent(full)))));
    let below = match rule.below {
        ThresholdValue::Quantity(quantity) => quantity.to_string(),
        ThresholdValue::Share(share) => percent(share * 100.0),
    };
    entry.insert("below".to_owned(), json!(below));
    let cool_down = GoDuration::try_from(rule.cool_down).unwrap_or_default();
    entry.insert("coolDown".to_owned(), json!(cool_down));
    Json::Object(entry)
}

fn enforce_pods(fields: &mut Fields<'_, '_>) -> Option<bool> {
    let key = "enforceNodeAllocatable";
    let found = fields.node(key)?;
    let Value::List(items) = &found.value.value else {
        let what = format!("needs a list such as [pods], this is {}", found.value.describe());
        fields.fail(key, found.at, what);
        return None;
    };
    let is_pods = |value: &Value| matches!(value, Value::Scalar(scalar) if scalar.text == "pods");
    Some(items.iter().any(|item| is_pods(&item.value)))
}

fn pressure(fields: &mut Fields<'_, '_>) -> Option<PressureRule> {
    fields.below("memoryPressure", |fields| {
        let default = PressureRule::default();
        let scopes = [("node", PressureScope::Node), ("pods", PressureScope::Pods)];
        let scope = one_of(fields, "scope", &scopes).unwrap_or_default();
        let some = percent(fields, "some");
        let full = percent(fields, "full").or(default.full.filter(|_| some.is_none()));
        let below = below(fields).unwrap_or(default.below);
        let cool_down = fields.duration("coolDown").map_or(default.cool_down, |found| found.value);
        Some(PressureRule { scope, some, full, below, cool_down })
    })
}

fn percent(fields: &mut Fields<'_, '_>, key: &'static str) -> Option<f32> {
    let found = fields.node(key)?;
    let Located { value, at } = fields.raw(key, &found, "a percentage, for example 10%")?;
    let number = value.strip_suffix('%').and_then(|number| number.parse::<f32>().ok());
    let percent = number.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    if percent.is_none() {
        let what = format!("`{value}` is no share of the time: write more than 0% and up to 100%");
        fields.fail(key, at, what);
    }
    percent
}

fn below(fields: &mut Fields<'_, '_>) -> Option<ThresholdValue> {
    let key = "below";
    let found = fields.node(key)?;
    let Located { value, at } = fields.raw(key, &found, "a threshold, for example 10%")?;
    match parse_threshold(value) {
        Ok(Some(threshold)) => return Some(threshold),
        Ok(None) => {
            let what = format!("`{value}` would switch it off: leave memoryPressure out instead");
            fields.fail(key, at, what);
        }
        Err(error) => fields.fail(key, at, error),
    }
    None
}
