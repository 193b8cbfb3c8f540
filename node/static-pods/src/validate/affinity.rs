//! `spec.affinity`.

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::{FieldCheck, Shortened, names};

use super::{rules, selector};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn all(check: &mut FieldCheck<'_>, affinity: Option<&api::Affinity>) {
    let Some(affinity) = affinity else { return };
    check.key("affinity", |check| {
        if let Some(nodes) = &affinity.node_affinity {
            check.key("nodeAffinity", |check| of_nodes(check, nodes));
        }
        if let Some(pods) = &affinity.pod_affinity {
            let required = pods.required_during_scheduling_ignored_during_execution.as_ref();
            let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_ref();
            check.key("podAffinity", |check| of_pods(check, required, preferred));
        }
        if let Some(pods) = &affinity.pod_anti_affinity {
            let required = pods.required_during_scheduling_ignored_during_execution.as_ref();
            let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_ref();
            check.key("podAntiAffinity", |check| of_pods(check, required, preferred));
        }
    });
}

fn of_nodes(check: &mut FieldCheck<'_>, affinity: &api::NodeAffinity) {
    if let Some(selector) = &affinity.required_during_scheduling_ignored_during_execution {
        check.key(REQUIRED, |check| {
            if selector.node_selector_terms.is_empty() {
                check.fail_at("nodeSelectorTerms", "is missing: write at least one");
            }
            check.each("nodeSelectorTerms", &selector.node_selector_terms, |check, term| {
                self::term(check, term, true);
            });
        });
    }
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    check.each(PREFERRED, preferred, |check, one| {
        rules::within(check, "weight", Some(one.weight), 1..=100);
        check.key("preference", |check| term(check, &one.preference, false));
    });
}

/// `required` values have to be possible values of labels.
fn term(check: &mut FieldCheck<'_>, term: &api::NodeSelectorTerm, required: bool) {
    check.each("matchExpressions", term.match_expressions.iter().flatten(), |check, one| {
        rules::qualified(check, "key", &one.key);
        let values = one.values.as_deref().unwrap_or_default();
        match one.operator.as_str() {
            "In" | "NotIn" => selector::some_values(check, values),
            "Exists" | "DoesNotExist" => selector::no_values(check, values),
            "Gt" | "Lt" if values.len() == 1 => {}
            "Gt" | "Lt" => check.fail_at("values", "has to have one value"),
            operator => {
                let known = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
                rules::word(check, "operator", operator, &known);
            }
        }
        if required {
            selector::label_values(check, values);
        }
    });
    check.each("matchFields", term.match_fields.iter().flatten(), |check, one| {
        rules::word(check, "key", &one.key, &["metadata.name"]);
        rules::word(check, "operator", &one.operator, &["In", "NotIn"]);
        let values = one.values.as_deref().unwrap_or_default();
        if values.len() != 1 || values.iter().any(|name| !names::is_dns_subdomain(name)) {
            check.fail_at("values", "has to have one value, the name of a node");
        }
    });
}

fn of_pods(
    check: &mut FieldCheck<'_>,
    required: Option<&Vec<api::PodAffinityTerm>>,
    preferred: Option<&Vec<api::WeightedPodAffinityTerm>>,
) {
    check.each(REQUIRED, required.into_iter().flatten(), pod_term);
    check.each(PREFERRED, preferred.into_iter().flatten(), |check, one| {
        rules::within(check, "weight", Some(one.weight), 1..=100);
        check.key("podAffinityTerm", |check| pod_term(check, &one.pod_affinity_term));
    });
}

fn pod_term(check: &mut FieldCheck<'_>, term: &api::PodAffinityTerm) {
    let selected = term.label_selector.as_ref();
    selector::check(check, "labelSelector", selected);
    selector::check(check, "namespaceSelector", term.namespace_selector.as_ref());
    check.each("namespaces", term.namespaces.iter().flatten(), |check, name| {
        if !names::is_dns_label(name) {
            check.fail(format!("`{}` is no namespace: {}", Shortened(name), rules::LABEL));
        }
    });
    let (matching, other) = (term.match_label_keys.as_ref(), term.mismatch_label_keys.as_ref());
    selector::keys_of_own_labels(check, matching, other, selected);
    rules::qualified(check, "topologyKey", &term.topology_key);
}
