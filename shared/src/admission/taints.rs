//! `NoExecute` taints, and the tolerations against them.

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::node_view::NodeView;
use crate::Pod;

/// Whether the pod tolerates every `NoExecute` taint of the node. Other effects only concern schedulers.
pub(super) fn tolerates(pod: &Pod, node: &NodeView) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref());
    let tolerations = tolerations.unwrap_or_default();
    let mut ending = node.taints.iter().filter(|taint| taint.effect == "NoExecute");
    ending.all(|taint| tolerations.iter().any(|toleration| covers(toleration, taint)))
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    let tolerated = toleration.value.as_deref().unwrap_or_default();
    let value = taint.value.as_deref().unwrap_or_default();
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => value == tolerated,
        "Exists" => true,
        // KEP-5471.
        "Gt" => numbers(value, tolerated).is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers(value, tolerated).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

fn numbers(value: &str, bound: &str) -> Option<(i64, i64)> {
    Some((canonical(value)?, canonical(bound)?))
}

/// Parses a number in canonical form: no plus sign, no leading zero.
fn canonical(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.starts_with('+') || digits.len() > 1 && digits.starts_with('0') || text == "-0" {
        return None;
    }
    text.parse().ok()
}
