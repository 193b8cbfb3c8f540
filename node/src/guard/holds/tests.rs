use proptest::prelude::*;
use winddown_shared::testing::pod_with;

use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn pod(name: &str, namespace: &str, asks: &str) -> Pod {
    pod_with(name, name, |pod| {
        pod.metadata.namespace = Some(namespace.to_owned());
        pod.metadata.labels = Some([(GUARD_LABEL.to_owned(), asks.to_owned())].into());
    })
}

/// A policy that allows pods in `batch` one minute.
fn policy() -> GuardPolicy {
    [("batch".to_owned(), secs(60))].into()
}

fn holding(guard: &Guard) -> Vec<&str> {
    guard.holding().map(|(uid, _)| uid).collect()
}

fn after(guard: &Guard, pods: &[Pod], now: u64) -> Guard {
    guard.reconcile(pods, true, &policy(), secs(now))
}

#[test]
fn a_pod_with_the_label_holds_where_the_policy_lets_it_and_only_while_it_runs() {
    let plain = pod_with("plain", "plain", |pod| pod.metadata.namespace = Some("batch".into()));
    let pods =
        [pod("a", "batch", "true"), pod("b", "web", "true"), pod("c", "batch", "false"), plain];
    let guard = after(&Guard::default(), &pods, 100);
    assert_eq!(holding(&guard), ["a"]);
    assert_eq!(guard.next_end(), Some(secs(160)));
    let gone = after(&guard, &pods[1..], 110);
    assert_eq!((holding(&gone), gone.block(|_| None)), (vec![], None));
    // While the pods are not known, none counts as gone.
    let silent = guard.reconcile(&[], false, &policy(), secs(110));
    assert_eq!(silent, guard);
    assert!(holding(&guard.reconcile(&pods, true, &GuardPolicy::new(), secs(110))).is_empty());
}

#[test]
fn its_time_counts_from_the_first_look_and_ends_for_good() {
    let (asks, rests) = ([pod("a", "batch", "true")], [pod("a", "batch", "false")]);
    let guard = after(&Guard::default(), &asks, 0);
    let guard = after(&guard, &rests, 10);
    assert!(holding(&guard).is_empty());
    let guard = after(&guard, &asks, 59);
    assert_eq!(holding(&guard), ["a"]);
    let guard = after(&guard, &asks, 60);
    assert_eq!((holding(&guard).len(), guard.expired().count()), (0, 1));
    let guard = after(&after(&guard, &rests, 61), &asks, 62);
    assert!(holding(&guard).is_empty(), "another hold by taking the label off and on");
    // The next agent of the boot reads it; after a soft reboot, the system start is later.
    let text = serde_json::to_string(&guard).unwrap();
    let read: Guard = serde_json::from_str(&text).unwrap();
    assert_eq!(read.clone().since(secs(0)), guard);
    assert_eq!(read.since(secs(1)), Guard::default());
}

#[test]
fn pods_that_replace_one_another_share_the_time_of_one() {
    let of_controller = |name: &str| {
        let owner = serde_json::json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
            "uid": "its-controller", "controller": true});
        let owner = serde_json::from_value(owner).unwrap();
        pod_with(name, name, |pod| {
            pod.metadata = self::pod(name, "batch", "true").metadata.clone();
            pod.metadata.owner_references = Some(vec![owner]);
        })
    };
    let of_name = |uid: &str| {
        pod_with(uid, "same", |pod| {
            let name = pod.metadata.name.take();
            pod.metadata = self::pod(uid, "batch", "true").metadata.clone();
            pod.metadata.name = name;
        })
    };
    let kinds: [&dyn Fn(&str) -> Pod; 2] = [&of_controller, &of_name];
    for replica in kinds {
        let guard = after(&Guard::default(), &[replica("a")], 0);
        // None runs for a moment.
        let guard = after(&after(&guard, &[], 49), &[replica("b")], 50);
        assert_eq!((holding(&guard), guard.next_end()), (vec!["b"], Some(secs(60))));
        let text = serde_json::to_string(&guard).unwrap();
        let read: Guard = serde_json::from_str(&text).unwrap();
        let guard = after(&read, &[replica("b"), replica("c"), pod("other", "batch", "true")], 60);
        assert_eq!(holding(&guard), ["other"]);
        // As long again after its end, the time begins again.
        let guard = after(&guard, &[replica("b"), replica("c"), replica("d")], 119);
        assert_eq!(holding(&guard), Vec::<&str>::new());
        let guard = after(&guard, &[replica("d"), replica("e")], 120);
        assert_eq!((holding(&guard), guard.next_end()), (vec!["e"], Some(secs(180))));
    }
}

/// A rollout of a Deployment makes another ReplicaSet.
#[test]
fn the_pods_of_a_rollout_share_the_time_of_one() {
    let replica = |uid: &str, owner: &str, hash: &str| {
        let owner = serde_json::json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner,
            "uid": owner, "controller": true});
        pod_with(uid, uid, |pod| {
            pod.metadata = self::pod(uid, "batch", "true").metadata.clone();
            let labels = pod.metadata.labels.get_or_insert_default();
            labels.insert("pod-template-hash".to_owned(), hash.to_owned());
            pod.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        })
    };
    let guard = after(&Guard::default(), &[replica("a", "web-5d4f", "5d4f")], 0);
    let guard = after(&guard, &[replica("b", "web-77cd", "77cd")], 50);
    assert_eq!((holding(&guard), guard.next_end()), (vec!["b"], Some(secs(60))));
    // Another Deployment, and ReplicaSets of none, whose names say nothing.
    let others = [replica("c", "app-77cd", "77cd"), replica("d", "web", "77cd")];
    let guard = after(&guard, &others, 60);
    assert_eq!((holding(&guard), guard.next_end()), (vec!["c", "d"], Some(secs(120))));
}

/// Of all mirror pods the controller is the node.
#[test]
fn static_pods_of_one_node_replace_one_another_only_by_name() {
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "the-node",
        "controller": true});
    let mirror = |name: &str| {
        let owner = serde_json::from_value(node.clone()).unwrap();
        pod_with(name, name, |pod| {
            pod.metadata = self::pod(name, "batch", "true").metadata.clone();
            pod.metadata.owner_references = Some(vec![owner]);
        })
    };
    let guard = after(&Guard::default(), &[mirror("a")], 0);
    let guard = after(&guard, &[mirror("a"), mirror("b")], 50);
    assert_eq!((holding(&guard), guard.next_end()), (vec!["a", "b"], Some(secs(60))));
    let guard = after(&guard, &[mirror("a"), mirror("b")], 60);
    assert_eq!((holding(&guard), guard.next_end()), (vec!["b"], Some(secs(110))));
}

#[test]
fn a_hold_that_an_operator_has_released_stays_released() {
    let pods = [pod("a", "batch", "true"), pod("b", "batch", "true")];
    let mut guard = after(&Guard::default(), &pods, 0);
    assert!(guard.release("a") && !guard.release("a") && !guard.release("c"));
    let guard = after(&guard, &pods, 1);
    assert_eq!(holding(&guard), ["b"]);
    assert_eq!(after(&guard, &pods, 61).expired().count(), 1);
}

#[test]
fn who_asks_for_a_shutdown_reads_which_pod_holds_it_until_when_and_what_to_do() {
    let pods = [pod("a", "batch", "true"), pod("b", "batch", "true")];
    let wall = |at| WallTime::UNIX_EPOCH.checked_add(at).ok();
    let one = after(&Guard::default(), &pods[..1], 3600).block(wall).unwrap();
    assert_eq!(one.who, "winddown: pod batch/a");
    assert_eq!(
        one.why,
        "must not be interrupted, until 1970-01-01T01:01:00Z at most; to shut down all the same: `winddown release \
         batch/a`"
    );
    let both = after(&Guard::default(), &pods, 0).block(|_| None).unwrap();
    assert_eq!(both.who, "winddown: pod batch/a and 1 more");
    assert_eq!(both.why, "must not be interrupted; to shut down all the same: `winddown status`");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Look { asks: bool, runs: bool, known: bool },
    Release,
}

proptest! {
    /// Whatever a pod does with its label, it holds for its time at most, and no released hold comes back.
    #[test]
    fn a_pod_never_holds_longer_than_its_time(steps in proptest::collection::vec(
        prop_oneof![
            (any::<bool>(), any::<bool>()).prop_map(|(asks, known)| Step::Look { asks, runs: true, known }),
            any::<bool>().prop_map(|asks| Step::Look { asks, runs: false, known: false }),
            Just(Step::Release),
        ],
        1..40,
    )) {
        let mut guard = Guard::default();
        let (mut first, mut released) = (None, false);
        for (now, step) in (0..).step_by(7).zip(steps) {
            match step {
                Step::Look { asks, runs, known } => {
                    let pods = [pod("a", "batch", if asks { "true" } else { "" })];
                    guard = guard.reconcile(&pods[..usize::from(runs)], known, &policy(), secs(now));
                }
                Step::Release => released |= guard.release("a"),
            }
            let holds = guard.holding().count() > 0;
            if holds {
                prop_assert!(!released && now < *first.get_or_insert(now) + 60);
            }
            prop_assert_eq!(guard.next_end().is_some(), holds);
        }
    }
}

#[test]
fn those_of_the_highest_priority_are_named_first() {
    let ranked = |name: &str, priority| {
        let mut object = pod(name, "batch", "true").object().clone();
        object.spec.get_or_insert_default().priority = Some(priority);
        Pod::new(object).unwrap()
    };
    let pods = [ranked("a", 0), ranked("b", 1000), ranked("c", 1000)];
    let guard = after(&Guard::default(), &pods, 0);
    assert_eq!(holding(&guard), ["b", "c", "a"]);
    assert_eq!(guard.block(|_| None).unwrap().who, "winddown: pod batch/b and 2 more");
}
