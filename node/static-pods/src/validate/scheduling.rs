//! What only a scheduler looks at: tolerations, readiness gates, the scheduling group.

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::FieldCheck;

use super::rules;

pub(super) fn toleration(check: &mut FieldCheck<'_>, toleration: &api::Toleration) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, value) = (text(&toleration.key), text(&toleration.value));
    let (operator, effect) = (text(&toleration.operator), text(&toleration.effect));
    if !key.is_empty() {
        rules::qualified(check, "key", &key);
    }
    match operator.as_str() {
        "" | "Equal" if key.is_empty() => {
            check.fail_at("operator", "has to be Exists, because there is no `key`");
        }
        "" | "Equal" => rules::label_value(check, "value", &value),
        "Exists" if !value.is_empty() => {
            check.fail_at("value", "has no effect with `operator: Exists`: remove one of the two");
        }
        operator => rules::word(check, "operator", operator, &["Exists", "Equal"]),
    }
    let effects = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
    rules::word(check, "effect", &effect, &effects);
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        check.fail_at("effect", "has to be NoExecute, because `tolerationSeconds` is set");
    }
}

pub(super) fn groups_and_gates(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    check.each("readinessGates", spec.readiness_gates.iter().flatten(), |check, gate| {
        rules::qualified(check, "conditionType", &gate.condition_type);
    });
    if let Some(group) = &spec.scheduling_group {
        check.key("schedulingGroup", |check| {
            let name = group.pod_group_name.as_deref().unwrap_or_default();
            rules::subdomain(check, "podGroupName", name, "pod group");
        });
    }
}
