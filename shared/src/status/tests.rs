//! Tables of pod statuses.

mod changes;
mod lame_duck;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{PodPhase, StatusInput, generate};
use crate::{
    ContainerExit, ContainerKind, ContainerState, ContainerStatus, Pod, PodRuntimeStatus,
    StatusOverride, WallTime,
};

/// The state of a container in the table.
#[derive(Clone, Copy, Debug)]
enum Is {
    New,
    Up,
    Done(i32),
    /// A child process was killed, and the first one exited with 0.
    OutOfMemory,
    CrashLoop(i32),
}

fn container(name: &str, kind: ContainerKind, is: Is) -> ContainerStatus {
    let exit = |code| ContainerExit {
        exit_code: code,
        signal: None,
        reason: if code == 0 { "Completed" } else { "Error" }.into(),
        message: String::new(),
        started_at: None,
        finished_at: None,
    };
    let waiting =
        |reason: &str| ContainerState::Waiting { reason: reason.into(), message: String::new() };
    let (state, last_exit) = match is {
        Is::New => (waiting("ContainerCreating"), None),
        Is::Up => (ContainerState::Running { started_at: WallTime::UNIX_EPOCH }, None),
        Is::Done(code) => (ContainerState::Exited(exit(code)), None),
        Is::OutOfMemory => {
            let exit = ContainerExit { reason: "OOMKilled".into(), ..exit(0) };
            (ContainerState::Exited(exit), None)
        }
        Is::CrashLoop(code) => (waiting("CrashLoopBackOff"), Some(exit(code))),
    };
    let up = matches!(is, Is::Up);
    ContainerStatus {
        name: name.into(),
        kind,
        id: String::new(),
        image: "x".into(),
        image_id: String::new(),
        state,
        last_exit,
        restart_count: 0,
        started: up,
        ready: up,
    }
}

fn pod(regular: usize, restart: &str, is_static: bool) -> Pod {
    let source = if is_static { "file" } else { "api" };
    let named = |i: usize| api::Container { name: format!("c{i}"), ..api::Container::default() };
    Pod::new(api::Pod {
        metadata: ObjectMeta {
            name: Some("p".into()),
            namespace: Some("default".into()),
            uid: Some("u".into()),
            annotations: Some([("kubernetes.io/config.source".into(), source.into())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            containers: (0..regular).map(named).collect(),
            restart_policy: Some(restart.into()),
            ..api::PodSpec::default()
        }),
        status: None,
    })
    .unwrap()
}

fn runtime(init: &[(ContainerKind, Is)], regular: &[Is]) -> PodRuntimeStatus {
    let init = init.iter().enumerate().map(|(i, (k, is))| container(&format!("i{i}"), *k, *is));
    let regular = regular
        .iter()
        .enumerate()
        .map(|(i, is)| container(&format!("c{i}"), ContainerKind::Regular, *is));
    PodRuntimeStatus { containers: init.chain(regular).collect(), ..PodRuntimeStatus::default() }
}

/// The input for the first status of a pod that is not terminating.
fn input<'a>(pod: &'a Pod, runtime: &'a PodRuntimeStatus) -> StatusInput<'a> {
    StatusInput {
        pod,
        runtime,
        previous: None,
        stopped: false,
        ended_by_agent: None,
        host_ips: &[],
        now: WallTime::UNIX_EPOCH,
    }
}

fn phase_of(pod: &Pod, runtime: &PodRuntimeStatus, stopped: bool) -> PodPhase {
    let status = generate(StatusInput { stopped, ..input(pod, runtime) });
    PodPhase::of(&status).unwrap()
}

#[test]
fn the_phase_follows_from_containers_and_restart_policy() {
    use ContainerKind::{Init, Sidecar};
    use Is::{CrashLoop, Done, New, OutOfMemory, Up};
    type Row<'a> = (&'a str, &'a [(ContainerKind, Is)], &'a [Is], PodPhase);
    let rows: &[Row<'_>] = &[
        ("Always", &[], &[New], PodPhase::Pending),
        ("Always", &[], &[Up], PodPhase::Running),
        ("Always", &[], &[Up, New], PodPhase::Pending),
        ("Always", &[], &[Up, Done(1)], PodPhase::Running),
        ("Always", &[], &[Done(0)], PodPhase::Running),
        ("Always", &[], &[CrashLoop(1)], PodPhase::Running),
        ("OnFailure", &[], &[Done(0)], PodPhase::Succeeded),
        ("OnFailure", &[], &[Done(0), Done(2)], PodPhase::Running),
        ("OnFailure", &[], &[Done(0), CrashLoop(2)], PodPhase::Running),
        ("Never", &[], &[Done(0), Done(0)], PodPhase::Succeeded),
        ("Never", &[], &[Done(0), Done(2)], PodPhase::Failed),
        ("Never", &[], &[Up, Done(2)], PodPhase::Running),
        ("Never", &[(Init, Up)], &[New], PodPhase::Pending),
        ("Never", &[(Init, Done(1))], &[New], PodPhase::Failed),
        ("Always", &[(Init, Done(1))], &[New], PodPhase::Pending),
        ("Always", &[(Init, Done(0))], &[Up], PodPhase::Running),
        ("Never", &[(Init, OutOfMemory)], &[New], PodPhase::Failed),
        ("OnFailure", &[(Init, OutOfMemory)], &[New], PodPhase::Pending),
        ("Never", &[], &[OutOfMemory], PodPhase::Succeeded),
        ("Always", &[(Sidecar, Up)], &[Up], PodPhase::Running),
        ("Always", &[(Sidecar, New)], &[New], PodPhase::Pending),
        // A sidecar that still runs does not keep a job from completing.
        ("Never", &[(Sidecar, Up)], &[Done(0)], PodPhase::Succeeded),
    ];
    for (i, (restart, init, regular, expected)) in rows.iter().enumerate() {
        let got = phase_of(&pod(regular.len(), restart, false), &runtime(init, regular), false);
        assert_eq!(got, *expected, "row {i}");
    }
}

#[test]
fn a_pod_that_starts_over_is_not_done_whatever_its_containers_did_before() {
    for restart in ["OnFailure", "Never"] {
        let mut status = runtime(&[], &[Is::Done(0)]);
        status.starts_over = true;
        assert_eq!(phase_of(&pod(1, restart, false), &status, false), PodPhase::Running);
    }
}

#[test]
fn a_stopped_pod_of_the_api_is_succeeded_only_if_everything_exited_with_0() {
    use Is::{Done, New};
    let rows: &[(&[Is], PodPhase)] = &[
        (&[Done(0), Done(0)], PodPhase::Succeeded),
        (&[Done(0), Done(137)], PodPhase::Failed),
        (&[Done(0), New], PodPhase::Failed),
    ];
    for (i, (regular, expected)) in rows.iter().enumerate() {
        let pod = pod(regular.len(), "Always", false);
        assert_eq!(phase_of(&pod, &runtime(&[], regular), true), *expected, "row {i}");
    }
    // Static pods are not forced into a terminal phase: they come back after a reboot.
    let kept = phase_of(&pod(1, "Always", true), &runtime(&[], &[Is::Done(0)]), true);
    assert_eq!(kept, PodPhase::Running);
}

#[test]
fn the_agents_reason_stays_on_the_pod_it_ended() {
    let words = StatusOverride::failed("Evicted", "The node was low on resource: memory. ", None);
    for code in [0, 1, 137] {
        let pod = pod(1, "Always", true);
        let runtime = runtime(&[], &[Is::Done(code)]);
        let mut status = None;
        for stopped in [true, true, false] {
            let next = generate(StatusInput {
                previous: status.as_ref(),
                stopped,
                ended_by_agent: stopped.then_some(&words),
                ..input(&pod, &runtime)
            });
            assert_eq!(next.phase.as_deref(), Some("Failed"));
            assert_eq!(next.reason.as_deref(), Some("Evicted"));
            status = Some(next);
        }
    }
}

/// Each condition in one line: type, status, reason and message.
fn told(status: &api::PodStatus) -> Vec<String> {
    let told = |c: &api::PodCondition| {
        let why = [&c.reason, &c.message].map(|text| text.as_deref().unwrap_or_default());
        format!("{} {} {}", c.type_, c.status, why.join(" ")).trim_end().to_owned()
    };
    status.conditions.iter().flatten().map(told).collect()
}

#[test]
fn the_conditions_say_how_far_a_pod_has_come_and_what_it_waits_for() {
    use ContainerKind::{Init, Sidecar};
    use Is::{Done, New, Up};
    type Row<'a> = (&'a str, bool, &'a [(ContainerKind, Is)], &'a [Is], [&'a str; 3]);
    let not_done = "False ContainersNotInitialized containers with incomplete status: ";
    let not_ready = "False ContainersNotReady containers with unready status: ";
    let rows: &[Row<'_>] = &[
        ("Always", false, &[], &[], ["False", "False", &format!("{not_ready}[]")]),
        ("Always", false, &[], &[New], ["False", "True", &format!("{not_ready}[c0]")]),
        (
            "Always",
            true,
            &[(Init, Up)],
            &[New],
            ["True", &format!("{not_done}[i0]"), &format!("{not_ready}[c0]")],
        ),
        ("Always", true, &[(Init, Done(0))], &[Up, Up], ["True", "True", "True"]),
        ("Always", true, &[], &[Up, Done(1)], ["True", "True", &format!("{not_ready}[c1]")]),
        ("Always", true, &[(Sidecar, New)], &[Up], ["True", "True", &format!("{not_ready}[i0]")]),
        ("Never", true, &[], &[Done(0)], ["False", "True PodCompleted", "False PodCompleted"]),
        ("Never", true, &[], &[Done(1)], ["False", "True", "False PodFailed"]),
        (
            "Never",
            true,
            &[(Init, Done(1))],
            &[New],
            ["False", &format!("{not_done}[i0]"), "False PodFailed"],
        ),
    ];
    for (i, (restart, started, init, regular, [starts, initialized, ready])) in
        rows.iter().enumerate()
    {
        let mut runtime = runtime(init, regular);
        runtime.started_at = started.then_some(WallTime::UNIX_EPOCH);
        let status = generate(input(&pod(regular.len(), restart, false), &runtime));
        let wanted = [
            format!("PodReadyToStartContainers {starts}"),
            format!("Initialized {initialized}"),
            format!("Ready {ready}"),
            format!("ContainersReady {ready}"),
            "PodScheduled True".to_owned(),
        ];
        assert_eq!(told(&status), wanted, "row {i}");
    }
}

#[test]
fn a_transition_time_moves_only_when_the_condition_changes() {
    let pod = pod(1, "Always", false);
    let at = |second: i64| WallTime::from_second(second).unwrap();
    let say = |previous: Option<&api::PodStatus>, is: Is, now: i64| {
        let runtime = runtime(&[], &[is]);
        generate(StatusInput { previous, now: at(now), ..input(&pod, &runtime) })
    };
    let ready = |status: &api::PodStatus| {
        let conditions = status.conditions.as_ref().unwrap();
        let ready = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        (ready.status.clone(), ready.last_transition_time.as_ref().unwrap().0)
    };
    let first = say(None, Is::Up, 10);
    let second = say(Some(&first), Is::Up, 20);
    let third = say(Some(&second), Is::Done(1), 30);
    assert_eq!(ready(&first), ("True".into(), at(10)));
    assert_eq!(ready(&second), ("True".into(), at(10)));
    assert_eq!(ready(&third), ("False".into(), at(30)));
}

#[test]
fn conditions_of_others_are_carried_over() {
    let pod = pod(1, "Always", false);
    let theirs = api::PodCondition {
        type_: "example.com/gate".into(),
        status: "True".into(),
        ..api::PodCondition::default()
    };
    let previous =
        api::PodStatus { conditions: Some(vec![theirs.clone()]), ..api::PodStatus::default() };
    let runtime = runtime(&[], &[Is::Up]);
    let status = generate(StatusInput { previous: Some(&previous), ..input(&pod, &runtime) });
    assert!(status.conditions.unwrap().contains(&theirs));
}

#[test]
fn addresses_are_the_pods_own_or_the_nodes_and_are_not_forgotten() {
    let ips = |status: &api::PodStatus| {
        let hosts: Vec<_> = status.host_ips.iter().flatten().map(|h| h.ip.clone()).collect();
        let pods: Vec<_> = status.pod_ips.iter().flatten().map(|p| p.ip.clone()).collect();
        assert_eq!(
            (status.host_ip.as_ref(), status.pod_ip.as_ref()),
            (hosts.first(), pods.first())
        );
        (hosts.join(" "), pods.join(" "))
    };
    let node = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
    let say = |host_network: bool, own: &[&str], node: &[std::net::IpAddr], previous| {
        let mut object = (*pod(1, "Always", false)).clone();
        object.spec.as_mut().unwrap().host_network = Some(host_network);
        let runtime = PodRuntimeStatus {
            ips: own.iter().map(ToString::to_string).collect(),
            ..runtime(&[], &[Is::Up])
        };
        let pod = Pod::new(object).unwrap();
        generate(StatusInput { previous, host_ips: node, ..input(&pod, &runtime) })
    };
    let (own, both) = ("10.0.0.9", "192.0.2.7 2001:db8::7");
    let told = |hosts: &str, pods: &str| (hosts.to_owned(), pods.to_owned());
    let first = say(false, &[own], &node, None);
    assert_eq!(ips(&first), told(both, own));
    assert_eq!(ips(&say(false, &[], &node, Some(&first))), told(both, own), "it has ended");
    assert_eq!(ips(&say(false, &[own], &[], Some(&first))), told(both, own), "no route now");
    assert_eq!(ips(&say(false, &[], &node, None)), told(both, ""), "not there yet");
    assert_eq!(ips(&say(true, &[], &node, None)), told(both, both));
    assert_eq!(ips(&say(true, &[], &[], None)), told("", ""));
}

#[test]
fn a_pod_whose_init_containers_are_not_done_names_them() {
    use ContainerKind::{Init, Sidecar};
    use Is::{CrashLoop, Done, New, Up};
    let initialized = |init: &[(ContainerKind, Is)]| {
        let status = generate(input(&pod(1, "Always", false), &runtime(init, &[Is::New])));
        let conditions = status.conditions.unwrap();
        let one = conditions.into_iter().find(|c| c.type_ == "Initialized").unwrap();
        (one.status, one.reason.unwrap_or_default(), one.message.unwrap_or_default())
    };
    let no = |names: &str| {
        let message = format!("containers with incomplete status: [{names}]");
        ("False".to_owned(), "ContainersNotInitialized".to_owned(), message)
    };
    assert_eq!(initialized(&[(Init, CrashLoop(1)), (Init, New)]), no("i0 i1"));
    assert_eq!(initialized(&[(Init, Done(0)), (Sidecar, New)]), no("i1"));
    let yes = ("True".to_owned(), String::new(), String::new());
    assert_eq!(initialized(&[(Init, Done(0)), (Sidecar, Up)]), yes);
}

#[test]
fn a_pod_whose_regular_container_has_started_stays_initialized_when_its_sidecar_exits() {
    use ContainerKind::{Init, Sidecar};
    use Is::{CrashLoop, Done, Up};
    for (sidecar, main) in
        [(CrashLoop(1), Up), (Done(143), Done(143)), (CrashLoop(1), CrashLoop(1))]
    {
        let runtime = runtime(&[(Init, Done(0)), (Sidecar, sidecar)], &[main]);
        let status = generate(input(&pod(1, "Always", false), &runtime));
        let conditions = status.conditions.unwrap();
        let one = conditions.into_iter().find(|c| c.type_ == "Initialized").unwrap();
        assert_eq!((&*one.status, one.reason), ("True", None), "{sidecar:?} {main:?}");
    }
}

#[test]
fn the_last_run_of_a_container_has_the_id_of_the_present_one_only_while_there_is_none() {
    let exit = ContainerExit::new(1);
    for (main, wanted) in
        [(Is::CrashLoop(1), Some("test://c0")), (Is::Up, None), (Is::Done(0), None)]
    {
        let mut runtime = runtime(&[], &[main]);
        runtime.containers[0].id = "test://c0".into();
        runtime.containers[0].last_exit = Some(exit.clone());
        let status = generate(input(&pod(1, "Always", false), &runtime));
        let container = status.container_statuses.unwrap().remove(0);
        assert_eq!(container.container_id.as_deref(), Some("test://c0"));
        let last = container.last_state.unwrap().terminated.unwrap();
        assert_eq!(last.container_id.as_deref(), wanted, "{main:?}");
    }
}

/// A message that is not UTF-8 has three bytes for each of its own. An API server takes no status of 1.5 MB.
#[test]
fn the_termination_messages_of_a_pod_share_what_a_kubelet_allows() {
    let exit = ContainerExit { message: "\u{fffd}".repeat(4096), ..ContainerExit::new(1) };
    let container = |n: usize| ContainerStatus {
        last_exit: Some(exit.clone()),
        ..ContainerStatus::new(
            format!("c{n}"),
            ContainerKind::Regular,
            ContainerState::Exited(exit.clone()),
        )
    };
    for (number, longest) in [(1, 12_288), (64, 192), (100, 120)] {
        let containers: Vec<_> = (0..number).map(container).collect();
        let shown = super::containers::listed(&containers, &[ContainerKind::Regular]).unwrap();
        for container in shown {
            for state in [container.state, container.last_state] {
                let message = state.unwrap().terminated.unwrap().message.unwrap();
                assert_eq!(message.len(), longest, "of {number}");
            }
        }
    }
}

#[test]
fn an_ephemeral_container_is_listed_apart_and_counts_for_nothing() {
    use ContainerKind::Ephemeral;
    for (ephemeral, main, phase, ready) in
        [(Is::Done(1), Is::Up, "Running", "True"), (Is::Up, Is::New, "Pending", "False")]
    {
        let mut runtime = runtime(&[], &[main]);
        runtime.containers.push(container("debug", Ephemeral, ephemeral));
        let status = generate(input(&pod(1, "Always", false), &runtime));
        let names = |list: Option<Vec<api::ContainerStatus>>| {
            list.unwrap_or_default().into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        assert_eq!(status.phase.as_deref(), Some(phase));
        let conditions = status.conditions.unwrap();
        let is_ready = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
        assert_eq!(is_ready.status, ready);
        assert_eq!(names(status.ephemeral_container_statuses), ["debug"]);
        assert_eq!(names(status.container_statuses), ["c0"]);
        assert_eq!(names(status.init_container_statuses), [""; 0]);
    }
}
