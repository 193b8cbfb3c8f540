//! `spec.topologySpreadConstraints[]`.

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::FieldCheck;

use super::{rules, selector};

pub(super) fn all(check: &mut FieldCheck<'_>, constraints: &[api::TopologySpreadConstraint]) {
    let mut kinds = std::collections::BTreeSet::new();
    check.each("topologySpreadConstraints", constraints, |check, one| {
        rules::at_least(check, "maxSkew", Some(one.max_skew), 1);
        if one.topology_key.is_empty() {
            check
                .fail_at("topologyKey", "is missing: write the label whose values are spread over");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        rules::word(check, "whenUnsatisfiable", &one.when_unsatisfiable, &actions);
        if !kinds.insert((one.topology_key.as_str(), one.when_unsatisfiable.as_str())) {
            check.fail_at("topologyKey", "is in an earlier entry with the same whenUnsatisfiable");
        }
        rules::at_least(check, "minDomains", one.min_domains, 1);
        if one.min_domains.is_some() && one.when_unsatisfiable != "DoNotSchedule" {
            check.fail_at("minDomains", "has no effect without `whenUnsatisfiable: DoNotSchedule`");
        }
        let policies = ["Honor", "Ignore"];
        let affinity = one.node_affinity_policy.as_ref();
        rules::word_if_any(check, "nodeAffinityPolicy", affinity, &policies);
        rules::word_if_any(check, "nodeTaintsPolicy", one.node_taints_policy.as_ref(), &policies);
        let selected = one.label_selector.as_ref();
        selector::keys_of_own_labels(check, one.match_label_keys.as_ref(), None, selected);
        selector::check(check, "labelSelector", selected);
    });
}
