//! Disruption budgets and eviction responders that are asked before the pods of a plan are stopped.

use std::collections::BTreeMap;

use winddown_control::api::{PlannedPodStatus, ShutdownPlan};
use winddown_shared::display::clean;

/// The pods of a plan that a disruption budget counts.
#[derive(Default)]
struct Counted<'a> {
    /// How many may be disrupted now; none if unknown.
    allowed: Option<u32>,
    pods: Vec<&'a PlannedPodStatus>,
}

/// One line per disruption budget, and one per pod with responders. Lines that start with `!` name budgets that refuse.
pub(super) fn lines(plan: &ShutdownPlan) -> Vec<String> {
    let pods = || plan.groups.iter().flat_map(|group| &group.pods);
    let mut budgets: BTreeMap<(&str, &str), Counted<'_>> = BTreeMap::new();
    // The API server refuses to evict a pod that more than one selects.
    let is_of_several = |pod: &&PlannedPodStatus| pod.disruption_budgets.len() > 1;
    for pod in pods().filter(|pod| !is_of_several(pod)) {
        for budget in &pod.disruption_budgets {
            let counted = budgets.entry((&pod.namespace, &budget.name)).or_default();
            counted.allowed = budget.disruptions_allowed;
            counted.pods.push(pod);
        }
    }
    let budgets = budgets.iter().map(|((namespace, name), Counted { allowed, pods })| {
        let budget = format!("disruption budget {}/{}", clean(namespace), clean(name));
        let names: Vec<_> = pods.iter().map(|pod| clean(&pod.name)).collect();
        let names = names.join(", ");
        match *allowed {
            None => format!("{budget} is asked first about {names}"),
            Some(allowed) if (allowed as usize) >= pods.len() => {
                format!("{budget} allows the eviction of {names}")
            }
            Some(0) => format!(
                "! {budget} refuses the eviction of {names}: retried for a while, then they are \
                 deleted anyway"
            ),
            Some(allowed) => format!(
                "! {budget} allows the eviction of {allowed} of {names}: retried for a while, \
                 then the others are deleted anyway"
            ),
        }
    });
    let of_several = pods().filter(is_of_several).map(|pod| {
        let (namespace, name) = (clean(&pod.namespace), clean(&pod.name));
        format!(
            "! more than one disruption budget selects {namespace}/{name}: the API server evicts no \
             such pod, so it is deleted"
        )
    });
    let responders = pods().filter(|pod| !pod.eviction_responders.is_empty()).map(|pod| {
        let names: Vec<_> = pod.eviction_responders.iter().map(|name| clean(name)).collect();
        let (namespace, name) = (clean(&pod.namespace), clean(&pod.name));
        format!("{namespace}/{name} is first left to its eviction responders: {}", names.join(", "))
    });
    budgets.chain(of_several).chain(responders).collect()
}

#[cfg(test)]
mod tests {
    use winddown_control::api::{PlannedBudget, PlannedGroup};

    use super::*;

    fn pod(name: &str, budgets: &[(&str, Option<u32>)], responders: &[&str]) -> PlannedPodStatus {
        let budgets = budgets.iter().map(|(name, allowed)| PlannedBudget {
            name: (*name).to_owned(),
            disruptions_allowed: *allowed,
        });
        PlannedPodStatus {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            disruption_budgets: budgets.collect(),
            eviction_responders: responders.iter().map(|name| (*name).to_owned()).collect(),
            ..PlannedPodStatus::default()
        }
    }

    #[test]
    fn each_budget_says_once_what_it_is_for_and_against() {
        let pods = vec![
            pod("web-0", &[("web", Some(1))], &[]),
            pod("web-1", &[("web", Some(1)), ("all", Some(9))], &[]),
            pod("web-2", &[("web", Some(1))], &[]),
            pod("db-0", &[("db", Some(0))], &["kubevirt.io/move"]),
            pod("new-0", &[("new", None)], &[]),
            pod("free", &[], &[]),
        ];
        let mut plan = ShutdownPlan { requested_seconds: 30.0, ..Default::default() };
        plan.groups = vec![PlannedGroup { pods, ..PlannedGroup::default() }];
        assert_eq!(
            lines(&plan),
            [
                "! disruption budget shop/db refuses the eviction of db-0: retried for a while, then they are \
                 deleted anyway",
                "disruption budget shop/new is asked first about new-0",
                "! disruption budget shop/web allows the eviction of 1 of web-0, web-2: retried \
                 for a while, then the others are deleted anyway",
                "! more than one disruption budget selects shop/web-1: the API server evicts no such \
                 pod, so it is deleted",
                "shop/db-0 is first left to its eviction responders: kubevirt.io/move",
            ]
        );
    }
}
