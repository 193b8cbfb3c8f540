//! Which pods a disruption budget may protect.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use kube::core::{Selector, SelectorExt as _};
use winddown_api_client::node_pods::RefusedRequest;
use winddown_shared::{DisruptionBudget, Pod};

use super::api::EndPods;
use super::recent::Recent;

/// The cluster's disruption budgets, read once for all pods that are stopped at about the same time.
///
/// For each pod, an eviction costs the API server a list of budgets and two writes, a deletion one
/// write. With this, a hundred pods that are stopped at once get their requests seconds earlier.
#[derive(Debug, Default)]
pub(super) struct Budgets(Recent<Vec<PodDisruptionBudget>>);

// === impl Budgets ===

impl Budgets {
    /// Whether a budget may forbid this pod's eviction: one selects it, or the budgets are not known. `note` gets
    /// the answer if they are read now.
    pub(super) async fn may_object<A: EndPods>(
        &self,
        api: &A,
        pod: &Pod,
        note: impl FnOnce(Result<(), &RefusedRequest>),
    ) -> bool {
        let selects = |all: Option<&Vec<PodDisruptionBudget>>| {
            all.is_none_or(|all| all.iter().any(|budget| may_select(budget, pod)))
        };
        self.0.with_cached(api.budgets(), note, selects).await
    }

    /// For each of these pods, the budgets that count it; `None` if they are not known. `note` gets the answer if they are
    /// read now.
    pub(super) async fn counting<A: EndPods>(
        &self,
        api: &A,
        pods: &[Pod],
        note: impl FnOnce(Result<(), &RefusedRequest>),
    ) -> Option<Vec<Vec<DisruptionBudget>>> {
        let counting = |all: &[PodDisruptionBudget], pod: &Pod| -> Vec<DisruptionBudget> {
            all.iter().filter(|budget| may_select(budget, pod)).map(told).collect()
        };
        let of_pods = |all: Option<&Vec<PodDisruptionBudget>>| {
            all.map(|all| pods.iter().map(|pod| counting(all, pod)).collect())
        };
        self.0.with_cached(api.budgets(), note, of_pods).await
    }
}

/// Whether the budget counts the pod. A selector that cannot be parsed may select any pod.
fn may_select(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    if budget.metadata.namespace.as_deref() != Some(&**pod.namespace()) {
        return false;
    }
    // No selector selects no pod; an empty one selects all.
    let Some(selector) = budget.spec.as_ref().and_then(|spec| spec.selector.clone()) else {
        return false;
    };
    let none = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    Selector::try_from(selector).map_or(true, |selector| selector.matches(labels))
}

fn told(budget: &PodDisruptionBudget) -> DisruptionBudget {
    let allowed = budget.status.as_ref().and_then(allowed);
    DisruptionBudget {
        name: budget.metadata.name.clone().unwrap_or_default(),
        allowed: allowed.map(|allowed| u32::try_from(allowed).unwrap_or(0)),
    }
}

fn allowed(status: &PodDisruptionBudgetStatus) -> Option<i32> {
    k8s_openapi::k8s_if_ge_1_36! {
        status.disruptions_allowed
    }
    k8s_openapi::k8s_if_le_1_35! {
        Some(status.disruptions_allowed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::pods::pod;

    #[test]
    fn a_budget_may_be_against_what_its_labels_select_in_its_namespace() {
        let labels = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        let pod = Pod::new(pod("web", labels)).unwrap();
        for (namespace, spec, wanted) in [
            ("default", json!({"selector": {"matchLabels": {"app": "web"}}}), true),
            ("default", json!({"selector": {"matchLabels": {"app": "web", "tier": "x"}}}), false),
            ("default", json!({"selector": {"matchLabels": {"app": "db"}}}), false),
            ("default", json!({"selector": {}}), true),
            ("default", json!({}), false),
            ("other", json!({"selector": {}}), false),
            (
                "default",
                json!({"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}}),
                false,
            ),
            (
                "default",
                json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}),
                true,
            ),
            (
                "default",
                json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Later"}]}}),
                true,
            ),
        ] {
            let budget = json!({"metadata": {"name": "b", "namespace": namespace}, "spec": spec});
            let budget = serde_json::from_value(budget).unwrap();
            assert_eq!(may_select(&budget, &pod), wanted, "{namespace} {spec}");
        }
    }
}
