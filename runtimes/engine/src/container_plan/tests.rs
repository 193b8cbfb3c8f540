use serde_json::json;

use super::*;

mod properties;

fn rule(name: &str, kind: ContainerKind, restart: Restart) -> ContainerRule {
    ContainerRule { name: name.into(), kind, restart }
}

const UP: ContainerObservation = ContainerObservation::Running { started: true, failing: false };
const STARTING: ContainerObservation =
    ContainerObservation::Running { started: false, failing: false };

fn ended(exit_code: i32) -> ContainerObservation {
    ContainerObservation::Ended { exit_code, wait: Duration::ZERO }
}

fn ended_wait(exit_code: i32, seconds: u64) -> ContainerObservation {
    ContainerObservation::Ended { exit_code, wait: Duration::from_secs(seconds) }
}

/// init-a, sidecar, init-b, main-a, main-b.
fn full(restart: Restart) -> Vec<ContainerRule> {
    let once = if restart == Restart::Never { Restart::Never } else { Restart::OnFailure };
    vec![
        rule("init-a", ContainerKind::Init, once),
        rule("sidecar", ContainerKind::Sidecar, Restart::Always),
        rule("init-b", ContainerKind::Init, once),
        rule("main-a", ContainerKind::Regular, restart),
        rule("main-b", ContainerKind::Regular, restart),
    ]
}

fn failing(started: bool) -> ContainerObservation {
    ContainerObservation::Running { started, failing: true }
}

fn nothing() -> NextSteps {
    NextSteps::default()
}

fn start(start: &[usize]) -> NextSteps {
    NextSteps { start: start.to_vec(), ..NextSteps::default() }
}

fn stop(container: usize) -> NextSteps {
    NextSteps { stop: vec![container], ..NextSteps::default() }
}

fn wait(seconds: u64) -> NextSteps {
    NextSteps { again_in: Some(Duration::from_secs(seconds)), ..NextSteps::default() }
}

fn done() -> NextSteps {
    NextSteps { done: true, ..NextSteps::default() }
}

#[test]
fn containers_start_in_the_order_their_kinds_ask_for() {
    use ContainerObservation::{Done, Never};
    let table = [
        ("nothing yet", Restart::Always, [Never; 5], start(&[0])),
        ("init runs", Restart::Always, [UP, Never, Never, Never, Never], nothing()),
        ("init done", Restart::Always, [ended(0), Never, Never, Never, Never], start(&[1])),
        (
            "sidecar not started",
            Restart::Always,
            [ended(0), STARTING, Never, Never, Never],
            nothing(),
        ),
        ("sidecar started", Restart::Always, [ended(0), UP, Never, Never, Never], start(&[2])),
        (
            "sidecar ended during init",
            Restart::Always,
            [ended(0), ended(0), Never, Never, Never],
            start(&[1]),
        ),
        ("all init done", Restart::Always, [ended(0), UP, ended(0), Never, Never], start(&[3, 4])),
        (
            "all init done, sidecar in back-off",
            Restart::Always,
            [ended(0), ended_wait(1, 9), ended(0), Never, Never],
            NextSteps { again_in: wait(9).again_in, ..start(&[3, 4]) },
        ),
        (
            "init runs, sidecar in back-off",
            Restart::Always,
            [ended(0), ended_wait(1, 9), UP, Never, Never],
            wait(9),
        ),
        (
            "sidecar in back-off before the next init container",
            Restart::Always,
            [ended(0), ended_wait(1, 9), Never, Never, Never],
            wait(9),
        ),
        (
            "sidecar fails its liveness probe",
            Restart::Always,
            [ended(0), failing(true), Never, Never, Never],
            NextSteps { stop: vec![1], ..start(&[2]) },
        ),
        ("all up", Restart::Always, [ended(0), UP, ended(0), UP, UP], nothing()),
        (
            "init failed, again",
            Restart::Always,
            [ended(1), Never, Never, Never, Never],
            start(&[0]),
        ),
        (
            "init in back-off",
            Restart::Always,
            [ended_wait(1, 7), Never, Never, Never, Never],
            wait(7),
        ),
        ("init failed for good", Restart::Never, [ended(1), Never, Never, Never, Never], done()),
        (
            "late init failed for good",
            Restart::Never,
            [ended(0), UP, ended(2), Never, Never],
            done(),
        ),
        (
            "main ended, sidecar ended",
            Restart::Always,
            [ended(0), ended(1), ended(0), ended(0), UP],
            start(&[1, 3]),
        ),
        ("init records gone once begun", Restart::Always, [Never, UP, Never, UP, UP], nothing()),
        (
            "shortest wait counts",
            Restart::Always,
            [ended(0), ended_wait(1, 9), ended(0), ended_wait(0, 4), UP],
            wait(4),
        ),
        (
            "on failure: success stays",
            Restart::OnFailure,
            [ended(0), UP, ended(0), ended(0), UP],
            nothing(),
        ),
        (
            "on failure: failure again",
            Restart::OnFailure,
            [ended(0), UP, ended(0), ended(3), UP],
            start(&[3]),
        ),
        ("all succeeded", Restart::OnFailure, [ended(0), UP, ended(0), ended(0), ended(0)], done()),
        (
            "never: all terminated",
            Restart::Never,
            [ended(0), ended(1), ended(0), ended(1), ended(0)],
            done(),
        ),
        (
            "never: one runs, sidecar again",
            Restart::Never,
            [ended(0), ended(1), ended(0), ended(1), UP],
            start(&[1]),
        ),
        (
            "failing main is terminated",
            Restart::Always,
            [ended(0), UP, ended(0), failing(true), UP],
            stop(3),
        ),
        (
            "failing sidecar is terminated during init",
            Restart::Always,
            [ended(0), failing(false), Never, Never, Never],
            stop(1),
        ),
        (
            "earlier init runs again, later sidecar is kept",
            Restart::Always,
            [UP, ended(1), Never, Never, Never],
            start(&[1]),
        ),
        (
            "begun anew: what is done stays, the rest begins with the init containers",
            Restart::OnFailure,
            [Never, Never, Never, Done { exit_code: 0 }, Never],
            start(&[0]),
        ),
        (
            "begun anew: all are done",
            Restart::Never,
            [Never, Never, Never, Done { exit_code: 0 }, Done { exit_code: 137 }],
            done(),
        ),
        (
            "begun anew: an init container had failed the pod",
            Restart::Never,
            [Never, Never, Done { exit_code: 1 }, Never, Never],
            done(),
        ),
    ];
    for (what, restart, seen, expected) in table {
        assert_eq!(plan(&full(restart), &seen), expected, "{what}");
    }
}

#[test]
fn an_ephemeral_container_is_started_once_whatever_the_others_do() {
    use ContainerObservation::{Done, Never};
    let mut rules = full(Restart::Always);
    rules.push(rule("debug", ContainerKind::Ephemeral, Restart::Never));
    let planned = |main: ContainerObservation, debug| {
        let seen = [ended(0), UP, ended(0), main, UP, debug];
        let plan = plan(&rules, &seen);
        (plan.start, plan.done)
    };
    assert_eq!(planned(UP, Never), (vec![5], false));
    assert_eq!(planned(ended(1), Never), (vec![5, 3], false));
    for debug in [UP, ended(0), ended(1), Done { exit_code: 1 }] {
        assert_eq!(planned(UP, debug), (vec![], false));
    }
    assert_eq!(plan(&rules, &[Never; 6]).start, [5, 0]);
    assert!(rules[5].is_for_good(0, false));
    let over = full(Restart::Never);
    let seen = [ended(0), UP, ended(0), ended(0), ended(1), Never];
    assert_eq!(plan(&[over, vec![rules.remove(5)]].concat(), &seen).start, [] as [usize; 0]);
}

#[test]
fn an_ephemeral_container_is_found_with_its_target() {
    let one = json!({"name": "debug", "image": "box", "tty": true, "targetContainerName": "main"});
    let pod = Pod::new(
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "main"}], "ephemeralContainers": [one]},
        }))
        .unwrap(),
    )
    .unwrap();
    let found = find(&pod, "debug").unwrap();
    assert_eq!((found.container.image.as_deref(), found.container.tty), (Some("box"), Some(true)));
    assert_eq!((&*found.field, found.place), ("spec.ephemeralContainers[0]", 1));
    assert_eq!((found.kind, found.target), (ContainerKind::Ephemeral, Some("main")));
    assert_eq!(find(&pod, "main").unwrap().target, None);
    assert_eq!(rules(&pod).len(), 1);
}

#[test]
fn the_rules_follow_the_spec() {
    let object = json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"restartPolicy": "Never",
            "initContainers": [{"name": "a"}, {"name": "b", "restartPolicy": "Always"}],
            "containers": [{"name": "c"}]}});
    let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
    assert_eq!(
        rules(&pod),
        [
            rule("a", ContainerKind::Init, Restart::Never),
            rule("b", ContainerKind::Sidecar, Restart::Always),
            rule("c", ContainerKind::Regular, Restart::Never),
        ]
    );
}

#[test]
fn the_back_off_is_none_then_ten_seconds_doubling_to_five_minutes() {
    let backoff = CrashBackoff::default();
    let (mut due, mut waits) = (Duration::ZERO, Vec::new());
    for _ in 0..9 {
        let waited = backoff.after(due, Duration::from_secs(1));
        waits.push(waited.as_secs());
        due = backoff.next(waited);
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
}

#[test]
fn a_run_of_ten_minutes_clears_the_back_off() {
    let backoff = CrashBackoff::default();
    let due = Duration::from_secs(300);
    assert_eq!(backoff.after(due, Duration::from_secs(599)), due);
    assert_eq!(backoff.after(due, Duration::from_secs(600)), Duration::ZERO);
    assert_eq!(backoff.next(Duration::ZERO), Duration::from_secs(10));
}
