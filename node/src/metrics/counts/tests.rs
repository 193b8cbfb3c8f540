//! Examples and properties of the counts.

use k8s_openapi::api::core::v1 as api;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;

use super::*;
use winddown_shared::{CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Origin {
    Api,
    Manifest,
    Mirror,
}

fn pod(uid: &str, origin: Origin) -> Pod {
    pod_in_phase(uid, origin, None)
}

fn pod_in_phase(uid: &str, origin: Origin, phase: Option<&str>) -> Pod {
    let annotation = match origin {
        Origin::Api => (CONFIG_SOURCE_ANNOTATION, "api"),
        Origin::Manifest => (CONFIG_SOURCE_ANNOTATION, "file"),
        Origin::Mirror => (CONFIG_MIRROR_ANNOTATION, "hash"),
    };
    Pod::new(api::Pod {
        metadata: ObjectMeta {
            name: Some(uid.into()),
            namespace: Some("default".into()),
            uid: Some(uid.into()),
            annotations: Some([(annotation.0.to_owned(), annotation.1.to_owned())].into()),
            ..ObjectMeta::default()
        },
        status: phase
            .map(|phase| api::PodStatus { phase: Some(phase.into()), ..api::PodStatus::default() }),
        ..api::Pod::default()
    })
    .unwrap()
}

fn worker(pod: &Pod, lifecycle: Lifecycle) -> PodSnapshot {
    PodSnapshot { pod: Some(pod.clone()), ..runtime_worker(pod, lifecycle) }
}

/// The worker of a pod that only the runtime knows.
fn runtime_worker(pod: &Pod, lifecycle: Lifecycle) -> PodSnapshot {
    PodSnapshot {
        pod: None,
        uid: pod.uid().clone(),
        lifecycle,
        restarts_on_node: false,
        prior_reason: None,
        grace_left: None,
        failures: 0,
    }
}

fn never(_: &Pod) -> bool {
    false
}

const NO_PODS: [&Pod; 0] = [];

#[test]
fn a_node_without_pods_counts_nothing() {
    assert_eq!(PodCounts::of(NO_PODS, &[], never), PodCounts::default());
}

#[test]
fn every_desired_pod_is_desired_and_only_those_that_may_still_run_are_active() {
    use Lifecycle::{Finished, Syncing, Terminated, Terminating, Waiting};
    use Origin::Manifest;
    // The worker's stage, the phase in the pod object, whether the last status was terminal, whether the pod is active.
    let table: [(Option<Lifecycle>, Option<&str>, bool, bool); 13] = [
        (None, None, false, true),
        (None, None, true, false),
        (None, Some("Failed"), false, false),
        (None, Some("Running"), false, true),
        (Some(Waiting), None, false, true),
        (Some(Syncing), Some("Pending"), false, true),
        (Some(Syncing), None, true, false),
        (Some(Syncing), Some("Succeeded"), false, false),
        (Some(Terminating), None, false, true),
        (Some(Terminating), Some("Failed"), true, true),
        (Some(Terminated), None, false, false),
        (Some(Terminated), None, true, false),
        (Some(Finished), None, false, false),
    ];
    for (lifecycle, phase, has_ended, active) in table {
        let it = pod_in_phase("it", Manifest, phase);
        let workers: Vec<_> = lifecycle.map(|l| worker(&it, l)).into_iter().collect();
        let counts = PodCounts::of([&it], &workers, |_| has_ended);
        let case = format!("{lifecycle:?} {phase:?} ended={has_ended}");
        assert_eq!(counts.desired, ByOrigin { regular: 0, from_manifests: 1 }, "{case}");
        let expected = ByOrigin { regular: 0, from_manifests: usize::from(active) };
        assert_eq!(counts.active, expected, "{case}");
    }
}

#[test]
fn working_pods_are_told_apart_by_stage_by_whether_they_are_wanted_and_by_origin() {
    use Lifecycle::{Finished, Syncing, Terminated, Terminating, Waiting};
    let wanted = [pod("a", Origin::Api), pod("b", Origin::Manifest), pod("c", Origin::Manifest)];
    let gone = [pod("d", Origin::Api), pod("e", Origin::Manifest), pod("f", Origin::Api)];
    let workers = [
        worker(&wanted[0], Syncing),
        worker(&wanted[1], Waiting),
        worker(&wanted[2], Finished),
        worker(&gone[0], Terminating),
        worker(&gone[1], Terminated),
        runtime_worker(&gone[2], Terminating),
    ];
    let working = PodCounts::of(&wanted, &workers, never).working;
    let regular = ByOrigin { regular: 1, from_manifests: 0 };
    let from_manifests = ByOrigin { regular: 0, from_manifests: 1 };
    let mut expected = WorkingPods::default();
    expected.sync.desired = ByOrigin { regular: 1, from_manifests: 1 };
    expected.terminating = ByConfig { orphan: regular, runtime_only: 1, ..ByConfig::default() };
    expected.terminated.desired = from_manifests;
    expected.terminated.orphan = from_manifests;
    assert_eq!(working, expected);
}

#[test]
fn a_mirror_pod_is_counted_as_such_and_as_nothing_else() {
    let (own, mirror) = (pod("own", Origin::Manifest), pod("mirror", Origin::Mirror));
    let counts = PodCounts::of([&own, &mirror], &[worker(&own, Lifecycle::Syncing)], never);
    assert_eq!(counts.mirrors, 1);
    assert_eq!(counts.desired, ByOrigin { regular: 0, from_manifests: 1 });
    assert_eq!(counts.active, ByOrigin { regular: 0, from_manifests: 1 });
}

#[test]
fn a_wanted_pod_of_which_the_worker_knows_only_what_the_runtime_said_counts_as_wanted() {
    let it = pod("it", Origin::Manifest);
    let counts = PodCounts::of([&it], &[runtime_worker(&it, Lifecycle::Terminating)], never);
    let wanted = ByOrigin { regular: 0, from_manifests: 1 };
    assert_eq!(counts.working.terminating.desired, wanted);
    assert_eq!(counts.working.terminating.runtime_only, 0);
}

fn lifecycles() -> impl Strategy<Value = Lifecycle> {
    prop_oneof![
        Just(Lifecycle::Waiting),
        Just(Lifecycle::Syncing),
        Just(Lifecycle::Terminating),
        Just(Lifecycle::Terminated),
        Just(Lifecycle::Finished),
    ]
}

fn origins() -> impl Strategy<Value = Origin> {
    prop_oneof![Just(Origin::Api), Just(Origin::Manifest), Just(Origin::Mirror)]
}

proptest! {
    #[test]
    fn every_worker_is_counted_once_and_no_more_pods_are_active_than_desired(
        pods in proptest::collection::vec(
            (origins(), any::<bool>(), any::<bool>(), proptest::option::of(lifecycles()), any::<bool>()),
            0..40,
        ),
    ) {
        let mut desired = Vec::new();
        let mut workers = Vec::new();
        for (n, (origin, wanted, known, lifecycle, _)) in pods.iter().enumerate() {
            let it = pod(&n.to_string(), *origin);
            // A mirror pod has no worker.
            if let (Some(lifecycle), true) = (lifecycle, *origin != Origin::Mirror) {
                workers.push(if *known { worker(&it, *lifecycle) } else { runtime_worker(&it, *lifecycle) });
            }
            if *wanted {
                desired.push(it);
            }
        }
        let ended = |pod: &Pod| pods[pod.uid().as_str().parse::<usize>().unwrap()].4;
        let counts = PodCounts::of(&desired, &workers, ended);
        let total = |n: ByOrigin| n.regular + n.from_manifests;
        prop_assert_eq!(total(counts.desired) + counts.mirrors, desired.len());
        prop_assert!(counts.active.regular <= counts.desired.regular);
        prop_assert!(counts.active.from_manifests <= counts.desired.from_manifests);
        let working: usize = counts
            .working
            .stages()
            .iter()
            .map(|(_, stage)| total(stage.desired) + total(stage.orphan) + stage.runtime_only)
            .sum();
        prop_assert_eq!(working, workers.len());
    }
}

#[test]
fn pods_that_start_again_after_a_reboot_are_counted() {
    let db = pod("db", Origin::Api);
    let stays = PodSnapshot { restarts_on_node: true, ..worker(&db, Lifecycle::Finished) };
    assert_eq!(PodCounts::of([&db], &[stays], never).staying, 1);
    let ended = worker(&db, Lifecycle::Finished);
    assert_eq!(PodCounts::of([&db], &[ended], never).staying, 0);
}
