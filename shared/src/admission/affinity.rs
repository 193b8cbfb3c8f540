//! Node selectors and required node affinity.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use super::node_view::NodeView;
use crate::Pod;

/// Whether the node matches the pod's `nodeSelector` and its required node affinity.
///
/// Terms are alternatives; within a term, all requirements must match. A term without requirements matches no node, and
/// neither does a malformed one. Preferred affinity only concerns the scheduler.
pub(super) fn matches(pod: &Pod, node: &NodeView) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let selector = spec.node_selector.iter().flatten();
    if !selector.into_iter().all(|(key, value)| node.label(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    match affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()) {
        None => true,
        Some(required) => required.node_selector_terms.iter().any(|term| holds(term, node)),
    }
}

fn holds(term: &NodeSelectorTerm, node: &NodeView) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    labels.iter().all(|wanted| label_holds(wanted, node.label(&wanted.key)))
        && fields.iter().all(|wanted| field_holds(wanted, node))
}

fn label_holds(wanted: &NodeSelectorRequirement, label: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let is_listed = || label.is_some_and(|label| values.iter().any(|value| value == label));
    match wanted.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !values.is_empty() && !is_listed(),
        "Exists" => values.is_empty() && label.is_some(),
        "DoesNotExist" => values.is_empty() && label.is_none(),
        "Gt" => numbers(label, values).is_some_and(|(label, bound)| label > bound),
        "Lt" => numbers(label, values).is_some_and(|(label, bound)| label < bound),
        _ => false,
    }
}

fn numbers(label: Option<&str>, values: &[String]) -> Option<(i64, i64)> {
    let [bound] = values else { return None };
    Some((label?.parse().ok()?, bound.parse().ok()?))
}

/// The only field that can be selected is the node's name, with exactly one value. A node that has
/// no name yet is not checked.
fn field_holds(wanted: &NodeSelectorRequirement, node: &NodeView) -> bool {
    let [value] = wanted.values.as_deref().unwrap_or_default() else { return false };
    let is_value = wanted.key == "metadata.name" && **value == *node.name;
    match wanted.operator.as_str() {
        "In" => node.name.is_empty() || is_value,
        "NotIn" => node.name.is_empty() || !is_value,
        _ => false,
    }
}
