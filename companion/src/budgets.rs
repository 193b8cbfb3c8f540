//! Which pods a disruption budget may be against.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use winddown_api_client::node_pods::Refused;
use winddown_shared::Pod;

use super::api::EndPods;
use super::recent::Recent;

/// The disruption budgets of the cluster, read once for all pods that end at about the same time.
///
/// An eviction costs the API server a list of budgets and two writes for each pod, and a deletion one
/// write. A hundred pods that end at once are asked seconds sooner so.
#[derive(Debug, Default)]
pub(super) struct Budgets(Recent<Vec<PodDisruptionBudget>>);

// === impl Budgets ===

impl Budgets {
    /// Whether a budget may be against this pod's end: one selects it, or they are not known. `failed` hears
    /// why they are refused.
    pub(super) async fn may_object<A: EndPods>(
        &self,
        api: &A,
        pod: &Pod,
        failed: impl FnOnce(&Refused),
    ) -> bool {
        let selects = |all: Option<&Vec<PodDisruptionBudget>>| {
            all.is_none_or(|all| all.iter().any(|budget| may_select(budget, pod)))
        };
        self.0.judge(api.budgets(), failed, selects).await
    }
}

/// Whether the budget counts the pod. Expressions are not looked into: they may mean any pod.
fn may_select(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    if budget.metadata.namespace.as_deref() != Some(&**pod.namespace()) {
        return false;
    }
    // Without a selector it is of no pod; with an empty one, of all.
    let Some(selector) = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else {
        return false;
    };
    let labels = pod.metadata.labels.as_ref();
    let has = |(key, value): (&String, &String)| {
        labels.is_some_and(|labels| labels.get(key) == Some(value))
    };
    selector.match_labels.iter().flatten().all(has)
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
                true,
            ),
        ] {
            let budget = json!({"metadata": {"name": "b", "namespace": namespace}, "spec": spec});
            let budget = serde_json::from_value(budget).unwrap();
            assert_eq!(may_select(&budget, &pod), wanted, "{namespace} {spec}");
        }
    }
}
