//! Properties that hold for any pods on any node.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "example.com/a"];

/// Whole amounts of each of [`NAMES`].
type Amounts = [u8; 4];

fn quantities(amounts: Amounts) -> Value {
    let named = NAMES.iter().zip(amounts).map(|(n, a)| ((*n).to_owned(), json!(a.to_string())));
    Value::Object(named.collect())
}

fn critical(amounts: Amounts) -> Pod {
    let mut spec = asks(&quantities(amounts));
    spec["priority"] = json!(2_000_000_000);
    pod("new", &spec)
}

fn some_amounts() -> impl Strategy<Value = Amounts> {
    proptest::array::uniform4(0_u8..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Preemption relies on this: the requirements are exact.
    #[test]
    fn a_pod_fits_once_others_gave_back_what_it_lacks_and_not_before(
        capacity in proptest::array::uniform4(0_u8..60),
        places in 0_u8..12,
        new in some_amounts(),
        others in proptest::collection::vec((some_amounts(), any::<bool>()), 0..12),
    ) {
        let mut allocatable = quantities(capacity);
        allocatable["pods"] = json!(places.to_string());
        let node = node(&json!({"status": {"allocatable": allocatable}}));
        let new = critical(new);
        let pods: Vec<(Pod, bool)> = others
            .iter()
            .enumerate()
            .map(|(i, (amounts, ends))| {
                (pod(&format!("o{i}"), &asks(&quantities(*amounts))), *ends)
            })
            .collect();
        let before = fit_failures(&new, &node, &NodeUse::without(&new, pods.iter().map(|p| &p.0)));
        let required = before.into_requirements(&new).expect("only resources can lack");
        for (name, amount) in &required {
            prop_assert!(*amount > 0, "{name}: {amount}");
        }

        let given_back = |name: &ResourceName| -> i64 {
            pods.iter().filter(|(_, ends)| *ends).map(|(p, _)| p.fit_requests().get(name)).sum()
        };
        let enough = required.iter().all(|(name, amount)| given_back(name) >= *amount);
        let left = pods.iter().filter(|(_, ends)| !ends).map(|(p, _)| p);
        let after = fit_failures(&new, &node, &NodeUse::without(&new, left));
        prop_assert_eq!(after.is_empty(), enough, "{:?} of {:?}", after, required);
    }

    /// No text in a manifest makes the fit panic, and text that does not parse never matches.
    #[test]
    fn any_text_is_judged(key in ".{0,8}", operator in ".{0,8}", value in ".{0,24}") {
        let spec = json!({
            "containers": [{"name": "c", "ports": [
                {"containerPort": -1, "hostPort": -5, "protocol": operator, "hostIP": value},
            ]}],
            "nodeName": value,
            "nodeSelector": {key.clone(): value.clone()},
            "tolerations": [{"key": key, "operator": operator, "value": value}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{
                    "matchExpressions": [{"key": key, "operator": operator, "values": [value]}],
                    "matchFields": [{"key": key, "operator": operator, "values": [value]}],
                }],
            }}},
        });
        let taints = json!([{"key": key, "value": value, "effect": "NoExecute"}]);
        let node = node(&json!({"metadata": {"name": "machine1"}, "spec": {"taints": taints}}));
        let found = failures(&pod("u", &spec), &node, &[]);
        prop_assert!(found.contains(&AdmissionFailure::NODE_AFFINITY));
        prop_assert!(!found.contains(&AdmissionFailure::NODE_PORTS));
    }
}
