//! Groups of roles: the order and the time that need no configuration.

use serde_json::json;

use super::*;

/// A pod whose role is the `index`-th, in `index % 5`.
fn of_role(index: usize, name: &str, grace: Option<i64>) -> Pod {
    let (annotations, labels) = match index % 5 {
        3 => (json!({"kubernetes.io/config.source": "file"}), json!({"tier": "control-plane"})),
        4 => (json!({"kubernetes.io/config.source": "file"}), json!({"component": "etcd"})),
        _ => (json!({}), json!({})),
    };
    let priority = match index % 5 {
        0 => 0,
        1 => 2_000_000_000,
        _ => 2_000_001_000,
    };
    let object = json!({
        "metadata": {
            "name": name, "namespace": "kube-system", "uid": name,
            "annotations": annotations, "labels": labels,
        },
        "spec": {
            "containers": [],
            "priority": priority,
            "terminationGracePeriodSeconds": grace,
        },
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

/// One pod per grace period: the first ordinary, the second a system pod, and so on. -1 stands for no pod.
fn one_each(graces: [i64; 5]) -> Vec<Pod> {
    let pods = graces.iter().enumerate().filter(|(_, grace)| **grace >= 0);
    pods.map(|(index, grace)| of_role(index, &format!("p{index}"), Some(*grace))).collect()
}

fn roles(total: u64, later: u64) -> Policy {
    Policy::by_role(secs(total), secs(later)).unwrap()
}

fn shares(graces: [i64; 5], available: Option<u64>) -> Vec<u64> {
    allowed(&plan(&one_each(graces), &roles(30, 10), available.map(secs)))
}

#[test]
fn pods_end_in_the_order_of_what_they_are_for() {
    let mut pods = one_each([1; 5]);
    pods.reverse();
    let mut plan = plan(&pods, &roles(30, 10), None);
    assert_eq!(names(&plan), [["p0"], ["p1"], ["p2"], ["p3"], ["p4"]]);
    let named: Vec<_> = plan.groups.iter().filter_map(super::super::Group::name).collect();
    assert_eq!(
        named,
        ["ordinary pods", "system pods", "pods of the node itself", "control plane", "etcd"]
    );
    assert_eq!(plan.group_for(&of_role(4, "late", None)), Some(4));
}

/// An ordinary pod.
fn ordinary(name: &str, priority: i32, grace: i64) -> Pod {
    pod(name, Some(priority), Some(grace))
}

#[test]
fn of_ordinary_pods_those_of_lower_priority_end_first() {
    let mut pods = one_each([-1, 4, -1, -1, -1]);
    pods.extend([ordinary("db", 100_000, 8), ordinary("web", 0, 5), ordinary("batch", -10, 5)]);
    let mut plan = plan(&pods, &roles(30, 10), None);
    assert_eq!(names(&plan)[..4], [["batch"], ["web"], ["db"], ["p1"]]);
    let named: Vec<_> = plan.groups.iter().filter_map(super::super::Group::name).collect();
    assert_eq!(
        named[..4],
        [
            "ordinary pods, priority -10",
            "ordinary pods",
            "ordinary pods, priority 100000",
            "system pods"
        ]
    );
    assert_eq!(allowed(&plan)[..4], [5, 5, 8, 4]);
    assert_eq!(ends(&plan)[..4], [13, 18, 26, 30]);
    // A pod that is known late joins the last of them whose priority is not above its own.
    let joined = [-100, -10, 7, 100_000, 1_000_000];
    let joined = joined.map(|priority| plan.group_for(&ordinary("late", priority, 5)).unwrap());
    assert_eq!(joined, [0, 0, 1, 2, 2]);
}

#[test]
fn groups_of_ordinary_pods_share_the_time_that_ordinary_pods_have() {
    let pods = |graces: [i64; 3]| {
        let priorities = [0, 1, 2].into_iter().zip(graces);
        let mut pods: Vec<Pod> =
            priorities.map(|(priority, grace)| ordinary("p", priority, grace)).collect();
        pods.push(of_role(1, "dns", Some(60)));
        pods
    };
    let shares = |graces| allowed(&plan(&pods(graces), &roles(30, 10), None));
    assert_eq!(shares([60, 60, 60])[..4], [6, 7, 7, 10]);
    assert_eq!(shares([2, 60, 60])[..4], [2, 9, 9, 10]);
    assert_eq!(shares([2, 3, 4])[..4], [2, 3, 4, 21]);
}

#[test]
fn of_many_priorities_the_lowest_end_together() {
    let pods: Vec<Pod> = (0..20).map(|n| ordinary(&format!("p{n}"), n, 5)).collect();
    let plan = plan(&pods, &roles(30, 10), None);
    let counts: Vec<usize> = plan.groups.iter().map(|group| group.pods.len()).collect();
    assert_eq!(counts, [13, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn short_wishes_are_all_met_and_the_first_group_may_use_what_is_left() {
    let plan = plan(&one_each([5, 1, 2, 3, 4]), &roles(30, 10), None);
    assert_eq!(allowed(&plan), [5, 1, 2, 3, 4]);
    assert_eq!(ends(&plan), [20, 21, 23, 26, 30]);
    assert_eq!(plan.warnings(), []);
}

#[test]
fn ordinary_pods_get_what_is_theirs_and_what_the_others_do_not_ask_for() {
    assert_eq!(shares([60, 60, -1, -1, -1], None), [20, 10, 0, 0, 0]);
    assert_eq!(shares([60, 4, -1, -1, -1], None), [26, 4, 0, 0, 0]);
    assert_eq!(shares([60, -1, -1, -1, -1], None), [30, 0, 0, 0, 0]);
}

#[test]
fn the_others_share_what_is_theirs_and_what_ordinary_pods_do_not_ask_for() {
    assert_eq!(shares([60, 30, 30, 30, 30], None), [20, 2, 2, 3, 3]);
    assert_eq!(shares([60, 30, 1, 2, 30], None), [20, 3, 1, 2, 4]);
    assert_eq!(shares([8, 30, 1, 2, 30], None), [8, 9, 1, 2, 10]);
    assert_eq!(shares([-1, 30, 1, 2, 60], None), [0, 13, 1, 2, 14]);
    assert_eq!(shares([-1, -1, 60, -1, -1], None), [0, 0, 30, 0, 0]);
}

#[test]
fn when_time_is_short_the_longest_groups_are_cut_to_a_common_length() {
    assert_eq!(shares([60, 4, 3, 2, 1], Some(20)), [10, 4, 3, 2, 1]);
    assert_eq!(shares([60, 4, 3, 2, 1], Some(12)), [3, 3, 3, 2, 1]);
    assert_eq!(shares([60, 4, 3, 2, 1], Some(3)), [0, 0, 1, 1, 1]);
    assert_eq!(shares([60, 4, 3, 2, 1], Some(0)), [0; 5]);
}

#[test]
fn a_pod_that_does_not_say_gets_its_groups_part() {
    let pods = [of_role(0, "app", None), of_role(1, "dns", None)];
    let graces = |pods: &[Pod]| graces(&plan(pods, &roles(30, 10), None));
    assert_eq!(graces(&pods), [20, 10]);
    assert_eq!(graces(&pods[..1]), [20], "also where nobody asks for the rest");
    assert_eq!(graces(&pods[1..]), [10]);
}

#[test]
fn static_pods_without_a_priority_are_told_of() {
    let unset = |name: &str| {
        let object = json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": name,
                "annotations": {"kubernetes.io/config.source": "file"},
            },
            "spec": {"containers": [], "terminationGracePeriodSeconds": 5},
        });
        Pod::new(serde_json::from_value(object).unwrap()).unwrap()
    };
    let texts = |pods: &[Pod], policy: &Policy| -> Vec<String> {
        plan(pods, policy, None).warnings().iter().map(ToString::to_string).collect()
    };
    let pods = [unset("a"), unset("b"), of_role(2, "c", Some(5))];
    assert_eq!(
        texts(&pods, &roles(30, 10)),
        ["2 static pods, such as default/a, have no priority, so they terminate with the pods of \
        the node itself: write `priority: 0` into their manifests if they are ordinary pods"]
    );
    assert_eq!(
        texts(&pods[1..], &roles(30, 10)),
        ["the static pod default/b has no priority, so it terminates with the pods of the node \
        itself: write `priority: 0` into its manifest if it is an ordinary pod"]
    );
    assert!(texts(&pods, &two_fields(30, 10)).is_empty());
}

/// Without rebootInPlace the annotation does nothing, and a pod that was to survive a soft-reboot terminates.
#[test]
fn a_pod_that_asks_in_vain_to_stay_over_a_reboot_is_told_of() {
    let mut object = of_role(2, "db", Some(5)).object().clone();
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(winddown_shared::ON_REBOOT_ANNOTATION.into(), "survive".into());
    let pods = [Pod::new(object).unwrap()];
    let namespace = pods[0].namespace().to_string();
    let texts = |policy: &Policy| -> Vec<String> {
        plan(&pods, policy, None).warnings().iter().map(ToString::to_string).collect()
    };
    let said = texts(&roles(30, 10));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("has no effect: rebootInPlace has to name the namespace"), "{said:?}");
    let named = roles(30, 10).with_in_place([(namespace, false)].into());
    assert!(texts(&named).is_empty());
}

proptest! {
    #[test]
    fn the_order_of_roles_is_never_violated_and_no_plan_exceeds_its_deadline(
        picks in proptest::collection::vec((0..7usize, proptest::option::of(0..120i64)), 0..20),
        (total, later) in (1..90u64).prop_flat_map(|total| (Just(total), 0..=total)),
        drain in 0..20u64,
        available in 0..200u64,
        more in 0..30u64,
    ) {
        let later = if later == 0 { 0 } else { later.max(1) };
        let pods: Vec<Pod> = picks
            .iter()
            .enumerate()
            .map(|(n, (role, grace))| match role {
                0..5 => of_role(*role, &format!("p{n}"), *grace),
                more => pod(&format!("p{n}"), i32::try_from(*more).ok(), *grace),
            })
            .collect();
        let policy = roles(total, later).with_endpoint_drain(secs(drain));
        let tight = plan(&pods, &policy, Some(secs(available)));
        prop_assert_eq!(tight.pod_count(), pods.len());
        let of = |pod: &Pod| match Role::of(pod) {
            Role::Ordinary => (Role::Ordinary, pod.priority_or_zero()),
            role => (role, 0),
        };
        let ended: Vec<_> =
            tight.groups.iter().flat_map(|g| &g.pods).map(|p| of(&p.pod)).collect();
        prop_assert!(ended.is_sorted());
        check_times(&tight);

        let loose = plan(&pods, &policy, Some(secs(available + more)));
        check_that_no_pod_lost(&tight, &loose);

        // No time is wasted: grace periods are cut only if all of the time is used.
        let full = plan(&pods, &roles(total, later), None);
        let given: u64 = allowed(&full).iter().sum();
        prop_assert!(given == total || full.warnings().is_empty());
    }
}
