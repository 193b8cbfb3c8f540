//! Statuses of example nodes.

use winddown_shared::WallTime;

use winddown_control::api::{
    Decision, GroupProgress, GroupSummary, LockState, ManifestProblem, NodeStatus, Phase,
    PlanSummary, PodState, PodStatus, RejectedPod, RuntimeStatus, Status,
};

const DIRECTORY: &str = "/etc/winddown/pods";

pub(crate) fn at(time: &str) -> WallTime {
    format!("2026-11-20T{time}Z").parse().expect("a time")
}

pub(crate) fn pod(namespace: &str, name: &str, priority: i32) -> PodStatus {
    PodStatus {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        source: format!("{DIRECTORY}/{name}.yaml"),
        priority,
        critical: priority >= 2_000_000_000,
        qos: "BestEffort".to_owned(),
        phase: "Running".to_owned(),
        state: PodState::Syncing,
        ready: true,
        ready_containers: 1,
        desired_containers: 1,
        started_at: Some(at("08:48:00")),
        ..PodStatus::default()
    }
}

/// A freshly installed node: the lock is held, nothing runs.
pub(crate) fn fresh() -> Status {
    let node = NodeStatus {
        name: "edge-1".to_owned(),
        boot_id: "5f0c6a54".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 412,
        started_at: Some(at("11:59:55")),
        uptime_seconds: 5,
        ..NodeStatus::default()
    };
    let mut status = Status { time: at("12:00:00"), node, ..Status::default() };
    status.lock.state = LockState::Held;
    status.lock.held_since = Some(at("11:59:56"));
    status.lock.delay_seconds = Some(40.0);
    status.lock.required_seconds = 40.0;
    status.shutdown_plan = PlanSummary {
        enabled: true,
        requested_seconds: 40.0,
        available_seconds: 40.0,
        groups: vec![group(0, 30.0, 0), group(2_000_000_000, 10.0, 0)],
        ..PlanSummary::default()
    };
    status.runtime =
        RuntimeStatus { name: "process".to_owned(), healthy: true, message: String::new() };
    status.config.file = "/etc/winddown/config.yaml".to_owned();
    status.manifests.directory = DIRECTORY.to_owned();
    status
}

fn group(priority: i32, deadline_seconds: f64, pods: usize) -> GroupSummary {
    GroupSummary { priority, name: None, deadline_seconds, pods }
}

/// Five pods without problems.
pub(crate) fn five_pods() -> Status {
    let mut status = fresh();
    status.node.started_at = Some(at("08:47:00"));
    status.node.uptime_seconds = 3 * 3600 + 13 * 60;
    status.lock.held_since = Some(at("08:47:01"));
    status.pods = vec![
        pod("default", "web-edge-1", 0),
        pod("kube-system", "log-shipper-edge-1", 2_000_001_000),
        pod("shop", "queue-worker-edge-1", 100),
        pod("shop", "database-edge-1", 1000),
        pod("default", "metrics-edge-1", 2_000_000_000),
    ];
    if let Some(worker) = status.pods.get_mut(2) {
        worker.restarts = 3;
        worker.desired_containers = 2;
        worker.ready_containers = 2;
    }
    status.shutdown_plan.groups = vec![group(0, 30.0, 3), group(2_000_000_000, 40.0, 2)];
    status.decisions = vec![
        decision("08:48:00", "default/web-edge-1 admitted"),
        decision("11:20:00", "shop/queue-worker-edge-1 started again after exit code 1"),
    ];
    status
}

fn decision(time: &str, text: &str) -> Decision {
    Decision {
        time: Some(at(time)),
        kind: "example".to_owned(),
        text: text.to_owned(),
        ..Decision::default()
    }
}

/// logind is unreachable.
pub(crate) fn lock_waiting() -> Status {
    let mut status = five_pods();
    status.lock.state = LockState::Waiting;
    status.lock.held_since = None;
    status.lock.delay_seconds = None;
    status.lock.why = Some(
        "the system bus does not answer: /run/dbus/system_bus_socket: connection refused"
            .to_owned(),
    );
    status
}

/// Another drop-in allows less delay than is required.
pub(crate) fn shrunk_delay() -> Status {
    let mut status = five_pods();
    status.lock.delay_seconds = Some(3.0);
    status.lock.set_by = Some("/etc/systemd/logind.conf.d/zzz-site.conf".to_owned());
    status.shutdown_plan.available_seconds = 3.0;
    status.shutdown_plan.groups = vec![group(0, 2.0, 3), group(2_000_000_000, 3.0, 2)];
    status
}

/// Two manifests are broken, and a pod was rejected.
pub(crate) fn broken_manifests() -> Status {
    let mut status = fresh();
    status.pods = vec![pod("default", "web-edge-1", 0)];
    status.shutdown_plan.groups = vec![group(0, 30.0, 1)];
    status.manifests.problems = vec![
        ManifestProblem {
            file: format!("{DIRECTORY}/database.yaml"),
            line: Some(12),
            field: "spec.containers[0].imagePullPolcy".to_owned(),
            message: "unknown field, did you mean imagePullPolicy?".to_owned(),
            since: None,
        },
        ManifestProblem {
            file: format!("{DIRECTORY}/empty.yaml"),
            message: "the file is empty: write one v1 Pod, or remove it".to_owned(),
            ..ManifestProblem::default()
        },
    ];
    status.rejected = vec![RejectedPod {
        namespace: "default".to_owned(),
        name: "nfs-edge-1".to_owned(),
        reason: "UnsupportedField".to_owned(),
        message: "spec.volumes[0].nfs: the process runtime mounts no network volumes".to_owned(),
        ..RejectedPod::default()
    }];
    status
}

/// The first of two groups has stopped, the second is stopping.
pub(crate) fn shutting_down() -> Status {
    let mut status = five_pods();
    status.shutdown.phase = Phase::Running;
    status.shutdown.since = Some(at("11:59:56"));
    status.shutdown.deadline = Some(at("12:00:36"));
    status.shutdown.groups = vec![
        GroupProgress {
            priority: 0,
            name: Some("ordinary pods".to_owned()),
            pods: 3,
            terminated: 3,
            started: true,
            finished: true,
        },
        GroupProgress {
            priority: 2_000_000_000,
            name: None,
            pods: 2,
            terminated: 1,
            started: true,
            finished: false,
        },
    ];
    status.pods.retain(|pod| pod.name.starts_with("log-shipper"));
    if let Some(last) = status.pods.first_mut() {
        last.state = PodState::Terminating;
        last.grace_left_seconds = Some(7);
        last.ready_containers = 0;
    }
    status.shutdown_plan.groups = vec![group(2_000_000_000, 10.0, 1)];
    status.decisions = vec![
        decision("11:59:56", "shutdown started: 5 pods to terminate within 40s"),
        decision("11:59:58", "priority 0 and above: terminated in 2.1s"),
    ];
    status
}
